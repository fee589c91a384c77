"""The trivial rows agree with their formulas and are scored on the evaluation's own tokens."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from harness.data import IGNORED, Batch, Evaluation, Reference, load, references, trivial
from harness.data.text import TextSource, tokenised
from harness.data.tokenizer import ByteTokenizer

TRAIN = b"the cat sat on the mat, and the other cat sat on the hat. " * 20
REPORT = b"the hat sat on the cat, and then the mat sat on the other zebra! " * 5


def corpus() -> TextSource:
    return tokenised("cats", {"train": TRAIN, "selection": REPORT, "report": REPORT}, ByteTokenizer(), "test 1")


def rows(source: TextSource) -> dict[str, Reference]:
    return {row.name: row for row in references(source, length=20, tokens=200)}


def test_uniform_is_the_logarithm_of_the_vocabulary() -> None:
    assert rows(corpus())["uniform"] == Reference("uniform", math.log(256), pytest.approx(8.0))


def test_order_0_and_order_1_are_smoothed_counts_of_the_training_text() -> None:
    source = corpus()
    scored = source.evaluation("report", length=20, tokens=200)
    single, pairs, first = Counter(TRAIN[1:]), Counter(pairwise(TRAIN)), Counter(TRAIN[:-1])
    order_0, order_1 = [], []
    for before, after in zip(scored.inputs.ravel().tolist(), scored.targets.ravel().tolist(), strict=True):
        alone = (single[after] + 1) / (len(TRAIN) - 1 + 256)
        order_0.append(-math.log(alone))
        order_1.append(-math.log((pairs[before, after] + alone) / (first[before] + 1)))
    found = rows(source)
    assert found["order-0"].nats_per_token == pytest.approx(np.mean(order_0))
    assert found["order-1"].nats_per_token == pytest.approx(np.mean(order_1))
    assert found["order-1"].bits_per_byte == pytest.approx(np.mean(order_1) / math.log(2))


def test_counts_do_not_depend_on_how_the_training_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(corpus())
    monkeypatch.setattr(trivial, "_CHUNK", 7)
    assert rows(corpus()) == whole


def test_xz_is_what_the_report_text_adds_to_the_compressed_training_text() -> None:
    source = corpus()
    scored = source.covered("report", length=20, tokens=200)
    assert len(scored) == 200
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 4096}]
    sizes = [len(lzma.compress(text, filters=filters)) for text in (TRAIN, TRAIN + scored)]
    row = rows(source)["xz"]
    assert row.bits_per_byte == pytest.approx(8 * (sizes[1] - sizes[0]) / 200)
    assert row.nats_per_token == pytest.approx(row.bits_per_byte * math.log(2))


def test_xz_of_a_long_training_text_says_what_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trivial, "XZ_TRAIN_BYTES", 1 << 10)
    assert list(rows(corpus()))[-1] == "xz (last 1 KiB of train)"


def test_more_context_predicts_real_text_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trivial, "XZ_TRAIN_BYTES", 1 << 16)
    source = load("kjv")
    uniform, order_0, order_1 = references(source, length=64, tokens=4096)[:3]
    assert uniform.bits_per_byte == pytest.approx(8.0)
    assert 4.2 < order_0.bits_per_byte < 4.6
    assert 3.1 < order_1.bits_per_byte < 3.5


class Task:
    """A source without text: the second token of each pair repeats the first and alone is scored."""

    name = "repeat"
    fingerprint = "0"
    vocab_size = 4
    description = "repeat"

    def training_batch(self, *, seed: int, step: int, rows: int, length: int) -> Batch:
        raise NotImplementedError

    def evaluation(self, split: str, *, length: int, tokens: int) -> Evaluation:
        inputs = np.arange(32).reshape(4, 8) % 4
        targets = np.where(np.arange(8) % 2 == 0, inputs, IGNORED)
        return Evaluation(inputs, targets, np.ones_like(inputs))

    def check(self, *, length: int, tokens: int) -> None:
        return


def test_a_source_without_text_is_scored_where_a_loss_is_taken_and_has_no_xz_row() -> None:
    found = {row.name: row.nats_per_token for row in references(Task(), length=8, tokens=32)}
    assert list(found) == ["uniform", "order-0", "order-1"]
    assert found["uniform"] == pytest.approx(math.log(4))
    assert found["order-0"] == pytest.approx(-math.log(9 / 20))
    assert found["order-1"] == pytest.approx(-math.log((8 + 9 / 20) / 9))
