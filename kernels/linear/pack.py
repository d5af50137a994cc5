"""Weights laid out for the vector tiles: panels of 64 outputs in the order they are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernels.simd.memory import Arena

PANEL = 64
INT4_GROUP = 32
INT4_LEVELS = 15
INT8_LEVELS = 127


@dataclass(frozen=True, slots=True)
class Packed:
    """data: bytes at a cache line; panel_bytes: of 64 outputs; scales: of int8, float32."""

    dtype: str
    data: Tensor
    panels: int
    inner: int
    panel_bytes: int
    scales: Tensor | None = None


def pack(weight: Tensor, dtype: str, arena: Arena) -> Packed:
    """weight: [out, in], dtype fp32, bf16, int8 or int4; `in` a multiple of 32.

    Outputs are filled up with zeros to a multiple of 64. ValueError for another dtype.
    """
    if dtype not in _PACKERS:
        raise ValueError(f"cannot pack weights as {dtype}: use one of {', '.join(_PACKERS)}")
    out, inner = weight.shape
    rows = -(-out // PANEL) * PANEL
    filled = weight.float().contiguous() if rows == out else _filled(weight, rows)
    data, scales = _PACKERS[dtype](filled)
    flat = _placed(data, arena)
    panels = rows // PANEL
    return Packed(dtype, flat, panels, inner, flat.numel() // panels, scales)


def _filled(weight: Tensor, rows: int) -> Tensor:
    filled = torch.zeros(rows, weight.shape[1], dtype=torch.float32)
    filled[: weight.shape[0]] = weight
    return filled


def interleave_gates(gate: Tensor, up: Tensor) -> Tensor:
    """[n, in] each -> [2 n, in]: 32 gates, then the 32 ups that they multiply. n: 32's multiple."""
    n, inner = gate.shape
    half = PANEL // 2
    pairs = torch.stack([gate.view(n // half, half, inner), up.view(n // half, half, inner)], 1)
    return pairs.reshape(2 * n, inner)


def quantise_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric, one scale an output: int8 [out, in] and float32 [out]; weight is about q * s."""
    scales = weight.abs().amax(1).clamp_min(1e-12) / INT8_LEVELS
    return (weight / scales[:, None]).round().to(torch.int8), scales


def quantise_int4(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups of 32 inputs with a scale and a minimum, as GGUF's Q4_1.

    -> uint8 [out, groups, 32] in 0..15; float16 [out, groups] scales and minima; weight is about
    q * scale + minimum. Weights that come from Q4_1 are found again exactly, up to float16.
    """
    groups = weight.view(weight.shape[0], -1, INT4_GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale, minimum = ((high - low) / INT4_LEVELS).half(), low.half()
    safe = torch.where(scale > 0, scale.float(), 1.0)
    q = ((groups - minimum.float()[..., None]) / safe[..., None]).round().clamp(0, INT4_LEVELS)
    return q.to(torch.uint8), scale, minimum


def dequantised(weight: Tensor, dtype: str) -> Tensor:
    """The float32 weights that a quantised dtype stands for; others are rounded to themselves."""
    if dtype == "int8":
        q, scales = quantise_int8(weight)
        return q.float() * scales[:, None]
    if dtype == "int4":
        levels, scale, minimum = quantise_int4(weight)
        return (levels * scale.float()[..., None] + minimum.float()[..., None]).view(weight.shape)
    return weight.to({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]).float()


def _pack_fp32(weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """[panel, in, 64]."""
    return weight.view(-1, PANEL, weight.shape[1]).transpose(1, 2), None


def _pack_bf16(weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """[panel, in / 2, 64]: pairs of inputs, as VDPBF16PS takes them, each a number of 32 bits."""
    pairs = weight.bfloat16().view(torch.int32).view(-1, PANEL, weight.shape[1] // 2)
    return pairs.transpose(1, 2), None


def _pack_int8(weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """[panel, in, 64]."""
    q, scales = quantise_int8(weight)
    return q.view(-1, PANEL, weight.shape[1]).transpose(1, 2), scales


def _pack_int4(weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """[panel, group] records: 64 scales, 64 minima, nibbles [8 inputs' step, 64 outputs, pair].

    The 16-bit lane of (output, parity) holds inputs parity, parity + 2, + 4 and + 6 of its step,
    lowest bits first.
    """
    q, scale, minimum = quantise_int4(weight)
    panels, groups = weight.shape[0] // PANEL, q.shape[1]
    # [panel, 64, group, step, place in lane, parity]
    split = q.view(panels, PANEL, groups, INT4_GROUP // 8, 4, 2).to(torch.int32)
    lanes = sum(split[..., place, :] << (4 * place) for place in range(4))
    assert isinstance(lanes, Tensor)
    words = lanes.permute(0, 2, 3, 1, 4).to(torch.int32)  # [panel, group, step, 64, parity]
    nibbles = torch.from_numpy(words.numpy().astype(np.uint16).view(np.uint8).copy())
    nibbles = nibbles.view(panels, groups, -1)
    head = [
        part.view(panels, PANEL, groups).transpose(1, 2).contiguous().view(torch.uint8)
        for part in (scale, minimum)
    ]
    return torch.cat([*head, nibbles], -1), None


_PACKERS = {"fp32": _pack_fp32, "bf16": _pack_bf16, "int8": _pack_int8, "int4": _pack_int4}


def _placed(data: Tensor, arena: Arena) -> Tensor:
    """The same numbers, as bytes, where a vector load never touches two cache lines."""
    place = torch.from_numpy(arena.take(data.numel() * data.element_size()))
    place.view(data.dtype).view(data.shape).copy_(data)
    return place
