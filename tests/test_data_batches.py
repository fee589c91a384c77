"""Training batches depend on seed and step only; evaluation sequences are fixed and disjoint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.source import SPLITS
from harness.data.text import TextSource, tokenised
from harness.data.tokenizer import ByteTokenizer
from harness.data.windows import training_starts
from harness.errors import DataError, UsageError

WORDS = st.integers(0, 2**64 - 1)


def numbered(*, train: int = 4000, small: int = 1000) -> TextSource:
    """A source in which every stretch of four bytes or more says where it stands."""
    lengths = {"train": train, "selection": small, "report": small}
    texts = {split: np.random.default_rng(n).bytes(n) for split, n in lengths.items()}
    return tokenised("numbered", texts, ByteTokenizer(), "test 1")


SOURCE = numbered()


@settings(derandomize=True)
@given(seed=WORDS, step=WORDS, rows=st.integers(1, 9), length=st.integers(1, 64))
def test_a_batch_depends_only_on_seed_and_step(seed: int, step: int, rows: int, length: int) -> None:
    other = numbered()
    other.training_batch(seed=1, step=1, rows=3, length=5)
    first = SOURCE.training_batch(seed=seed, step=step, rows=rows, length=length)
    again = other.training_batch(seed=seed, step=step, rows=rows, length=length)
    assert first.inputs.dtype == first.targets.dtype == np.int64
    assert first.inputs.shape == first.targets.shape == (rows, length)
    assert np.array_equal(first.inputs, again.inputs)
    assert np.array_equal(first.targets, again.targets)


@settings(derandomize=True)
@given(seed=WORDS, step=WORDS, rows=st.integers(1, 8), more=st.integers(1, 8))
def test_a_row_does_not_depend_on_the_number_of_rows(seed: int, step: int, rows: int, more: int) -> None:
    few = SOURCE.training_batch(seed=seed, step=step, rows=rows, length=16)
    many = SOURCE.training_batch(seed=seed, step=step, rows=rows + more, length=16)
    assert np.array_equal(few.inputs, many.inputs[:rows])


@settings(derandomize=True)
@given(seed=WORDS, step=WORDS, length=st.integers(4, 3999))
def test_a_training_row_is_a_stretch_of_the_training_text(seed: int, step: int, length: int) -> None:
    batch = SOURCE.training_batch(seed=seed, step=step, rows=3, length=length)
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        assert np.array_equal(inputs[1:], targets[:-1])
        stretch = bytes(inputs.astype(np.uint8)) + bytes([int(targets[-1])])
        assert stretch in SOURCE.texts["train"]


def test_training_starts_reach_every_place_about_equally_often() -> None:
    counts = np.zeros(10, dtype=int)
    for step in range(1000):
        np.add.at(counts, training_starts(seed=3, step=step, rows=10, choices=10), 1)
    chi_squared = float(((counts - 1000) ** 2 / 1000).sum())
    assert chi_squared < 27.9  # the 0.1 % point at 9 degrees of freedom


def test_training_starts_do_not_change_with_the_numpy_version() -> None:
    starts = training_starts(seed=0, step=1, rows=4, choices=1_000_000)
    assert starts.tolist() == [813354, 751331, 671649, 483123]


def test_neighbouring_seeds_and_steps_share_no_starts() -> None:
    keys = [(seed, step) for seed in range(4) for step in range(4)]
    draws = [training_starts(seed=seed, step=step, rows=8, choices=2**50) for seed, step in keys]
    drawn = np.concatenate(draws).tolist()
    assert len(set(drawn)) == len(drawn)


@settings(derandomize=True)
@given(split=st.sampled_from(SPLITS), length=st.integers(4, 200), tokens=st.integers(1, 999))
def test_evaluation_targets_are_disjoint_stretches_of_the_split(split: str, length: int, tokens: int) -> None:
    count = -(-tokens // length)
    if count * length + 1 > len(SOURCE.texts[split]):
        with pytest.raises(DataError, match=f"the {split} split of numbered has"):
            SOURCE.evaluation(split, length=length, tokens=tokens)
        return
    found = SOURCE.evaluation(split, length=length, tokens=tokens)
    assert found.inputs.shape == found.targets.shape == found.target_bytes.shape == (count, length)
    place = 0
    for inputs, targets in zip(found.inputs, found.targets, strict=True):
        assert np.array_equal(inputs[1:], targets[:-1])
        at = SOURCE.texts[split].find(bytes(targets.astype(np.uint8)), place)
        assert at >= place
        place = at + length
    covered = SOURCE.covered(split, length=length, tokens=tokens)
    assert found.target_bytes.sum() == len(covered)
    assert bytes(found.targets.astype(np.uint8).ravel()) == covered


def test_evaluation_spans_the_whole_split() -> None:
    found = SOURCE.evaluation("report", length=10, tokens=50)
    text = SOURCE.texts["report"]
    assert bytes(found.inputs[0].astype(np.uint8)) == text[:10]
    assert bytes(found.targets[-1].astype(np.uint8)) == text[-10:]


def test_check_names_the_split_what_it_has_and_what_it_needs() -> None:
    SOURCE.check(length=100, tokens=900)
    with pytest.raises(DataError, match=r"the selection split of numbered has 1,000 tokens, but .* 1,001"):
        SOURCE.check(length=100, tokens=901)
    with pytest.raises(DataError, match=r"the train split of numbered has 100 tokens, but 1 .* need 129"):
        numbered(train=100).check(length=128, tokens=1)


def test_a_training_text_shorter_than_a_row_is_refused() -> None:
    with pytest.raises(DataError, match="the train split"):
        numbered(train=8).training_batch(seed=0, step=0, rows=1, length=8)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match="no split 'reports'; did you mean 'report'"):
        SOURCE.evaluation("reports", length=8, tokens=8)
