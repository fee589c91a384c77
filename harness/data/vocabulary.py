"""A tokenizer of the `tokenizers` package, with a count of the bytes behind each token.

Every id stands for bytes: a byte-level one for those it spells, an added one for its text, a byte-fallback
one (`<0x41>`) for its byte, another one for its characters with `▁` read as a space. Put together they must
be the text again, byte for byte; a space that the tokenizer puts before the text counts for nothing. Where
they are not (unknown words, lower case, dropped blanks, normal forms) the tokenizer is refused for that text,
because bits per byte would count what was never predicted. No token is added around the text.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness.data import cache as kept
from harness.data.spelling import bytes_of_ids, difference
from harness.data.tokenizer import Encoded, Stream
from harness.errors import DataError, UsageError

_PIECE = 4096
_PIECES_AT_ONCE = 256
_SEAM = re.compile(r"\n(?=\S)")


@dataclass(frozen=True, eq=False)
class VocabularyTokenizer:
    """A tokenizer of the `tokenizers` package that accounts for every byte.

    Args:
        name: kind of tokenizer, for the fingerprint.
        label: what an error and the fairness line call it.
        content: its tokenizer.json.
        cache: where the tokens of a text are kept, or None.
    """

    name: str
    label: str
    content: str
    cache: Path | None = None
    _pieces: Mapping[int, bytes] = field(init=False, repr=False)
    _tokenizer: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tokenizer", package(self.label).Tokenizer.from_str(self.content))
        object.__setattr__(self, "_pieces", bytes_of_ids(self._tokenizer, self.content))

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._pieces, default=-1) + 1

    @property
    def description(self) -> str:
        """Label and number of tokens."""
        return f"{self.label} ({self.vocab_size:,} tokens)"

    def encode(self, text: bytes, *, where: str) -> Encoded:
        """The tokens of a UTF-8 text, cut at line starts into pieces of 4,096 characters or more."""
        digest = hashlib.sha256(hashlib.sha256(self.content.encode()).digest())
        digest.update(text)
        name = f"tokens-{digest.hexdigest()}"
        content = kept.get(self.cache, name)
        if content is not None:
            return _unpacked(content)
        encoded = self._encoded(text, where)
        kept.put(self.cache, name, _packed(encoded))
        return encoded

    def _encoded(self, text: bytes, where: str) -> Encoded:
        ids, sizes = [np.empty(0, dtype=np.uint8)], [np.empty(0, dtype=np.uint8)]
        pieces = list(cut(text.decode("utf-8")))
        done = 0
        for start in range(0, len(pieces), _PIECES_AT_ONCE):
            batch = pieces[start : start + _PIECES_AT_ONCE]
            for piece, encoding in zip(
                batch, self._tokenizer.encode_batch_fast(batch, add_special_tokens=False), strict=True
            ):
                expected = piece.encode()
                ids.append(np.array(encoding.ids, dtype=np.uint32))
                sizes.append(self._sizes(encoding.ids, expected, f"{where}, byte {done:,}"))
                done += len(expected)
        return Encoded(ids=_narrow(np.concatenate(ids)), sizes=_narrow(np.concatenate(sizes)))

    def _sizes(self, ids: list[int], expected: bytes, where: str) -> Stream:
        spelled = [self._pieces[each] for each in ids]
        joined = b"".join(spelled)
        sizes = np.fromiter(map(len, spelled), dtype=np.uint32, count=len(ids))
        if joined == b" " + expected:
            sizes[0] -= 1
        elif joined != expected:
            raise DataError(difference(self.label, joined, expected, where))
        return sizes


def package(label: str) -> ModuleType:
    """The package `tokenizers`.

    Args:
        label: the tokenizer that needs it, for the error.

    Returns:
        The module.

    Raises:
        UsageError: it is not installed.
    """
    # With threads of its own the package warns, and may hang, when the process forks later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError as error:
        needed = f"the tokenizer {label} needs the package tokenizers ({error})"
        raise UsageError(f"{needed}; pip install -e '.[data]'") from error
    return tokenizers


def cut(text: str) -> Iterator[str]:
    """Pieces of a text for a tokenizer: each ends before a line that does not start with a blank.

    Args:
        text: the text.

    Yields:
        Pieces of 4,096 characters or somewhat more, which together are the text.
    """
    start = 0
    while start < len(text):
        seam = _SEAM.search(text, start + _PIECE)
        end = seam.end() if seam else len(text)
        yield text[start:end]
        start = end


def _narrow(values: Stream) -> Stream:
    largest = int(values.max()) if len(values) else 0
    return values.astype(np.min_scalar_type(largest))


def _packed(encoded: Encoded) -> bytes:
    file = io.BytesIO()
    np.savez(file, ids=encoded.ids, sizes=encoded.sizes)
    return file.getvalue()


def _unpacked(content: bytes) -> Encoded:
    with np.load(io.BytesIO(content)) as arrays:
        return Encoded(ids=arrays["ids"], sizes=arrays["sizes"])
