"""An 8B shape with random weights end to end: the engine's model, decode state and CUDA graphs.

Without the scheduler and without what only reads files, so that stock Python is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from engine.backends.cuda_graphs import DecodeGraphs
from engine.backends.decode_state import DecodeState
from engine.backends.triton_model import Rows, TritonModel
from engine.models.config import LlamaConfig
from kernels.attention.triton_impl import paged_prefill
from kernels.sampling.triton_impl import sample
from telemetry.clock import now_ns, seconds
from tests.gpu.measure import Bench
from tests.gpu.sections import Row

BLOCK = 16
BATCHES = (1, 8, 64, 256)
PROMPTS = (128, 1024, 8192)
_CONTEXT = 1024
_STEPS = 20

Run = Callable[[int], object]


def rows(bench: Bench) -> Iterator[Row]:
    config = _config(bench)
    model = TritonModel(config, partial(_weight, bench, config), _dtype(bench), bench.device, _make)
    batches = (2,) if bench.rehearsal else BATCHES
    prompts = (20,) if bench.rehearsal else PROMPTS
    context = bench.pick(_CONTEXT, 20)
    width = -(-(context + 4 * _STEPS) // BLOCK)  # each run of a step makes the contexts one longer
    state = DecodeState(batches[-1], width, BLOCK, bench.device)
    shape = (config.layers, batches[-1] * width * BLOCK, 2, config.kv_heads, config.head_dim)
    cache = torch.zeros(shape, dtype=_dtype(bench), device=bench.device)
    yield from _decodes(bench, model, state, cache, batches, context)
    for prompt in prompts:
        yield _prompt(bench, model, cache, prompt)


def _decodes(
    bench: Bench, model: TritonModel, state: DecodeState, cache: Tensor,
    batches: tuple[int, ...], context: int,
) -> Iterator[Row]:  # fmt: skip
    def step(size: int) -> tuple[Tensor, Tensor]:
        logits = model.forward(state.rows(size), cache, partial(state.attend, size))
        how = state.sampling(size)
        tokens = sample(logits, how.temperature, how.top_p, how.seeds, how.steps)
        state.advance(size, tokens)
        return logits, tokens

    run: Run = step if bench.rehearsal else DecodeGraphs(step, list(batches))
    for batch in batches:
        _fill(state, batch, context)
        yield _decode(bench, model.config, run, batch, context)


def _fill(state: DecodeState, batch: int, context: int) -> None:
    """Sequences at one context, each with blocks of its own."""
    width = state.tables.shape[1]
    blocks = torch.randperm(batch * width, device=state.tables.device).to(torch.int32)
    state.tables[:batch].copy_(blocks.view(batch, width))
    state.columns["contexts"][:batch] = context
    state.columns["positions"][:batch] = context - 1
    state.columns["temperature"].fill_(0.8)
    state.columns["top_p"].fill_(0.9)


def _decode(bench: Bench, config: LlamaConfig, run: Run, batch: int, context: int) -> Row:
    """seconds: on the device; host_s: a step as the host sees it, each waited for."""
    time_s = bench.seconds(lambda: run(batch), _STEPS)
    wall_s = None if bench.rehearsal else _waited(run, batch)
    read = _matrix_elements(config) - config.vocab * config.hidden  # of the embedding, rows only
    keys = batch * context * 2 * config.layers * config.kv_heads * config.head_dim
    return {
        "name": "decode step",
        "shape": f"batch {batch}, context {context}",
        "seconds": time_s,
        "bytes": 2 * (read + keys),
        "flops": 2 * batch * read,
        "host_s": wall_s,
        "host_gap": 1 - time_s / wall_s if time_s and wall_s else None,
        "tokens_per_s": batch / wall_s if wall_s else None,
    }


def _waited(run: Run, batch: int) -> float:
    torch.cuda.synchronize()
    begun = now_ns()
    for _ in range(_STEPS):
        run(batch)
        torch.cuda.synchronize()
    return seconds(now_ns() - begun) / _STEPS


def _prompt(bench: Bench, model: TritonModel, cache: Tensor, tokens: int) -> Row:
    config, device = model.config, bench.device
    places = torch.arange(tokens, dtype=torch.int32, device=device)
    last = torch.tensor([tokens - 1], device=device)
    fed = Rows(places.long() % config.vocab, places, places, last)
    width = -(-tokens // BLOCK)
    table = torch.arange(width, dtype=torch.int32, device=device)[None]
    starts, contexts = (
        torch.tensor(v, dtype=torch.int32, device=device) for v in ([0, tokens], [tokens])
    )

    def attend(q: Tensor, layer: Tensor) -> Tensor:
        return paged_prefill(q, layer, table, starts, contexts, BLOCK)

    time_s = bench.seconds(lambda: model.forward(fed, cache, attend), 5)
    layers = _matrix_elements(config) - 2 * config.vocab * config.hidden
    attention = 2 * tokens * (tokens + 1) * config.heads * config.head_dim * config.layers
    return {
        "name": "prefill step",
        "shape": f"{tokens} tokens",
        "seconds": time_s,
        "bytes": 2 * (layers + config.vocab * config.hidden),
        "flops": 2 * tokens * layers + 2 * config.vocab * config.hidden + attention,
    }


def _matrix_elements(c: LlamaConfig) -> int:
    """Of all matrices, the embedding and the head included."""
    attention = c.hidden * c.head_dim * (2 * c.heads + 2 * c.kv_heads)
    return c.layers * (attention + 3 * c.hidden * c.intermediate) + 2 * c.vocab * c.hidden


def _config(bench: Bench) -> LlamaConfig:
    """Llama 3.1 8B's sizes (its config.json), or a tiny shape with odd ones."""
    tiny = bench.rehearsal
    return LlamaConfig(
        name="8B shape", layers=2 if tiny else 32, hidden=96 if tiny else 4096,
        intermediate=80 if tiny else 14336, heads=6 if tiny else 32, kv_heads=2 if tiny else 8,
        head_dim=32 if tiny else 128, vocab=101 if tiny else 128_256,
        max_context=64 if tiny else 8192, rope_theta=500_000.0, rms_norm_eps=1e-5,
        tied_embeddings=False,
    )  # fmt: skip


def _weight(bench: Bench, c: LlamaConfig, name: str) -> Tensor:
    """A random tensor by its Hugging Face name; gains are ones."""
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes = {
        "embed_tokens": (c.vocab, c.hidden), "lm_head": (c.vocab, c.hidden),
        "q_proj": (queries, c.hidden), "k_proj": (keys, c.hidden), "v_proj": (keys, c.hidden),
        "o_proj": (c.hidden, queries), "gate_proj": (c.intermediate, c.hidden),
        "up_proj": (c.intermediate, c.hidden), "down_proj": (c.hidden, c.intermediate),
    }  # fmt: skip
    shape = shapes.get(name.split(".")[-2])
    if shape is None:
        return torch.ones(c.hidden, dtype=_dtype(bench), device=bench.device)
    return bench.random(*shape, dtype=_dtype(bench)).mul_(shape[1] ** -0.5)


def _dtype(bench: Bench) -> torch.dtype:
    return torch.float32 if bench.rehearsal else torch.bfloat16


def _make(weight: Tensor, use: str) -> partial[Tensor]:
    return partial(torch.nn.functional.linear, weight=weight)
