"""Sampling in plain torch: what the kernel must give, token for token.

Greedy takes the lowest index among the largest logits. Else the probabilities are softmax(logits /
temperature), top-p keeps the likeliest tokens that hold at least `top_p` of them (Holtzman et al.
2020), and the token is the inverse of the kept tokens' distribution function, in the order of their
indices, at a uniform number. Tokens as likely as the last one kept are kept too, so that no
arbitrary order among equals decides; and the likeliest token always is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.sampling.philox import uniform

GREEDY = 1e-3
"""At and below this temperature the likeliest token is taken."""


def sample(
    logits: Tensor, temperature: Tensor, top_p: Tensor, seeds: Tensor, steps: Tensor
) -> Tensor:
    """logits: [rows, vocab], finite or -inf; temperature, top_p, seeds, steps: [rows] -> int64
    [rows]. The random number of a row is a function of its seed and step only."""
    u = uniform(seeds, steps)
    drawn = sample_at(logits, temperature, top_p, u)
    return torch.where(temperature <= GREEDY, greedy(logits), drawn)


def greedy(logits: Tensor) -> Tensor:
    """The lowest index among the largest logits. [rows, vocab] -> int64 [rows]."""
    largest = logits == logits.amax(-1, keepdim=True)
    return largest.to(torch.uint8).argmax(-1)


def sample_at(logits: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor) -> Tensor:
    """The token at the uniform numbers u [rows] in [0, 1), in float64 -> int64 [rows]."""
    scaled = logits.double() / temperature.double().clamp_min(GREEDY)[:, None]
    kept = nucleus(torch.softmax(scaled, -1), top_p.double())
    reached = kept.cumsum(-1) > (u.double() * kept.sum(-1))[:, None]
    first = (reached & (kept > 0)).to(torch.uint8).argmax(-1)
    return first.to(torch.int64)


def nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Probabilities [rows, vocab] with zero for what top-p [rows] leaves out; not renormalised."""
    ordered = probabilities.sort(-1, descending=True).values
    before = ordered.cumsum(-1) - ordered
    inside = before < top_p[:, None]
    inside[:, 0] = True
    least = torch.where(inside, ordered, torch.inf).amin(-1, keepdim=True)
    everything = (top_p >= 1)[:, None]
    return torch.where((probabilities >= least) | everything, probabilities, 0.0)
