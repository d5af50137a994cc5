"""Weights of a GGUF file: read in longer rows they are the numbers that the package makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from engine.models.gguf_file import in_long_rows, open_gguf

TYPES = [
    GGMLQuantizationType[name]
    for name in (
        "F32",
        "F16",
        "BF16",
        "Q4_0",
        "Q4_1",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q4_K",
        "Q5_K",
        "Q6_K",
    )
]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [1, 24, 96, 256, 49])
def test_longer_rows_are_the_same_numbers(kind: GGMLQuantizationType, rows: int) -> None:
    """Random bytes: numbers that no model has are compared too, as bits."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(rows)
    data = rng.integers(0, 256, (rows, 4 * block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected, found = dequantize(data, kind), dequantize(in_long_rows(data), kind)
    assert np.array_equal(expected.ravel().view(np.uint32), found.ravel().view(np.uint32))


def test_what_is_handed_out_can_be_written_and_leaves_the_file_alone(default_gguf: Path) -> None:
    source = open_gguf(default_gguf)
    tensors = {t.name: t for t in GGUFReader(default_gguf).tensors}
    for name, own in (
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight"),
    ):
        expected = dequantize(np.asarray(tensors[own].data), tensors[own].tensor_type)
        weight = source.get(name)
        assert torch.equal(weight.flatten(), torch.from_numpy(expected.copy()).flatten())
        weight.zero_()
        assert torch.equal(source.get(name).flatten(), torch.from_numpy(expected.copy()).flatten())
