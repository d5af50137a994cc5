"""x W^T with int8 or int4 weights that are dequantised where they are used."""
