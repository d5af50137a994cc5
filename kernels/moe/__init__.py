"""Mixture of experts: the router, and matmuls grouped by expert."""
