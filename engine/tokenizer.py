"""A model's own tokenizer and chat template. No torch: the server uses it too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from engine.errors import UserError
from engine.json_file import read_object

_CONTROL = 3  # llama.cpp's token type of special tokens
# Pre-tokenizers of byte-level BPE by llama.cpp's name; the regex of Llama 3 is in its own config.
_DIGITS_APART = ("smollm", "refact", "starcoder", "command-r")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Text to token ids and back."""

    fast: FastTokenizer
    eos_token_ids: tuple[int, ...]
    chat_template: str | None
    special_tokens: dict[str, str]  # bos_token, eos_token as text, for the template

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.fast.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: list[int]) -> str:
        text: str = self.fast.decode(token_ids, skip_special_tokens=True)
        return text

    def encode_chat(self, message: str) -> list[int]:
        """One user message through the chat template; the text itself where there is none."""
        if self.chat_template is None:
            return self.encode(message)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        try:
            text = environment.from_string(self.chat_template).render(
                messages=[{"role": "user", "content": message}],
                add_generation_prompt=True,
                **self.special_tokens,
            )
        except TemplateError as error:
            raise UserError(f"the model's chat template fails: {error}") from None
        return self.encode(text)

    def to_json(self) -> str:
        text: str = self.fast.to_str()
        return text


def _raise(message: str) -> None:
    raise TemplateError(message)


def tokenizer_from_gguf(fields: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE from a GGUF's own vocabulary. Raises KeyError for a missing key."""
    kind = fields["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise UserError(
            f"GGUF tokenizer '{kind}' is not supported; use a byte-level BPE GGUF ('gpt2'), "
            "or the model's Hugging Face folder with its tokenizer.json"
        )
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    fast = FastTokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    fast.pre_tokenizer = _pre_tokenizer(fields.get("tokenizer.ggml.pre", "default"))
    fast.decoder = decoders.ByteLevel()
    types = fields.get("tokenizer.ggml.token_type", [])
    special = [t for t, kind in zip(tokens, types, strict=False) if kind == _CONTROL]
    fast.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    eos = int(fields["tokenizer.ggml.eos_token_id"])
    bos = fields.get("tokenizer.ggml.bos_token_id")
    names = {"eos_token": tokens[eos], "bos_token": tokens[int(bos)] if bos is not None else ""}
    return Tokenizer(fast, (eos,), fields.get("tokenizer.chat_template"), names)


def _pre_tokenizer(name: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _DIGITS_APART:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in ("default", "gpt-2"):
        return byte_level
    raise UserError(
        f"GGUF pre-tokenizer '{name}' is not supported; use {', '.join(_DIGITS_APART)}, default "
        "or gpt-2, or the model's Hugging Face folder with its tokenizer.json"
    )


def tokenizer_from_folder(path: Path, config: dict[str, Any]) -> Tokenizer:
    """tokenizer.json with the chat template beside it. Raises UserError when it is missing."""
    file = path / "tokenizer.json"
    if not file.is_file():
        raise UserError(f"{path} has no tokenizer.json; put the model's tokenizer beside it")
    try:
        fast = FastTokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for any malformed file
        raise UserError(f"{file} is damaged ({error}); fetch it again") from None
    settings = _optional_json(path / "tokenizer_config.json")
    generation = _optional_json(path / "generation_config.json")
    names = {k: _token_text(settings.get(k)) for k in ("bos_token", "eos_token")}
    eos = _eos_ids(fast, names, generation, config)
    return Tokenizer(fast, eos, _chat_template(path, settings), names)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _token_text(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("content", ""))
    return str(value or "")


def _eos_ids(
    fast: FastTokenizer, names: dict[str, str], *configs: dict[str, Any]
) -> tuple[int, ...]:
    ids: list[int] = []
    for value in [c.get("eos_token_id") for c in configs]:
        ids.extend(value if isinstance(value, list) else [value] if value is not None else [])
    named = fast.token_to_id(names["eos_token"]) if names["eos_token"] else None
    if named is not None:
        ids.append(named)
    return tuple(dict.fromkeys(int(i) for i in ids))


def _chat_template(path: Path, settings: dict[str, Any]) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    return template if isinstance(template, str) else None
