"""How many KV blocks there are, and what is refused before it would be killed."""

from __future__ import annotations

import re

import pytest

from engine.config import EngineConfig
from engine.errors import UserError
from engine.memory import KVSize, block_bytes, check_kv_size, kv_size
from engine.physics.model_spec import ModelSpec

GIB = 1 << 30
# 16 tokens x 2 (K, V) x 30 layers x 3 heads x 64 x 2 bytes: 368,640 bytes a block in bf16.
SMOLLM2 = ModelSpec("smollm2", 30, 576, 1536, 9, 3, 64, 49152, True, 8192)
BLOCK = 368_640


def config(dtype: str = "bf16", kv_dtype: str = "bf16", **more: object) -> EngineConfig:
    return EngineConfig(dtype=dtype, kv_dtype=kv_dtype, **more)  # type: ignore[arg-type]


def test_by_default_the_cache_is_what_its_memory_holds() -> None:
    assert block_bytes(config(), SMOLLM2) == BLOCK
    assert kv_size(config(), SMOLLM2, 8 * GIB) == KVSize(GIB // BLOCK, GIB // BLOCK)
    half = kv_size(config(kv_dtype="fp32"), SMOLLM2, 8 * GIB)
    assert half.capacity == GIB // BLOCK // 2


def test_a_headless_run_has_as_many_blocks_as_it_was_told() -> None:
    assert kv_size(config(kv_blocks=64), SMOLLM2, 8 * GIB) == KVSize(64, 64)
    assert kv_size(config(kv_blocks=5000), SMOLLM2, 8 * GIB) == KVSize(5000, 5000)


def test_a_live_engine_can_offer_more_later() -> None:
    live = config(kv_blocks=64, live=True)
    assert kv_size(live, SMOLLM2, 8 * GIB) == KVSize(GIB // BLOCK, 64)
    tight = round(SMOLLM2.total_params * 2 + 100.5 * BLOCK)
    assert kv_size(live, SMOLLM2, tight) == KVSize(100, 64)
    many = config(kv_blocks=5000, live=True)
    assert kv_size(many, SMOLLM2, 8 * GIB) == KVSize(5000, 5000)


@pytest.mark.parametrize("live", [False, True])
def test_one_block_more_than_fits_is_refused_with_the_arithmetic(live: bool) -> None:
    room = round(SMOLLM2.total_params * 2 + 100.5 * BLOCK)
    assert kv_size(config(kv_blocks=100, live=live), SMOLLM2, room).offered == 100
    with pytest.raises(UserError) as error:
        kv_size(config(kv_blocks=101, live=live), SMOLLM2, room)
    line = str(error.value)
    assert "101 KV blocks of 16 tokens x 23,040 bytes are 37.2 MB, but 37.0 MB" in line
    assert line.endswith("use at most 100 KV blocks")


def test_a_model_that_leaves_no_room_at_all() -> None:
    with pytest.raises(UserError, match="use a smaller model or dtype"):
        kv_size(config(kv_blocks=1), SMOLLM2, 1000)
    with pytest.raises(UserError, match=re.escape("GB of memory are free: use a smaller model")):
        kv_size(config(), SMOLLM2, GIB)


def test_before_the_dtypes_are_known_only_what_certainly_fails_is_refused() -> None:
    """Weights and cache in bf16 fit, in fp32 they would not."""
    room = round(SMOLLM2.total_params * 2 + 100.5 * BLOCK)
    check_kv_size(EngineConfig(kv_blocks=100), SMOLLM2, room)
    with pytest.raises(UserError, match="use at most 100 KV blocks"):
        check_kv_size(EngineConfig(kv_blocks=101), SMOLLM2, room)
    with pytest.raises(UserError, match="of smollm2 in fp32"):
        check_kv_size(EngineConfig(dtype="fp32", kv_blocks=100), SMOLLM2, room)
