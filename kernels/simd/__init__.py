"""Vector kernels for x86-64 CPUs, written in Python and compiled by numba.

vectors: sixteen floats as a type with its operations; tiles: the matmul microkernels; pool: one
function run by all of torch's own threads; cache: where the compiled code lies.
"""

from kernels.simd.cache import prepare

prepare()
