"""What can ever run: checks of a request and of the KV blocks offered, with the arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

from engine.block_manager import BlockManager
from engine.errors import UserError
from engine.physics.model_spec import ModelSpec
from engine.request import Request, RequestError
from engine.sequence import Sequence


def check_request(request: Request, spec: ModelSpec, blocks: BlockManager) -> None:
    """Raise RequestError for a request that context or KV blocks can never hold."""
    prompt, longest = len(request.prompt_token_ids), request.sampling.max_tokens
    if not prompt:
        raise RequestError("the prompt is empty: give at least one token")
    if prompt + longest > spec.max_context:
        raise RequestError(
            f"prompt of {prompt} tokens + {longest} to generate = {prompt + longest}, but the "
            f"model's context is {spec.max_context}: shorten the prompt or ask for fewer tokens"
        )
    if not blocks.can_ever_fit(prompt + longest):
        raise RequestError(
            f"prompt of {prompt} tokens + {longest} to generate need "
            f"{blocks.blocks_for(prompt + longest)} KV blocks of {blocks.block_size}, but "
            f"{_offer(blocks)}"
        )


def _offer(blocks: BlockManager) -> str:
    shorter = "shorten the prompt"
    if blocks.num_blocks < blocks.capacity:
        return (
            f"{blocks.num_blocks} of the cache's {blocks.capacity} are offered: {shorter} or "
            "offer more"
        )
    return f"the cache has {blocks.num_blocks}: {shorter} or give the cache more memory"


def check_kv_blocks(offer: int, blocks: BlockManager, live: Iterable[Sequence]) -> None:
    """Raise UserError unless the cache can offer so many blocks, and no live request needs more."""
    if not 1 <= offer <= blocks.capacity:
        raise UserError(
            f"KV blocks is {offer}: use 1 to {blocks.capacity}, the blocks of {blocks.block_size} "
            "tokens that the cache has"
        )
    longest = max(live, key=lambda s: s.max_tokens_total, default=None)
    need = 0 if longest is None else blocks.blocks_for(longest.max_tokens_total)
    if longest is not None and need > offer:
        raise UserError(
            f"KV blocks is {offer}, but request {longest.request_id} (prompt of "
            f"{longest.prompt_tokens} tokens + {longest.request.sampling.max_tokens} to generate) "
            f"needs {need} of {blocks.block_size}: use {need} to {blocks.capacity}, or wait for it "
            "to end"
        )
