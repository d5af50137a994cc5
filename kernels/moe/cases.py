"""Routers of few and of many experts, by score and by table; experts with no token, or most."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.checking.case import Case, Values
from kernels.moe import reference

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_VOCAB = 50
_HASH = ("input_tokens", "hash_indices_table")


@dataclass(frozen=True, slots=True)
class Routing:
    """One way of routing. hashed: the experts come from a table by token id."""

    rows: int
    experts: int
    k: int
    scoring: str
    renormalise: bool
    indices: torch.dtype = torch.int64
    hashed: bool = False

    def label(self) -> str:
        how = f"{self.scoring}{', renormalised' if self.renormalise else ''}"
        how += ", by token id" if self.hashed else ""
        return f"{self.rows} rows, {self.k} of {self.experts}, {how}, {str(self.indices)[6:]}"


@dataclass(frozen=True, slots=True)
class Grouping:
    """crowded: every place goes to the first two experts, the others have none."""

    rows: int
    experts: int
    k: int
    inner: int
    outer: int
    scaled: bool = False
    crowded: bool = False
    indices: torch.dtype = torch.int64

    def label(self) -> str:
        what = f"{self.rows} rows x {self.k} of {self.experts}, {self.inner} -> {self.outer}"
        what += ", scaled, a row a slot" if self.scaled else ""
        return what + (", two experts only" if self.crowded else "")


ROUTINGS = (
    Routing(7, 8, 2, "softmax", renormalise=True),
    Routing(3, 256, 8, "sqrt_softplus", renormalise=True),
    Routing(5, 60, 6, "sqrt_softplus", renormalise=False, indices=torch.int32),
    Routing(4, 385, 6, "softmax", renormalise=False),
    Routing(6, 100, 6, "sqrt_softplus", renormalise=True, hashed=True),
    Routing(5, 33, 3, "softmax", renormalise=True, indices=torch.int32, hashed=True),
)
GROUPINGS = (
    Grouping(1, 8, 2, 64, 33),
    Grouping(13, 5, 3, 100, 70),
    Grouping(6, 7, 2, 72, 129, scaled=True, indices=torch.int32),
    Grouping(130, 4, 1, 80, 48, crowded=True),
    Grouping(150, 1, 1, 64, 40),
)


def cases() -> list[Case]:
    routers = [_router(dtype, routing) for dtype in FLOATS for routing in ROUTINGS]
    matmuls = [_grouped(dtype, grouping) for dtype in FLOATS for grouping in GROUPINGS]
    return [*routers, *matmuls, *(_order(grouping) for grouping in GROUPINGS[1:4])]


# --- router ---


def _router(dtype: torch.dtype, routing: Routing) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        shape = (routing.rows, routing.experts)
        logits = 3 * torch.randn(shape, generator=generator, device=device)
        found: Values = {"logits": logits.to(dtype)}
        return {**found, **_hash_inputs(routing, generator, device)} if routing.hashed else found

    def run(values: Values, out: Values) -> None:
        from kernels.moe.triton_impl import router

        hashed = {name: values[name] for name in _HASH if name in values}
        router(values["logits"], routing.k, routing.scoring, routing.renormalise, **out, **hashed)

    def expected(values: Values, initial: Values) -> Values:
        how = (routing.k, routing.scoring, routing.renormalise)
        found = reference.router(values["logits"], *how, *(values.get(name) for name in _HASH))
        names = ("topk_weights", "topk_indices", "token_expert_indices")
        return dict(zip(names, found, strict=True))

    return Case(
        op="router",
        dtype=dtype,
        shape=routing.label(),
        reduced=routing.experts,
        inputs=inputs,
        outputs=lambda values: _router_outputs(routing, values["logits"].device),
        run=run,
        reference=expected,
    )


def _hash_inputs(routing: Routing, generator: torch.Generator, device: torch.device) -> Values:
    """Each token's row of the table names k different experts."""
    lots = torch.rand(_VOCAB, routing.experts, generator=generator, device=device)
    tokens = torch.randint(_VOCAB, (routing.rows,), generator=generator, device=device)
    return {
        "input_tokens": tokens.to(routing.indices),
        "hash_indices_table": lots.argsort(1)[:, : routing.k].to(routing.indices).contiguous(),
    }


