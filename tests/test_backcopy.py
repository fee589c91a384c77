from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import BACKCOPY, load
from harness.data.backcopy import BOS, Backcopy, backcopy
from harness.errors import UsageError

TEXT = ("the cat sat on the mat and ate the hat; a rat ran at dawn, though no bird sang.\n" * 50).encode()
TASK = backcopy("text", TEXT)
PINNED = " a h a sasasasasasasasa"
FINGERPRINT = "01beb00cab763bb7"


def follows(task: Backcopy, rows: Any) -> None:
    """The rule of the task, read off whole sequences [n, T + 1]."""
    assert (rows[:, 0] == BOS).all() and (rows[:, 1:] != BOS).all()
    assert not np.isin(rows[:, 1], task.triggers).any()
    after = np.isin(rows[:, 1:-1], task.triggers)
    assert (rows[:, 2:][after] == rows[:, :-2][after]).all()
    pairs = {(TEXT[i], TEXT[i + 1]) for i in range(len(TEXT) - 1)}
    for row, copied in zip(rows, after, strict=True):
        for place in np.flatnonzero(~copied):
            assert (task.alphabet[row[place + 1] - 1], task.alphabet[row[place + 2] - 1]) in pairs


@settings(max_examples=25)
@given(seed=st.integers(0, 2**64 - 1), step=st.integers(0, 2**64 - 1), length=st.integers(8, 60))
def test_after_a_trigger_comes_the_token_before_it_and_after_any_other_a_pair_of_the_text(
    seed: int, step: int, length: int
) -> None:
    batch = TASK.training_batch(seed=seed, step=step, rows=3, length=length)
    assert batch.inputs.shape == batch.targets.shape == (3, length)
    assert batch.inputs.dtype == batch.targets.dtype == np.int64
    follows(TASK, np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1))
    assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()


@settings(max_examples=25)
@given(rows=st.integers(1, 6), fewer=st.integers(1, 6), seed=st.integers(0, 1000))
def test_a_row_does_not_depend_on_how_many_there_are(rows: int, fewer: int, seed: int) -> None:
    few, many = sorted((rows, fewer))
    whole = TASK.training_batch(seed=seed, step=1, rows=many, length=20).inputs
    assert (TASK.training_batch(seed=seed, step=1, rows=few, length=20).inputs == whole[:few]).all()


def test_seeds_steps_and_splits_are_different_draws_and_each_is_repeatable() -> None:
    draws = [TASK.training_batch(seed=s, step=t, rows=4, length=30).inputs for s, t in ((0, 0), (1, 0), (0, 1))]
    draws += [TASK.evaluation(split, length=30, tokens=120).inputs for split in ("train", "selection", "report")]
    assert all((a != b).any() for i, a in enumerate(draws) for b in draws[:i])
    assert (TASK.training_batch(seed=0, step=0, rows=4, length=30).inputs == draws[0]).all()
    assert (TASK.evaluation("report", length=30, tokens=120).inputs == draws[-1]).all()


def test_an_evaluation_tells_trigger_targets_from_the_others() -> None:
    found = TASK.evaluation("report", length=40, tokens=390)
    assert found.inputs.shape == (10, 40)
    trigger, other = found.groups["trigger"], found.groups["other"]
    assert (trigger ^ other).all() and trigger.any()
    assert (trigger == np.isin(found.inputs, TASK.triggers)).all()
    copied = trigger[:, 1:]
    assert (found.targets[:, 1:][copied] == found.inputs[:, :-1][copied]).all()


def test_the_triggers_are_the_four_most_frequent_letters() -> None:
    counts = {letter: TEXT.count(letter) for letter in set(TEXT) if chr(letter).isalpha()}
    expected = sorted(sorted(counts, key=lambda letter: (-counts[letter], -letter))[:4])
    assert [ord(letter) for letter in TASK.spell(TASK.triggers)] == expected


def test_followers_come_as_often_as_in_the_text() -> None:
    rows = TASK.evaluation("train", length=500, tokens=100_000)
    after = rows.targets[rows.inputs == 1 + TASK.alphabet.index(ord("o"))]
    drawn = np.bincount(after, minlength=TASK.vocab_size) / len(after)
    followers = [TEXT[i + 1] for i in range(len(TEXT) - 1) if TEXT[i] == ord("o")]
    for letter in set(followers):
        share = followers.count(letter) / len(followers)
        noise = 5 * (share / len(after)) ** 0.5
        assert drawn[1 + TASK.alphabet.index(letter)] == pytest.approx(share, abs=noise + 1e-3)


def test_the_draws_of_this_version_stay_what_they_are() -> None:
    batch = TASK.training_batch(seed=3, step=5, rows=1, length=24)
    assert "".join(TASK.spell(batch.inputs[0])[1:]) == PINNED
    assert TASK.fingerprint[:16] == FINGERPRINT


def test_another_text_is_another_fingerprint_and_the_version_is_its_name() -> None:
    assert backcopy("text", TEXT + b"zz").fingerprint != TASK.fingerprint
    assert backcopy("other name", TEXT).fingerprint == TASK.fingerprint
    assert TASK.name == BACKCOPY and BACKCOPY in TASK.description


def test_the_task_is_loaded_over_a_text_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"".join(b"%d sheep and %d goats stand on hill %d.\n" % (n, n % 9, n % 7) for n in range(3000)))
    found = load(f"{BACKCOPY}:{file}")
    assert isinstance(found, Backcopy) and "text.txt" in found.description


@pytest.mark.parametrize(
    ("corpus", "tokenizer", "said"),
    [(BACKCOPY, "bpe:300", "leave --tokenizer"), (f"{BACKCOPY}:nowhere", "bytes", "nowhere")],
)
def test_what_the_task_cannot_be_made_of_is_said(corpus: str, tokenizer: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(corpus, tokenizer)


def test_too_few_letters_and_too_short_sequences_are_refused() -> None:
    with pytest.raises(UsageError, match="a to z"):
        backcopy("numbers", b"1234 abc " * 50)
    with pytest.raises(UsageError, match="at least 8 tokens"):
        TASK.check(length=7, tokens=10)
