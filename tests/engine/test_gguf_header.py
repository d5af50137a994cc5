"""The header of a GGUF is read as the gguf package reads it, and damage is told."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gguf import GGUFReader

from engine.errors import UserError
from engine.models.gguf_header import gguf_fields
from engine.models.names import DEFAULT_MODEL
from engine.models.text import text_of


def test_every_field_is_the_packages(default_gguf: Path) -> None:
    ours = gguf_fields(default_gguf)
    theirs = GGUFReader(str(default_gguf)).fields
    known = {k: v.contents() for k, v in theirs.items() if not k.startswith("GGUF.")}
    assert ours == known
    assert len(ours["tokenizer.ggml.tokens"]) == 49_152


@pytest.mark.parametrize("kept", [0, 3, 20, 5_000, 400_000])
def test_a_file_that_is_cut_short_is_refused(default_gguf: Path, tmp_path: Path, kept: int) -> None:
    file = tmp_path / "cut.gguf"
    with default_gguf.open("rb") as whole:
        file.write_bytes(whole.read(kept))
    with pytest.raises(UserError, match=r"cut\.gguf: not a complete GGUF file .*fetch it again"):
        gguf_fields(file)


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
KEY = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GGML" + HEAD[4:], "begins with"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (HEAD + KEY + struct.pack("<I", 99), "99"),
        (HEAD + KEY + struct.pack("<IQ", 8, 1 << 60), "ends too soon"),
        (HEAD + struct.pack("<Q", 2) + b"\xff\xfe", "utf-8"),
    ],
)
def test_what_is_no_header_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(data)
    with pytest.raises(UserError, match=why):
        gguf_fields(file)


def test_a_model_without_files_gets_the_default_tokenizer() -> None:
    tokenizer, name = text_of("llama-3.1-8b")
    assert name == DEFAULT_MODEL
    assert tokenizer.decode(tokenizer.encode("Why is the sky blue?")) == "Why is the sky blue?"


def test_a_folder_with_its_own_tokenizer_uses_that(tiny_model: Path) -> None:
    for given in (tiny_model, tiny_model / "config.json"):
        tokenizer, name = text_of(str(given))
        assert name == tiny_model.name
        assert tokenizer.eos_token_ids
