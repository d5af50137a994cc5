"""Rotary position embedding."""

from kernels.rope.reference import RopeScaling, apply_rope_, rope_tables

__all__ = ["RopeScaling", "apply_rope_", "rope_tables"]
