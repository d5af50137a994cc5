"""Grouped-query attention (Ainslie et al. 2023): each KV head serves as many query heads."""

from kernels.contract import Rule

WHOLE_GROUPS = Rule(
    "there are {heads} query heads, must be a multiple of the {kv_heads} KV heads: "
    "check the model's config",
    lambda sizes, given: sizes["heads"] % sizes["kv_heads"] == 0,
)
