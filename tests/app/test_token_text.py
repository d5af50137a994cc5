"""Tokens as pieces of text: together they are the output, whatever bytes a token holds."""

from __future__ import annotations

import pytest

from app.token_text import TokenText

BYTES = [b" caf", b"\xc3", b"\xa9", b"", b" \xe2\x82", b"\xac", b"!", b"\xff"]


class Bytes:
    """Token i is BYTES[i]; what is no text becomes a replacement character."""

    def __init__(self) -> None:
        self.asked = 0

    def decode(self, token_ids: list[int]) -> str:
        self.asked += 1
        return b"".join(BYTES[i] for i in token_ids).decode("utf-8", "replace")


def test_a_character_over_several_tokens_belongs_to_the_last() -> None:
    assert TokenText(Bytes())([0, 1, 2, 3, 4, 5, 6]) == [" caf", "", "é", "", "", " €", "!"]


@pytest.mark.parametrize("ids", [[], [0], [3, 3], [0, 1, 2, 6] * 5, [4, 5, 0, 1, 2] * 3])
def test_the_pieces_are_the_output(ids: list[int]) -> None:
    assert "".join(TokenText(Bytes())(ids)) == Bytes().decode(ids)


def test_an_output_that_grows_is_not_decoded_again() -> None:
    decoder = Bytes()
    text = TokenText(decoder)
    text([0, 1, 2, 6] * 10)
    before = decoder.asked
    text([0, 1, 2, 6] * 10)
    assert decoder.asked == before
