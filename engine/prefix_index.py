"""Which block holds which tokens: the lookup of the prefix cache. Pure bookkeeping, no torch.

A block is known by a digest chained over its own token ids and the digest of the block before it,
so that equal digests mean equal contexts (as in vLLM's automatic prefix caching, Kwon et al. 2023).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

_DIGEST_BYTES = 16


class PrefixIndex:
    """Digests of full blocks of `block_size` tokens, each with the one block that holds it."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._block_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._last: tuple[bytes, list[bytes]] = (b"", [])  # tokens and digests of the last lookup

    def find(self, token_ids: Sequence[int], blocks: int) -> tuple[list[int], list[bytes]]:
        """Of the first `blocks` full blocks of the tokens: those held, up to the first that is not.

        Their blocks and their digests, in order.
        """
        found: list[int] = []
        digests = self._digests(token_ids, blocks)
        for digest in digests:
            block = self._block_of.get(digest)
            if block is None:
                break
            found.append(block)
        return found, digests[: len(found)]

    def _digests(self, token_ids: Sequence[int], blocks: int) -> list[bytes]:
        """A request that waits is looked up at every step: the last result is kept."""
        data = array("q", token_ids[: blocks * self.block_size]).tobytes()
        if self._last[0] != data:
            self._last = (data, self.extend([], token_ids, blocks))
        return self._last[1]

    def extend(self, digests: list[bytes], token_ids: Sequence[int], blocks: int) -> list[bytes]:
        """The digests of blocks len(digests) … blocks - 1, given those of the blocks before."""
        previous = digests[-1] if digests else b""
        edges = range(len(digests) * self.block_size, (blocks + 1) * self.block_size)
        fresh: list[bytes] = []
        for first, last in pairwise(edges[:: self.block_size]):
            tokens = array("q", token_ids[first:last]).tobytes()
            previous = blake2b(previous + tokens, digest_size=_DIGEST_BYTES).digest()
            fresh.append(previous)
        return fresh

    def add(self, block: int, digest: bytes) -> None:
        """The block holds these contents; the first block that does is the one that is shared."""
        if digest not in self._block_of:
            self._block_of[digest] = block
            self._digest_of[block] = digest

    def drop(self, block: int) -> None:
        """The block is about to hold something else."""
        del self._block_of[self._digest_of.pop(block)]

    def clear(self) -> None:
        self._block_of.clear()
        self._digest_of.clear()

    def __contains__(self, block: object) -> bool:
        return block in self._digest_of

    def __len__(self) -> int:
        return len(self._digest_of)

    def consistent(self) -> bool:
        """Whether both directions say the same."""
        return {b: d for d, b in self._block_of.items()} == self._digest_of
