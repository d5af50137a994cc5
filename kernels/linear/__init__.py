"""Matrix product with a weight that is packed once."""

from kernels.linear.reference import MIN_ROWS, PackedLinear

__all__ = ["MIN_ROWS", "PackedLinear"]
