"""Chunked prefill (Agrawal et al. 2023, SARATHI): prompts run in pieces beside the decodes."""

from __future__ import annotations

from engine.schedulers.continuous import ContinuousScheduler


class ChunkedScheduler(ContinuousScheduler):
    """Continuous with a token budget per step, so that a long prompt cannot stall the decodes.

    Decodes are never cut; prompts get what is left of the budget, but at least one token, first
    come, first served. Decodes are those that run when the step is planned: one that then has to
    give way leaves its token unused.
    """

    name = "chunked"

    def _prefill_room(self, decodes: int) -> int:
        return max(1, self.queue.chunk_tokens - decodes)
