"""What a dtype costs in quality: perplexity of a text, and how far its distributions stray.

The text is forced through the engine's own decode path (teacher forcing), several pieces in one
batch, so that whatever decodes is what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.bench.driver import EngineDriver
from engine.batch import ScheduledBatch, StepOutput

PIECES = 4  # one of the batches at which int8 and int4 really run
_CHUNK_ROWS = 256


class ForcedSampler:
    """In front of a backend: keeps the logits of every sampled row and says what comes next.

    pieces: by index of the request, in order of submission, the tokens of its text.
    """

    def __init__(self, backend: Any, pieces: Sequence[Sequence[int]], first_id: int) -> None:
        self._backend, self._pieces, self._first_id = backend, pieces, first_id
        self.rows: dict[tuple[int, int], Tensor] = {}  # (piece, position predicted) -> log-probs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def sample(self, batch: ScheduledBatch, logits: Tensor) -> StepOutput:
        """The text's own next token of every piece, whatever the model would say."""
        sequences = [c.sequence for c in batch.chunks if c.samples]
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        out = []
        for row, sequence in enumerate(sequences):
            piece, position = sequence.request_id - self._first_id, len(sequence.token_ids)
            self.rows[piece, position] = log_probs[row].clone()
            out.append(self._pieces[piece][position])
        return StepOutput(out)


def forced_log_probs(driver: EngineDriver, pieces: list[list[int]]) -> Tensor:
    """[tokens predicted, vocab], float32: every piece from its second token on, in order."""
    engine = driver.engine
    backend, first_id = engine.backend, driver.next_request_id
    forced: Any = ForcedSampler(backend, pieces, first_id)
    engine.backend = forced
    try:
        driver.generate([p[:1] for p in pieces], [len(p) - 1 for p in pieces])
    finally:
        engine.backend = backend
    return torch.stack([forced.rows[key] for key in sorted(forced.rows)])


def perplexity(log_probs: Tensor, targets: Tensor) -> float:
    """exp of the mean negative log-likelihood. log_probs: [n, vocab], targets: [n]."""
    picked = log_probs.gather(1, targets[:, None]).double()
    return float(torch.exp(-picked.mean()))


def mean_kl(reference: Tensor, other: Tensor) -> float:
    """Mean KL(reference || other) of distributions given as log-probabilities [n, vocab], nats."""
    total = 0.0
    for first in range(0, len(reference), _CHUNK_ROWS):
        pieces = (t[first : first + _CHUNK_ROWS].double() for t in (reference, other))
        # Once more, since float32's rounding leaves sums a little beside 1.
        p, q = (torch.log_softmax(piece, dim=-1) for piece in pieces)
        total += float((p.exp() * (p - q)).sum())
    return total / len(reference)


def text_pieces(token_ids: list[int], length: int) -> list[list[int]]:
    """PIECES pieces of `length` tokens, one after the other; shorter where the text is."""
    length = min(length, len(token_ids) // PIECES)
    return [token_ids[i * length : (i + 1) * length] for i in range(PIECES)]


def measure_quality(
    driver: EngineDriver, text: str, length: int, reference: Path, *, write: bool
) -> dict[str, Any]:
    """Perplexity, and mean KL to the distributions in `reference`, which `write` makes."""
    pieces = text_pieces(driver.built.tokenizer.encode(text), length)
    found = forced_log_probs(driver, pieces)
    targets = torch.tensor([token for piece in pieces for token in piece[1:]])
    if write:
        np.save(reference, found.numpy())
    base: NDArray[np.float32] = np.load(reference, mmap_mode="c")
    return {
        "tokens": len(targets),
        "perplexity": perplexity(found, targets),
        "mean_kl": 0.0 if write else mean_kl(torch.from_numpy(base), found),
    }
