"""Mixture of experts: the router, and matmuls grouped by expert.

This file imports nothing: the dashboard's server, which has no torch, reads the router's contract.
"""
