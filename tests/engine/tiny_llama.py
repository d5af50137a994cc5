"""Small Llamas of shapes that the vector kernels run, and steps of a runner by hand."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from engine.backends.runner import Runner
from engine.backends.torch_runner import TorchRunner
from engine.batch import Chunk, ScheduledBatch
from engine.models.config import LlamaConfig, config_from_hf
from engine.request import Request
from engine.sequence import Sequence

BLOCK_SIZE = 16
PAD_TOKEN = 3
CONTEXT = 512


@dataclass(frozen=True, slots=True)
class TinyLlama:
    """A model of transformers and its tensors."""

    model: Any
    config: LlamaConfig

    def get(self, name: str) -> Tensor:
        tensor: Tensor = self.model.state_dict()[name]
        return tensor

    @torch.inference_mode()
    def logits(self, tokens: Many[int]) -> Tensor:
        """transformers' own: [tokens, vocab]."""
        found: Tensor = self.model(torch.tensor([tokens])).logits[0]
        return found


# Odd on purpose: vocabularies and rows of q, k, v that fill no panel of 64, widths of one and a
# half panels, groups of 1 to 8 queries for a key.
SHAPES: dict[str, dict[str, Any]] = {
    "grouped, 64, tied": {"heads": 6, "kv_heads": 2, "head_dim": 64, "vocab": 1000, "tied": True},
    "alone, 32, untied": {"heads": 3, "kv_heads": 3, "head_dim": 32, "vocab": 323, "tied": False},
    "one for all, 32, tied": {"heads": 8, "kv_heads": 1, "head_dim": 32, "vocab": 65, "tied": True},
    "wide, 128, untied": {"heads": 4, "kv_heads": 2, "head_dim": 128, "vocab": 64, "tied": False},
}


def tiny_llama(shape: dict[str, Any]) -> TinyLlama:
    """Weights large enough that logits differ by whole numbers, and gains that are not all one."""
    from transformers import LlamaConfig as HFConfig
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    config = HFConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape.get("hidden", 96),
        intermediate_size=shape.get("intermediate", 160),
        num_hidden_layers=2,
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=shape["tied"],
        initializer_range=0.15,
        architectures=["LlamaForCausalLM"],
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
    return TinyLlama(model, config_from_hf("tiny", config.to_dict()))


def make_runner(kernels: str, source: Any, dtype: str, kv_dtype: str, pages: int = 200) -> Runner:
    """kernels: vector or torch."""
    kinds: dict[str, Any] = {"torch": TorchRunner}
    if kernels == "vector":
        from engine.backends.simd_runner import SimdRunner

        kinds["vector"] = SimdRunner
    runner: Runner = kinds[kernels](
        source,
        dtype=dtype,
        kv_dtype=kv_dtype,
        kv_slots=pages * BLOCK_SIZE,
        progress=lambda _: None,
    )
    return runner


def sequence(tokens: Many[int], table: Many[int]) -> Sequence:
    """One that holds these blocks of the cache."""
    made = Sequence(0, Request(tuple(tokens)))
    made.hold(list(table), BLOCK_SIZE)
    made.slot = 0
    return made


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_SIZE)


def step(runner: Runner, *chunks: Chunk) -> Tensor:
    """Logits of the chunks that sample, copied: the next step writes over them."""
    return runner.forward(runner.prepare(ScheduledBatch(list(chunks)), PAD_TOKEN)).float().clone()


def last_logits(
    runner: Runner, tokens: Many[int], cuts: Many[int] = (), table: Many[int] | None = None
) -> Tensor:
    """[vocab] after all tokens, computed in chunks that end at the cuts."""
    held = sequence(tokens, range(blocks_for(len(tokens))) if table is None else table)
    found = torch.empty(0)
    for start, end in pairwise((0, *cuts, len(tokens))):
        found = step(runner, Chunk(held, start, end - start))
    return found[0]


def prompt(config: LlamaConfig, length: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab, (length,), generator=generator).tolist()


def tables(*lengths: int) -> Iterator[list[int]]:
    """Scattered blocks for sequences of these lengths; no block is given twice."""
    count = sum(map(blocks_for, lengths))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(5)).tolist()
    for length in lengths:
        yield [order.pop() for _ in range(blocks_for(length))]
