"""A whole forward pass of a Llama-family model in one parallel region (Touvron et al. 2023)."""
