"""Packed weights: what a quantised dtype stands for, and that packing loses none of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.linear.pack import (
    INT4_GROUP,
    PANEL,
    dequantised,
    interleave_gates,
    pack,
    quantise_int4,
    quantise_int8,
)
from kernels.simd.memory import LINE_BYTES, Arena
from tests.kernels.oracle import draw

DTYPES = ("fp32", "bf16", "int8", "int4")


def unpacked(weight: Tensor, dtype: str) -> Tensor:
    """float32 [whole panels of outputs, inner] from the packed bytes, one output at a time."""
    packed = pack(weight, dtype, Arena(1 << 20))
    assert packed.data.data_ptr() % LINE_BYTES == 0
    assert packed.panels == -(-len(weight) // PANEL)
    assert packed.panels * packed.panel_bytes == packed.data.numel()
    panels = packed.data.view(packed.panels, packed.panel_bytes)
    outputs = [
        _output(panels[i // PANEL], i % PANEL, weight.shape[1], dtype)
        for i in range(packed.panels * PANEL)
    ]
    found = torch.stack(outputs)
    return found if packed.scales is None else found * packed.scales[:, None]


def _output(panel: Tensor, output: int, inner: int, dtype: str) -> Tensor:
    if dtype == "fp32":
        return panel.view(torch.float32).view(inner, PANEL)[:, output]
    if dtype == "int8":
        return panel.view(torch.int8).view(inner, PANEL)[:, output].float()
    if dtype == "bf16":
        return panel.view(torch.bfloat16).view(inner // 2, PANEL, 2)[:, output].float().reshape(-1)
    records = panel.view(inner // INT4_GROUP, -1)
    return torch.cat([_int4_group(record, output) for record in records])


def _int4_group(record: Tensor, output: int) -> Tensor:
    """64 scales, 64 minima, then for each 8 inputs 64 pairs of 16 bits: even and odd inputs."""
    head = record[: 4 * PANEL].view(torch.float16).float()
    lanes = record[4 * PANEL :].view(torch.uint16).view(INT4_GROUP // 8, PANEL, 2)[:, output].int()
    nibbles = torch.stack([(lanes >> (4 * place)) & 15 for place in range(4)], 1)
    return nibbles.reshape(-1) * head[output] + head[PANEL + output]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outer", "inner"), [(64, 32), (1, 32), (65, 96), (128, 64)])
def test_packing_keeps_every_weight_and_fills_up_with_zeros(
    dtype: str, outer: int, inner: int
) -> None:
    weight = draw(outer, inner)
    found = unpacked(weight, dtype)
    assert torch.equal(found[:outer], dequantised(weight, dtype))
    assert not found[outer:].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dequantising_twice_changes_little_more(dtype: str) -> None:
    """The bfloat16 copies of a quantised model are made of what was dequantised."""
    once = dequantised(draw(64, 96), dtype)
    again = dequantised(once, dtype)
    assert (again - once).abs().max().item() <= 2e-3 * once.abs().max().item()


def test_int8_is_within_half_a_step() -> None:
    weight = draw(70, 64) * torch.logspace(-8, 8, 70)[:, None]
    q, scales = quantise_int8(weight)
    assert q.abs().amax(1).eq(127).all()  # each output uses its whole range
    off = (q.double() * scales.double()[:, None] - weight.double()).abs()
    assert bool((off <= 0.5001 * scales.double()[:, None]).all())


def test_int8_of_an_output_without_weights_is_zero() -> None:
    assert not dequantised(torch.zeros(3, 32), "int8").any()


def test_int4_is_within_half_a_step() -> None:
    weight = draw(70, 96)
    groups = weight.view(70, -1, INT4_GROUP)
    step = (groups.amax(-1) - groups.amin(-1)) / 15
    off = (dequantised(weight, "int4") - weight).view_as(groups).abs().amax(-1)
    assert bool((off <= 0.51 * step + 2e-3).all())  # scale and minimum are in half precision


def test_int4_finds_weights_of_q4_1_again() -> None:
    """A GGUF's Q4_1 is a scale and a minimum in half precision for each 32 weights.

    Its levels are found again whenever a group uses both ends of its range, as a quantiser makes
    them; up to half precision, which may round the scale the other way.
    """
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 16, (64, 6, INT4_GROUP), generator=generator)
    levels[..., 0], levels[..., 7] = 0, 15
    scale = (torch.rand(64, 6, generator=generator) * 0.02 + 0.001).half()
    minimum = (-torch.rand(64, 6, generator=generator) * 0.2).half()
    weight = levels * scale.float()[..., None] + minimum.float()[..., None]
    found, found_scale, found_minimum = quantise_int4(weight.view(64, -1))
    assert torch.equal(found.int(), levels.int())
    assert torch.equal(found_minimum, minimum)
    assert torch.equal(found_scale, scale)
    assert torch.equal(dequantised(weight.view(64, -1), "int4"), weight.view(64, -1))


def test_int4_of_equal_weights_is_exact() -> None:
    weight = torch.full((3, 64), 0.25)
    assert torch.equal(dequantised(weight, "int4"), weight)


def test_gates_lie_beside_their_ups() -> None:
    gate, up = draw(96, 64), draw(96, 64, seed=1)
    both = interleave_gates(gate, up)
    for i in range(96):
        at = i // 32 * PANEL + i % 32
        assert torch.equal(both[at], gate[i])
        assert torch.equal(both[at + 32], up[i])


def test_another_dtype_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="cannot pack weights as fp8: use one of fp32, bf16, int8"):
        pack(draw(64, 32), "fp8", Arena(1 << 20))
