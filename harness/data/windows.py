"""Where the sequences of a token stream start: by a counter for training, evenly spaced for evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def training_starts(*, seed: int, step: int, rows: int, choices: int) -> NDArray[np.int64]:
    """Uniform starts of one step's sequences.

    start_r = floor(x_r * choices / 2^64), x_r the r-th word of Philox 4x64 under the key (seed, step).

    Args:
        seed: first half of the key, 0 to 2^64 - 1.
        step: second half of the key, 0 to 2^64 - 1.
        rows: number of starts.
        choices: number of possible starts, at least 1.

    Returns:
        Starts in [0, choices), int64 [rows]; the first r of them do not depend on `rows`.
    """
    # Raw words, because numpy promises the same raw stream in every version, but not the same integers().
    words = np.random.Philox(key=np.array([seed, step], dtype=np.uint64)).random_raw(rows)
    return np.array([int(word) * choices >> 64 for word in words], dtype=np.int64)


def evaluation_starts(*, available: int, length: int, count: int) -> NDArray[np.int64]:
    """Evenly spaced starts of sequences whose targets do not overlap; the first starts at 0, the last ends
    the split.

    Args:
        available: tokens in the split, at least count * length + 1.
        length: targets a sequence.
        count: number of sequences, at least 1.

    Returns:
        Starts, int64 [count], neighbours at least `length` apart.
    """
    last = available - 1 - length
    return np.arange(count, dtype=np.int64) * last // max(count - 1, 1)


def cut(values: NDArray[np.integer[Any]], starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Stretches of a stream, widened to int64.

    Args:
        values: the stream, [N].
        starts: where each stretch starts, [n].
        length: items a stretch.

    Returns:
        The stretches, int64 [n, length].
    """
    stretches: NDArray[np.int64] = values[starts[:, None] + np.arange(length)].astype(np.int64)
    return stretches
