"""Are the kernels right, and do they compile well: without a GPU, and on one."""
