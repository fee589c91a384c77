"""Bigram-Backcopy: a task whose solution in one attention layer has a head with nothing to do at most places.

    x_0 = BOS,   x_{i+1} = x_{i-1} where x_i is a trigger,   else x_{i+1} ~ P(. | x_i)

P counts pairs of characters (bytes) in the training split of a text; the triggers are its four most frequent
letters. What follows BOS is drawn by frequency among the characters that are no trigger. So no two triggers stand
side by side, and BOS is never copied. A head that looks one token back serves the triggers; everywhere else its
output only disturbs, and plain softmax learns to park the weight on BOS.

Source: arXiv 2410.13835, section 2; there the triggers are fixed letters of another text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.data.source import SPLITS, Batch, Evaluation
from harness.errors import DataError, unknown

NAME: Final = "backcopy-1"
"""Name and version of the task: the corpus of a run on it, alone for the characters of kjv, or `backcopy-1:TEXT`."""

TRIGGERS: Final = 4
BOS: Final = 0
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, eq=False)
class Backcopy:
    """The task as a source. Token 0 is BOS, token c is the character `alphabet[c - 1]`.

    Args:
        text: name of the text that was counted.
        alphabet: its characters, in the order of their bytes.
        triggers: tokens after which the token before them comes, [4].
        bounds: 64-bit bounds of the next character: row c after token c, row 0 after BOS; uint64 [V, V - 2].
        digest: SHA-256 of all of this.
    """

    text: str
    alphabet: bytes
    triggers: NDArray[np.int64]
    bounds: NDArray[np.uint64]
    digest: str

    @property
    def name(self) -> str:
        """The task with its version."""
        return NAME

    @property
    def fingerprint(self) -> str:
        """See `Source`."""
        return self.digest

    @property
    def vocab_size(self) -> int:
        """The characters and BOS."""
        return len(self.alphabet) + 1

    @property
    def description(self) -> str:
        """See `Source`."""
        letters = ", ".join(self.spell(self.triggers))
        return f"{NAME}: {len(self.alphabet)} characters of {self.text} and BOS, triggers {letters}; drawn, no text"

    def spell(self, tokens: NDArray[np.int64]) -> list[str]:
        """What each token stands for, for a reader."""
        return ["BOS" if token == BOS else chr(self.alphabet[token - 1]) for token in tokens.tolist()]

    def training_batch(self, *, seed: int, step: int, rows: int, length: int) -> Batch:
        """Sequences of one step; see `Source`."""
        drawn = self._draw(np.array([seed, step], dtype=np.uint64), rows, length)
        return Batch(inputs=drawn[:, :-1], targets=drawn[:, 1:])

    def evaluation(self, split: str, *, length: int, tokens: int) -> Evaluation:
        """Sequences of their own for each split and length, `trigger` and `other` targets apart; see `Source`."""
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        key = hashlib.sha256(f"{NAME} {split} {length}".encode()).digest()[:16]
        drawn = self._draw(np.frombuffer(key, dtype="<u8").astype(np.uint64), -(-tokens // length), length)
        inputs, targets = drawn[:, :-1], drawn[:, 1:]
        trigger = np.isin(inputs, self.triggers)
        return Evaluation(
            inputs=inputs,
            targets=targets,
            target_bytes=np.ones_like(targets),
            groups={"trigger": trigger, "other": ~trigger},
        )

    def check(self, *, length: int, tokens: int) -> None:
        """A sequence needs a trigger, what stands before it, and BOS; see `Source`."""
        if length < 8:
            raise DataError(f"{NAME} needs sequences of at least 8 tokens, not {length} (--set data.length=128)")

    def _draw(self, key: NDArray[np.uint64], rows: int, length: int) -> NDArray[np.int64]:
        """Sequences [rows, length + 1]: word c of row r decides token c of row r."""
        words = np.random.Philox(key=key).random_raw(rows * (length + 1)).reshape(rows, length + 1)
        copies = np.isin(np.arange(self.vocab_size), self.triggers)
        # One row a place: neighbours in memory are drawn together.
        words = np.ascontiguousarray(words.T)
        tokens = np.full((length + 1, rows), BOS, dtype=np.int64)
        for place in range(1, length + 1):
            last = tokens[place - 1]
            drawn = 1 + np.count_nonzero(words[place][:, None] >= self.bounds[last], axis=1)
            tokens[place] = np.where(copies[last], tokens[place - 2], drawn)
        return np.ascontiguousarray(tokens.T)


def backcopy(text: str, train: bytes) -> Backcopy:
    """The task over the characters of a text.

    Args:
        text: its name.
        train: the bytes of its training split.

    Raises:
        DataError: it has fewer than five different letters to choose triggers from.
    """
    stream = np.frombuffer(train, dtype=np.uint8)
    present = np.unique(stream)
    size = len(present)
    index = np.zeros(256, dtype=np.int64)
    index[present] = np.arange(size)
    ids = index[stream]
    single = np.bincount(ids, minlength=size)
    letters = sorted((int(single[index[letter]]), letter) for letter in _LETTERS if letter in present)
    if len(letters) <= TRIGGERS:
        raise DataError(f"{NAME} takes its triggers among the letters a to z, but {text} has only {len(letters)}")
    triggers = np.array(sorted(1 + int(index[letter]) for _, letter in letters[-TRIGGERS:]), dtype=np.int64)
    pairs = np.bincount(ids[:-1] * size + ids[1:], minlength=size * size).reshape(size, size)
    # The last character of the text may have no follower.
    pairs[pairs.sum(1) == 0] = single
    start = single.copy()
    start[triggers - 1] = 0
    counts = np.concatenate([start[None], pairs])
    digest = hashlib.sha256(f"{NAME}\n{triggers.tolist()}\n".encode() + present.tobytes())
    digest.update(counts.astype("<i8").tobytes())
    return Backcopy(text, present.tobytes(), triggers, _bounds(counts), digest.hexdigest())


def _bounds(counts: NDArray[Any]) -> NDArray[np.uint64]:
    """Bound c of a row: floor(2^64 * share of the first c + 1 characters); a word below it is one of these."""
    rows = []
    for row in counts.cumsum(1).tolist():
        total = row[-1]
        # Whole numbers of any length: a float would lose the last bits, differently from machine to machine.
        rows.append([min((count << 64) // total, (1 << 64) - 1) for count in row[:-1]])
    return np.array(rows, dtype=np.uint64)
