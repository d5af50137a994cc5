"""The gate of a SwiGLU block."""

from kernels.silu_and_mul.reference import silu_and_mul

__all__ = ["silu_and_mul"]
