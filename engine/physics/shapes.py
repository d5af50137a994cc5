"""The parts of a model's shape that a plain dense decoder does not have. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MoE:
    """A mixture of experts in place of the MLP (Shazeer et al. 2017; DeepSeekMoE, Dai et al. 2024).

    expert_intermediate: width of one expert's gated MLP; shared_intermediate: width, all together,
    of the experts that every token passes; dense_layers: how many of the first layers have a plain
    MLP of the model's `intermediate` instead. Raises ValueError for what no model can have.
    """

    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_intermediate: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        at_least_one(self, "experts", "experts_per_token", "expert_intermediate")
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, use 1 to {self.experts}, the "
                "experts there are"
            )
        if self.shared_intermediate < 0 or self.dense_layers < 0:
            raise ValueError("shared_intermediate and dense_layers: use 0 or more")

    def touched(self, rows: int) -> float:
        """Experts of a layer that `rows` rows are expected to touch: E · (1 − (1 − k/E)^rows).

        Each row picks k of E evenly and on its own; a router that is less even touches fewer.
        """
        missed: float = (1 - self.experts_per_token / self.experts) ** rows
        return self.experts * (1 - missed)


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): widths in elements.

    q_rank: None where queries are projected directly. The cache holds kv_rank + rope_dim elements
    per token and layer, whatever the number of heads.
    """

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int

    def __post_init__(self) -> None:
        at_least_one(self, "kv_rank", "nope_dim", "rope_dim", "v_dim")
        if self.q_rank is not None and self.q_rank < 1:
            raise ValueError(f"q_rank is {self.q_rank}, use 1 or more, or leave it out")

    @property
    def cached_elements(self) -> int:
        """Elements in the cache of one token in one layer."""
        return self.kv_rank + self.rope_dim

    def expansion_params(self, heads: int) -> int:
        """Weights of one layer that turn the latent into every head's keys and values."""
        return self.kv_rank * heads * (self.nope_dim + self.v_dim)

    def params(self, hidden: int, heads: int) -> int:
        """Weights of one layer's projections."""
        queries = heads * (self.nope_dim + self.rope_dim)
        low = hidden * queries if self.q_rank is None else self.q_rank * (hidden + queries)
        latent = hidden * self.cached_elements + self.expansion_params(heads)
        return low + latent + heads * self.v_dim * hidden

    def absorbed_flops(self, heads: int) -> int:
        """FLOPs of a query on a position in one layer, straight on the cached latent."""
        return heads * 2 * (self.cached_elements + self.kv_rank)

    def expanded_flops(self, heads: int) -> int:
        """FLOPs of a query on a position in one layer, on expanded keys and values."""
        return heads * 2 * (self.nope_dim + self.rope_dim + self.v_dim)


@dataclass(frozen=True)
class Window:
    """Sliding-window attention (Beltagy et al. 2020; Mistral 7B, 2023).

    `layers` of the model's layers attend to at most the last `tokens` positions, their own among
    them; the others to all.
    """

    tokens: int
    layers: int

    def __post_init__(self) -> None:
        at_least_one(self, "tokens", "layers")


def at_least_one(owner: object, *fields: str) -> None:
    """Raise ValueError for the first of these fields that is under 1."""
    for field in fields:
        value = getattr(owner, field)
        if value < 1:
            raise ValueError(f"{field} is {value}, use 1 or more")
