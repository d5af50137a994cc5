"""Names of the dtypes that kernels take, as torch writes them."""

FLOATS = ("bfloat16", "float16", "float32")
FP8 = ("float8_e4m3fn",)
CACHE = FLOATS + FP8
