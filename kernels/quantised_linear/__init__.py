"""Matrix product with int8 or int4 weights, for few rows."""
