"""What fits in memory: how many KV blocks there are, and the weights beside them. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import AUTO, EngineConfig
from engine.errors import UserError
from engine.physics.model_spec import DTYPE_BYTES, ModelSpec
from engine.quantisation import resident_dtypes

_LIGHTEST = "bf16"  # of what 'auto' may turn out to be


@dataclass(frozen=True, slots=True)
class KVSize:
    """Blocks that the cache has, and those it offers at the start."""

    capacity: int
    offered: int


def kv_size(config: EngineConfig, spec: ModelSpec, available_bytes: int) -> KVSize:
    """The cache of a config whose dtypes are known (not auto).

    A live engine keeps room for more than it is told to offer, since that can change while it
    runs. Raises UserError unless weights and cache fit, rather than be killed for them later.
    """
    if config.kv_blocks is None:
        blocks = _blocks_of(config, spec, config.kv_memory_bytes)
        _check_model(config, spec, blocks, available_bytes)
        return KVSize(blocks, blocks)
    room_bytes = int(available_bytes - weight_bytes(config, spec))
    _check_blocks(config, spec, config.kv_blocks, room_bytes)
    usual_bytes = min(config.kv_memory_bytes, room_bytes) if config.live else 0
    capacity = max(config.kv_blocks, int(usual_bytes // block_bytes(config, spec)))
    return KVSize(capacity, config.kv_blocks)


def check_kv_size(config: EngineConfig, spec: ModelSpec, available_bytes: int) -> None:
    """Refuse what cannot fit before the dtypes are known. Raises UserError."""
    dtype, kv_dtype = (
        _LIGHTEST if name == AUTO else name for name in (config.dtype, config.kv_dtype)
    )
    kv_size(replace(config, dtype=dtype, kv_dtype=kv_dtype), spec, available_bytes)


def block_bytes(config: EngineConfig, spec: ModelSpec) -> float:
    """One KV block, bytes."""
    return config.block_size * spec.kv_bytes_per_token(DTYPE_BYTES[config.kv_dtype])


def weight_bytes(config: EngineConfig, spec: ModelSpec) -> float:
    """All copies of the weights that stay in memory, bytes."""
    copies = resident_dtypes(config.dtype)
    return sum(spec.total_params * DTYPE_BYTES[dtype] for dtype in copies)


def _blocks_of(config: EngineConfig, spec: ModelSpec, memory_bytes: int) -> int:
    blocks = int(memory_bytes // block_bytes(config, spec))
    if blocks < 1:
        raise UserError(
            f"KV memory of {memory_bytes:,} bytes holds no block of "
            f"{block_bytes(config, spec):,.0f} bytes: give more memory or a smaller block size"
        )
    return blocks


def _check_model(config: EngineConfig, spec: ModelSpec, blocks: int, available_bytes: int) -> None:
    weights, kv = weight_bytes(config, spec), blocks * block_bytes(config, spec)
    if weights + kv > available_bytes:
        raise UserError(
            f"{spec.name} in {config.dtype} needs {_amount(weights)} for its weights and "
            f"{_amount(kv)} for its KV cache, but {_amount(available_bytes)} of "
            "memory are free: use a smaller model or dtype, or free some memory"
        )


def _check_blocks(config: EngineConfig, spec: ModelSpec, blocks: int, room_bytes: int) -> None:
    each = block_bytes(config, spec)
    if blocks * each > room_bytes:
        most = max(0, int(room_bytes // each))
        use = f"use at most {most:,} KV blocks" if most else "use a smaller model or dtype"
        raise UserError(
            f"{blocks:,} KV blocks of {config.block_size} tokens x "
            f"{each / config.block_size:,.0f} bytes are {_amount(blocks * each)}, but "
            f"{_amount(max(0, room_bytes))} of memory are free beside the weights of "
            f"{spec.name} in {config.dtype}: {use}"
        )


def _amount(size_bytes: float) -> str:
    unit, name = (1e9, "GB") if size_bytes >= 1e9 else (1e6, "MB")
    return f"{size_bytes / unit:,.1f} {name}"
