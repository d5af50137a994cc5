"""Matrix product with a weight that is packed once."""

from kernels.linear.reference import PackedLinear

__all__ = ["PackedLinear"]
