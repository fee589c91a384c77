"""Trivial predictors beside which a loss is read: uniform, token counts, counts of pairs, and xz."""

from __future__ import annotations

import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.data.source import IGNORED, Evaluation, Source
from harness.data.text import TextSource

PRIOR: Final = 1.0
"""Added to the count of every token in order-0, and the weight, in counts, of order-0 inside order-1."""

XZ_TRAIN_BYTES: Final = 8 << 20
"""xz reads at most this much of the training text, the end of it; beyond, the row says so in its name."""

_CHUNK = 1 << 20

_Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Reference:
    """The loss of a trivial predictor on the tokens that the models are scored on.

    Args:
        name: `uniform`, `order-0`, `order-1` or `xz`.
        nats_per_token: mean loss a target, nats.
        bits_per_byte: the same loss for each byte of text, bits.
    """

    name: str
    nats_per_token: float
    bits_per_byte: float


def references(source: Source, *, length: int, tokens: int) -> list[Reference]:
    """Trivial rows, fitted on the training split and scored on the report split's evaluation.

    With c the counts in train, N tokens there, V the vocabulary and s = `PRIOR`:

        uniform   p(b) = 1 / V
        order-0   p0(b) = (c(b) + s) / (N + s V)
        order-1   p(b | a) = (c(a, b) + s p0(b)) / (c(a) + s),   a the input at that place
        xz        8 (|xz(train + t)| - |xz(train)|) / |t| bits a byte,  t the text of the evaluation's targets

    Order-1 knows the input before the first target of a sequence, as the models do. xz compresses the
    sequences of the evaluation as one piece after the training text, with a window that reaches back over all
    of it, so it sees more context than a model. It is left out for a source without text.

    Args:
        source: where the tokens come from.
        length: tokens a sequence, as the models are evaluated.
        tokens: targets of the evaluation, as the models are evaluated.

    Returns:
        The rows, in the order above.

    Raises:
        DataError: a split has too few tokens.
    """
    scored = source.evaluation("report", length=length, tokens=tokens)
    taken = scored.targets != IGNORED
    number, size = int(taken.sum()), int(scored.target_bytes[taken].sum())
    order_0, order_1 = _count_losses(source, scored, length, tokens)
    rows = [("uniform", math.log(source.vocab_size)), ("order-0", order_0), ("order-1", order_1)]
    result = [Reference(name, nats, nats * number / (math.log(2) * size)) for name, nats in rows]
    if isinstance(source, TextSource):
        name, bits = _xz(source, source.covered("report", length=length, tokens=tokens))
        result.append(Reference(name, bits * math.log(2) * size / number, bits))
    return result


def _count_losses(source: Source, scored: Evaluation, length: int, tokens: int) -> tuple[float, float]:
    before, after = _pairs(scored)
    keys, where = np.unique(before * source.vocab_size + after, return_inverse=True)
    # Only pairs that occur in the evaluation are counted: any vocabulary fits into memory.
    first = np.zeros(source.vocab_size, dtype=np.int64)
    second = np.zeros(source.vocab_size, dtype=np.int64)
    both = np.zeros(len(keys), dtype=np.int64)
    for inputs, targets in _training_pairs(source, length, tokens):
        first += np.bincount(inputs, minlength=source.vocab_size)
        second += np.bincount(targets, minlength=source.vocab_size)
        seen = inputs * source.vocab_size + targets
        place = np.minimum(np.searchsorted(keys, seen), len(keys) - 1)
        both += np.bincount(place[keys[place] == seen], minlength=len(keys))
    alone = (second[after] + PRIOR) / (second.sum() + PRIOR * source.vocab_size)
    paired = (both[where] + PRIOR * alone) / (first[before] + PRIOR)
    return float(-np.log(alone).mean()), float(-np.log(paired).mean())


def _training_pairs(source: Source, length: int, tokens: int) -> Iterator[_Pairs]:
    if not isinstance(source, TextSource):
        yield _pairs(source.evaluation("train", length=length, tokens=tokens))
        return
    stream = source.tokens["train"]
    for start in range(0, len(stream) - 1, _CHUNK):
        chunk = stream[start : start + _CHUNK + 1].astype(np.int64)
        yield chunk[:-1], chunk[1:]


def _pairs(evaluation: Evaluation) -> _Pairs:
    taken = evaluation.targets != IGNORED
    return evaluation.inputs[taken], evaluation.targets[taken]


def _xz(source: TextSource, scored: bytes) -> tuple[str, float]:
    train = source.texts["train"][-XZ_TRAIN_BYTES:]
    window = max(len(train) + len(scored), 1 << 12)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": window}]
    alone, extended = (len(lzma.compress(text, filters=filters)) for text in (train, train + scored))
    cut = len(train) < len(source.texts["train"])
    name = f"xz (last {XZ_TRAIN_BYTES >> 10:,} KiB of train)" if cut else "xz"
    return name, 8 * (extended - alone) / len(scored)
