"""Synthetic workloads, each made to show one effect. Lengths in tokens."""

from __future__ import annotations

from functools import partial

from engine.workloads.workload import WorkItem, Workload, item_rng

COHORT = 10
LONG_OUTPUT, SHORT_OUTPUT = 180, 16
LONG_PROMPT_EVERY = 6


def skew(seed: int) -> Workload:
    """One long output among nine short ones: static batching pads, continuous does not."""
    return Workload(
        name="skew",
        description=f"cohorts of 1 request with {LONG_OUTPUT} output tokens and 9 with "
        f"{SHORT_OUTPUT}, all there at once",
        default_requests=40,
        item=partial(_skew_item, seed),
    )


def _skew_item(seed: int, k: int) -> WorkItem:
    cohort, place = divmod(k, COHORT)
    long = place == item_rng(seed, "skew cohort", cohort).randrange(COHORT)
    prompt = item_rng(seed, "skew", k).randint(32, 64)
    if long:
        return WorkItem(None, prompt, LONG_OUTPUT, None, "skew:long")
    return WorkItem(None, prompt, SHORT_OUTPUT, None, "skew:short")


def steady(seed: int) -> Workload:
    """Nothing special: the machine's plain throughput."""
    return Workload(
        name="steady",
        description="prompts of 64-192 tokens, outputs of 32-96",
        default_requests=40,
        item=partial(_steady_item, seed),
    )


def _steady_item(seed: int, k: int) -> WorkItem:
    rng = item_rng(seed, "steady", k)
    return WorkItem(None, rng.randint(64, 192), rng.randint(32, 96), None, "steady:request")


def longprompt(seed: int) -> Workload:
    """Decode streams that a long prompt interrupts every so often."""
    return Workload(
        name="longprompt",
        description="decode streams (prompts of 32-64 tokens, outputs of 96-160) with every "
        f"{LONG_PROMPT_EVERY}th request a prompt of 960-1,088 tokens and 8 outputs",
        default_requests=36,
        item=partial(_longprompt_item, seed),
    )


def _longprompt_item(seed: int, k: int) -> WorkItem:
    rng = item_rng(seed, "longprompt", k)
    if k % LONG_PROMPT_EVERY == LONG_PROMPT_EVERY - 1:
        return WorkItem(None, rng.randint(960, 1088), 8, None, "longprompt:prompt")
    return WorkItem(None, rng.randint(32, 64), rng.randint(96, 160), None, "longprompt:stream")
