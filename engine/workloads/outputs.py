"""Loads that are nearly all decode: what a roofline is looked at with. Lengths in tokens."""

from __future__ import annotations

from functools import partial

from engine.workloads.workload import Piece, WorkItem, Workload, item_rng

SHORT_PROMPT, LONG_OUTPUT = (16, 48), (128, 224)
DOCUMENTS, DOCUMENT_TOKENS = 4, 1024
QUESTION, ANSWER = (16, 48), (96, 160)


def longoutput(seed: int) -> Workload:
    """Short prompts and long answers: hardly a step but decodes, so batch is all that moves it."""
    return Workload(
        name="longoutput",
        description="prompts of 16-48 tokens, outputs of 128-224",
        default_requests=40,
        item=partial(_longoutput_item, seed),
    )


def _longoutput_item(seed: int, k: int) -> WorkItem:
    rng = item_rng(seed, "longoutput", k)
    return WorkItem(
        None, rng.randint(*SHORT_PROMPT), rng.randint(*LONG_OUTPUT), None, "longoutput:request"
    )


def longcontext(seed: int) -> Workload:
    """Questions about a few long documents: every decode reads a thousand tokens of KV.

    With the prefix cache a document is computed once, and all who ask about it share its blocks.
    """
    return Workload(
        name="longcontext",
        description=f"questions of 16-48 tokens about {DOCUMENTS} documents of "
        f"{DOCUMENT_TOKENS:,} tokens in turn, outputs of 96-160",
        default_requests=40,
        item=partial(_longcontext_item, seed),
    )


def _longcontext_item(seed: int, k: int) -> WorkItem:
    rng = item_rng(seed, "longcontext", k)
    document = Piece(f"document {k % DOCUMENTS}", DOCUMENT_TOKENS)
    question = Piece(f"question {k}", rng.randint(*QUESTION))
    tokens = document.tokens + question.tokens
    pieces = (document, question)
    return WorkItem(None, tokens, rng.randint(*ANSWER), None, "longcontext:question", pieces)
