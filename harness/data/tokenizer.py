"""Text to token ids, with the number of bytes that each token stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Stream: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Token ids, or sizes, in the smallest unsigned type that holds them, [N]."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """The tokens of a text.

    Args:
        ids: token ids, [N].
        sizes: bytes of text each token stands for, [N]; they sum to the length of the text.
    """

    ids: Stream
    sizes: Stream


class Tokenizer(Protocol):
    """Turns bytes into ids, and accounts for every byte."""

    @property
    def name(self) -> str:
        """Identity for the fingerprint; without a path."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def description(self) -> str:
        """A few words for the fairness line."""

    def encode(self, text: bytes, *, where: str) -> Encoded:
        """The tokens of a text.

        Args:
            text: the bytes.
            where: what the text is, for an error.

        Returns:
            Ids and sizes.

        Raises:
            DataError: some bytes of the text cannot be accounted for.
        """


@dataclass(frozen=True)
class ByteTokenizer:
    """One token a byte: the id is the byte."""

    name: str = "bytes"
    vocab_size: int = 256
    description: str = "bytes (256 tokens)"

    def encode(self, text: bytes, *, where: str) -> Encoded:
        """The bytes themselves, without a copy; see `Tokenizer`."""
        ids = np.frombuffer(text, dtype=np.uint8)
        return Encoded(ids=ids, sizes=np.broadcast_to(np.uint8(1), ids.shape))
