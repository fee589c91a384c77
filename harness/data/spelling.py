"""Which bytes a token stands for, by the way its vocabulary spells it."""

from __future__ import annotations

import json
import re
from typing import Any

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def bytes_of_ids(tokenizer: Any, content: str) -> dict[int, bytes]:
    """The bytes behind each id.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        content: its tokenizer.json.

    Returns:
        id -> bytes; whether they are right shows when they are put together and compared with the text.
    """
    settings = json.loads(content)
    byte_level = any('"ByteLevel"' in json.dumps(settings.get(part)) for part in ("pre_tokenizer", "decoder"))
    spell = _spelled_bytes if byte_level else _spelled_characters
    pieces = {number: spell(token) for token, number in tokenizer.get_vocab(with_added_tokens=False).items()}
    added = {number: token.content.encode() for number, token in tokenizer.get_added_tokens_decoder().items()}
    return {**pieces, **added}


def _byte_alphabet() -> dict[str, int]:
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {
        **{chr(byte): byte for byte in shown},
        **{chr(256 + rank): byte for rank, byte in enumerate(hidden)},
    }


_BYTES = _byte_alphabet()


def _spelled_bytes(token: str) -> bytes:
    return bytes(_BYTES[letter] for letter in token) if _BYTES.keys() >= set(token) else token.encode()


def _spelled_characters(token: str) -> bytes:
    fallback = _FALLBACK.fullmatch(token)
    return bytes([int(fallback[1], 16)]) if fallback else token.replace("▁", " ").encode()


def difference(label: str, joined: bytes, expected: bytes, where: str) -> str:
    """What to say when the bytes of the tokens are not the text.

    Args:
        label: the tokenizer.
        joined: the bytes of the tokens.
        expected: the text.
        where: the text's name and place.

    Returns:
        The message, with the first place that differs.
    """
    pairs = enumerate(zip(joined, expected, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(joined), len(expected)))
    here, there = expected[at : at + 16], joined[at : at + 16]
    return (
        f"the tokenizer {label} does not keep this text ({where} + {at:,}): it has {here!r} where the "
        f"tokens have {there!r}, so its bytes cannot be counted; use a byte-level tokenizer, such as bpe:4096"
    )
