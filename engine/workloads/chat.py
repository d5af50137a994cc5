"""Multi-turn chat: what a prefix cache is for. Lengths in tokens."""

from __future__ import annotations

from functools import partial

from engine.workloads.workload import Piece, WorkItem, Workload, item_rng

SYSTEM_TOKENS = 344  # the whole text in SmolLM2's tokens
CONVERSATIONS, TURNS = 8, 6  # that interleave, and of each
USER_TOKENS, ANSWER_TOKENS = (15, 45), (25, 55)
# Half of the conversations wait for an answer; the others' users read and type.
STREAMS = CONVERSATIONS // 2


def chat(seed: int) -> Workload:
    """Conversations that share a system prompt and resend all that was said at every turn.

    A turn's history holds answers of the lengths that were asked for, cut from data/prompts, not
    what the model said: so a prompt depends on the seed and its number alone.
    """
    return Workload(
        name="chat",
        description=f"{CONVERSATIONS} conversations of {TURNS} turns that interleave: a "
        f"system prompt of {SYSTEM_TOKENS} tokens, all earlier turns, and a new message of "
        f"{USER_TOKENS[0]}-{USER_TOKENS[1]}; answers of {ANSWER_TOKENS[0]}-{ANSWER_TOKENS[1]}",
        default_requests=CONVERSATIONS * TURNS,
        item=partial(_item, seed),
        concurrency=STREAMS,
    )


def _item(seed: int, k: int) -> WorkItem:
    """Turn by turn through a group of conversations, then the next group."""
    group, place = divmod(k, CONVERSATIONS * TURNS)
    turn, member = divmod(place, CONVERSATIONS)
    conversation = group * CONVERSATIONS + member
    pieces = [Piece("system", SYSTEM_TOKENS)]
    for earlier in range(turn):
        pieces += [*_turn(seed, conversation, earlier)]
    message, answer = _turn(seed, conversation, turn)
    pieces.append(message)
    tokens = sum(piece.tokens for piece in pieces)
    return WorkItem(None, tokens, answer.tokens, None, f"chat:turn {turn + 1}", tuple(pieces))


def _turn(seed: int, conversation: int, turn: int) -> tuple[Piece, Piece]:
    """What the user writes and what is answered."""
    name = f"chat {conversation} turn {turn}"
    rng = item_rng(seed, name, 0)
    message, answer = rng.randint(*USER_TOKENS), rng.randint(*ANSWER_TOKENS)
    return Piece(f"{name} message", message), Piece(f"{name} answer", answer)
