"""Parameter counts against published totals."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from engine.physics.model_spec import ModelSpec, dtype_bytes

SMOLLM2 = ModelSpec("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, True, 8192)
LLAMA3_8B = ModelSpec("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, False, 131072)


def test_smollm2_by_hand() -> None:
    # q and o: 2 · 576 · 576; k and v: 2 · 576 · 192; gate, up, down: 3 · 576 · 1536
    assert SMOLLM2.linear_params == 30 * (663_552 + 221_184 + 2_654_208)
    assert SMOLLM2.head_params == 49152 * 576
    assert SMOLLM2.norm_params == 61 * 576
    assert SMOLLM2.total_params == 134_515_008  # the published count


def test_untied_embeddings_count_twice() -> None:
    assert LLAMA3_8B.total_params == 8_030_261_248  # the published count
    tied = replace(LLAMA3_8B, tied_embeddings=True)
    assert LLAMA3_8B.total_params - tied.total_params == 128256 * 4096


def test_kv_bytes_in_other_dtypes() -> None:
    assert SMOLLM2.kv_bytes_per_token(2) == 23_040
    assert SMOLLM2.kv_bytes_per_token(0.5) == 5_760


@pytest.mark.parametrize("field", ["layers", "hidden", "heads", "kv_heads", "vocab"])
def test_impossible_sizes_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} is 0, use 1 or more"):
        ModelSpec(**{**asdict(SMOLLM2), field: 0})


def test_heads_must_share_kv_heads() -> None:
    with pytest.raises(ValueError, match="9 query heads do not share 2 KV heads"):
        replace(SMOLLM2, kv_heads=2)


def test_unknown_dtype_lists_the_known() -> None:
    with pytest.raises(ValueError, match="'fp7': use one of fp32, bf16"):
        dtype_bytes("fp7")
