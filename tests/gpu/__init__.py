"""The check on a real GPU: see check.py."""
