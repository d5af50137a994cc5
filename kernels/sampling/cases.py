"""Sampling against its reference: the very token for the same uniform number.

Rows of a case mix greedy, temperature and top-p; bf16 logits tie, -inf logits are never taken.
Where top_p or the uniform number falls within 1e-5 of a token's edge, either neighbour is right.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels.checking.case import Case, Values
from kernels.sampling.philox import uniform
from kernels.sampling.reference import GREEDY, sample, sample_at
from kernels.sampling.tiles import Kind

SHAPES = ((2, 33), (6, 1003))
LARGE = 49152
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EDGE = 1e-5
_ARGUMENTS = ("temperature", "top_p", "seeds", "steps")


def cases() -> list[Case]:
    small = [_case(dtype, rows, vocab, "top_p") for dtype in DTYPES for rows, vocab in SHAPES]
    large = [_case(torch.bfloat16, 2, LARGE, "top_p"), _case(torch.float32, 1, LARGE, "top_p")]
    plain: list[Kind] = ["greedy", "temperature"]
    return [*small, *large, *(_case(torch.bfloat16, 5, 1003, kind) for kind in plain)]


def _case(dtype: torch.dtype, rows: int, vocab: int, kind: Kind) -> Case:
    return Case(
        "sample",
        dtype,
        f"{rows} x {vocab}, at most {kind}",
        1,
        partial(_inputs, dtype, rows, vocab, kind),
        lambda values: {"out": torch.full_like(values["seeds"], -1)},
        partial(_run, kind),
        lambda values, initial: {"out": _expected(values, kind)},
        partial(_ties, kind),
    )


def _inputs(
    dtype: torch.dtype, rows: int, vocab: int, kind: Kind, generator: torch.Generator,
    device: torch.device,
) -> Values:  # fmt: skip
    """A slice of wider rows. What "greedy" and "temperature" ignore is set all the same."""
    logits = 3 * torch.randn(rows, vocab + 7, generator=generator, device=device)
    logits[:, 5:9] = -torch.inf
    draw = partial(torch.rand, rows, generator=generator, device=device)
    temperature, top_p = draw() * 1.5 + 0.3, draw()
    temperature[::4] = 0.3 if kind == "temperature" else 0.0
    top_p[3::4], top_p[2::8] = 1.0, 0.0
    whole = partial(torch.randint, size=(rows,), generator=generator, device=device)
    return {
        "logits": logits.to(dtype)[:, :vocab],
        "temperature": temperature,
        "top_p": top_p,
        "seeds": whole(-(2**62), 2**62),
        "steps": whole(0, 2**31 - 1).to(torch.int32),
    }


def _run(kind: Kind, values: Values, out: Values) -> None:
    from kernels.sampling.triton_impl import sample as kernel

    temperature, top_p, seeds, steps = (values[name] for name in _ARGUMENTS)
    kernel(values["logits"], temperature, top_p, seeds, steps, out["out"], kind)


def _asked(values: Values, kind: Kind) -> tuple[Tensor, Tensor]:
    """temperature and top_p with what `kind` ignores taken away."""
    temperature, top_p = values["temperature"], values["top_p"]
    if kind == "top_p":
        return temperature, top_p
    greedy = torch.zeros_like(temperature)
    return greedy if kind == "greedy" else temperature, torch.ones_like(top_p)


def _expected(values: Values, kind: Kind) -> Tensor:
    return sample(values["logits"], *_asked(values, kind), values["seeds"], values["steps"])


def _ties(kind: Kind, values: Values, found: Values, expected: Values) -> bool:
    """Whether every token is one that a shift by EDGE of top_p and of the number gives."""
    temperature, top_p = _asked(values, kind)
    u = uniform(values["seeds"], values["steps"])
    right = found["out"] == expected["out"]
    for shift in (-EDGE, 0.0, EDGE):
        for cut in (-EDGE, 0.0, EDGE):
            cut_at = torch.where(top_p < 1, (top_p.double() + cut).clamp(0, 1), top_p.double())
            near = sample_at(values["logits"], temperature, cut_at, u.double() + shift)
            right |= (found["out"] == near) & (temperature > GREEDY)
    return bool(right.all())
