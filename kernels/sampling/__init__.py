"""Choosing the next token on the device: greedy, or temperature and top-p."""