def _router_outputs(routing: Routing, device: torch.device) -> Values:
    shape = (routing.rows, routing.k)
    return {
        "topk_weights": torch.full(shape, float("nan"), device=device),
        "topk_indices": torch.full(shape, -1, dtype=routing.indices, device=device),
        "token_expert_indices": torch.full(shape, -1, dtype=torch.int32, device=device),
    }


# --- experts' matmul ---


def _grouped(dtype: torch.dtype, grouping: Grouping) -> Case:
    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        return _grouped_inputs(grouping, dtype, generator, device)

    def outputs(values: Values) -> Values:
        shape = (grouping.rows * grouping.k, grouping.outer)
        nan, device = float("nan"), values["x"].device
        return {"out": torch.full(shape, nan, dtype=dtype, device=device)}

    def run(values: Values, out: Values) -> None:
        from kernels.moe.triton_impl import grouped_matmul

        grouped_matmul(**values, out=out["out"])

    return Case(
        op="grouped_matmul",
        dtype=dtype,
        shape=grouping.label(),
        reduced=grouping.inner,
        inputs=inputs,
        outputs=outputs,
        run=run,
        reference=lambda values, initial: {"out": reference.grouped_matmul(**values)},
    )


def _grouped_inputs(
    grouping: Grouping, dtype: torch.dtype, generator: torch.Generator, device: torch.device
) -> Values:
    rows = grouping.rows * (grouping.k if grouping.scaled else 1)
    shapes = ((rows, grouping.inner), (grouping.experts, grouping.outer, grouping.inner))
    x, weights = (torch.randn(*shape, generator=generator, device=device) for shape in shapes)
    found = {"x": x.to(dtype), "weights": weights.to(dtype)}
    found["topk_indices"] = _choices(grouping, generator, device)
    if grouping.scaled:
        shape = (grouping.rows, grouping.k)
        found["topk_weights"] = torch.rand(shape, generator=generator, device=device)
    return found


def _choices(
    grouping: Grouping, generator: torch.Generator, device: torch.device
) -> torch.Tensor:  # fmt: skip
    """k different experts of each row."""
    experts = min(grouping.experts, 2) if grouping.crowded else grouping.experts
    lots = torch.rand(grouping.rows, experts, generator=generator, device=device)
    return lots.argsort(1)[:, : grouping.k].to(grouping.indices).contiguous()


def _order(grouping: Grouping) -> Case:
    """The sorting alone; whatever the floats are, it moves integers."""

    def inputs(generator: torch.Generator, device: torch.device) -> Values:
        return {"topk_indices": _choices(grouping, generator, device)}

    def outputs(values: Values) -> Values:
        places, device = grouping.rows * grouping.k, values["topk_indices"].device
        sizes = {"order": places, "starts": grouping.experts + 1}
        return {
            name: torch.full((size,), -1, dtype=torch.int32, device=device)
            for name, size in sizes.items()
        }

    def run(values: Values, out: Values) -> None:
        from kernels.moe.triton_impl import sort_by_expert

        sort_by_expert(values["topk_indices"], grouping.experts, **out)

    def expected(values: Values, initial: Values) -> Values:
        found = reference.sort_by_expert(values["topk_indices"], grouping.experts)
        return dict(zip(("order", "starts"), found, strict=True))

    return Case(
        op="grouped_matmul",
        dtype=torch.float32,
        shape=f"order by expert, {grouping.label()}",
        reduced=1,
        inputs=inputs,
        outputs=outputs,
        run=run,
        reference=expected,
    )
