"""What training and evaluation need of data: batches, fixed token sets, and the protocol of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

IGNORED: Final = -100
"""The target at which no loss is taken."""

SPLITS: Final = ("train", "selection", "report")
"""Learn on the first, choose on the second, print the third."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The tokens of one training step.

    Args:
        inputs: token ids, int64 [rows, T].
        targets: the token after each input, int64 [rows, T]; `IGNORED` where no loss is taken.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A fixed set of tokens to be scored, the same for every batch size; each row starts without context.

    Bits per byte = sum of nats / ln 2 / sum of `target_bytes`, both over the targets that are not ignored.

    Args:
        inputs: token ids, int64 [n, T].
        targets: the token after each input, int64 [n, T]; `IGNORED` where no loss is taken.
        target_bytes: bytes of text each target stands for, int64 [n, T].
        groups: losses to be reported apart, name -> bool [n, T]; empty for plain text.
    """

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    target_bytes: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


class Source(Protocol):
    """Where tokens come from: a text corpus with its tokenizer, or a synthetic task."""

    @property
    def name(self) -> str:
        """Short name of the corpus or task, without a path."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of all that decides the tokens; runs are compared only where it is equal."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids; ids lie in [0, vocab_size)."""

    @property
    def description(self) -> str:
        """One line for the fairness line under a table: corpus, tokenizer, sizes of the splits."""

    def training_batch(self, *, seed: int, step: int, rows: int, length: int) -> Batch:
        """The batch of one step; row r depends on seed, step, r and length, and on nothing else.

        Args:
            seed: the run's seed, 0 to 2^64 - 1.
            step: the step, 0 to 2^64 - 1.
            rows: sequences in the step, whatever micro-batches they are cut into later.
            length: tokens a sequence.

        Returns:
            The batch, [rows, length].
        """

    def evaluation(self, split: str, *, length: int, tokens: int) -> Evaluation:
        """A fixed set of ceil(tokens / length) sequences of a split.

        Args:
            split: `selection`, `report`, or `train` for a fixed sample of it.
            length: tokens a sequence.
            tokens: targets wanted, rounded up to whole sequences.

        Returns:
            The set, [ceil(tokens / length), length].

        Raises:
            DataError: the split has too few tokens.
        """

    def check(self, *, length: int, tokens: int) -> None:
        """Refuse a run that the data cannot feed, before its first step.

        Args:
            length: tokens a sequence.
            tokens: targets of each evaluation.

        Raises:
            DataError: a split is too small; says which, what it has and what it needs.
        """
