"""Mixture of experts in plain torch: routing, and each token times its experts' weights.

Routing: top-k of a score of each expert (Shazeer et al. 2017), the score being a softmax or, as in
DeepSeek V4, sqrt(softplus(logit)); or, in its first layers, experts from a table by token id.
"""

from __future__ import annotations

import torch
from torch import Tensor

SCORINGS = ("sqrt_softplus", "softmax")


def scores_of(logits: Tensor, scoring: str) -> Tensor:
    """[rows, experts] -> each expert's score. ValueError for an unknown scoring."""
    if scoring == "sqrt_softplus":
        return torch.logaddexp(logits, torch.zeros_like(logits)).sqrt()
    if scoring == "softmax":
        return torch.softmax(logits, -1)
    raise ValueError(unknown(scoring))


def unknown(scoring: str) -> str:
    return f"scoring is {scoring!r}, must be {' or '.join(SCORINGS)}: pass one of those"


def router(
    logits: Tensor, k: int, scoring: str, renormalise: bool, input_tokens: Tensor | None = None,
    hash_indices_table: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """logits: [rows, experts] -> weights, experts and places, each [rows, k].

    Without a table the experts of the k highest logits, the highest first, of equal ones that with
    the lower index; both scores grow with the logit. With input_tokens [rows] and
    hash_indices_table [vocab, k], the experts of the token's row. A place is slot * rows + row.
    """
    rows = logits.shape[0]
    if input_tokens is not None and hash_indices_table is not None:
        indices = hash_indices_table[input_tokens.long()].long()
    else:
        indices = logits.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores_of(logits, scoring).gather(1, indices)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    slots, lines = torch.arange(k)[None, :], torch.arange(rows)[:, None]
    return weights, indices, (slots * rows + lines).to(logits.device, torch.int32)


def sort_by_expert(topk_indices: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """[rows, k] -> order int32 [rows * k] and starts int32 [experts + 1].

    order[starts[e] : starts[e + 1]] are the flat places row * k + slot that chose expert e, in
    their order; places whose index names no expert stand before starts[0] or after the last.
    """
    flat = topk_indices.reshape(-1).long()
    order = flat.sort(stable=True).indices
    edges = torch.arange(experts + 1, device=flat.device)
    starts = torch.searchsorted(flat[order], edges)
    return order.to(torch.int32), starts.to(torch.int32)


def grouped_matmul(
    x: Tensor, weights: Tensor, topk_indices: Tensor, topk_weights: Tensor | None = None
) -> Tensor:
    """x: [rows or rows * k, inner]; weights: [experts, outer, inner]; topk_indices: [rows, k].

    -> [rows * k, outer]: line row * k + slot is x's row (or that line of x) times the weights of
    the expert topk_indices[row, slot], times topk_weights[row, slot] where given.
    """
    rows, k = topk_indices.shape
    lines = x if x.shape[0] == rows * k else x.repeat_interleave(k, 0)
    found = torch.stack(
        [weights[expert] @ line for line, expert in zip(lines, topk_indices.flatten(), strict=True)]
    )
    return found if topk_weights is None else found * topk_weights.reshape(-1, 1)
