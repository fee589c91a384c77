from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import measures
from harness.data import IGNORED, Evaluation
from harness.data.backcopy import backcopy
from harness.measures import extrapolation, recall
from harness.measures.finding import NotDefinedError
from harness.records import Store
from harness.train import build_model, train
from tests import tiny

TASK = backcopy("text", b"the cat sat on the mat and ate the hat; a rat ran at dawn, though no bird sang.\n" * 50)


def found(arm: str, source: Any = tiny.SOURCE, **sets: Any) -> dict[str, Any]:
    run = tiny.run(arm, **sets)
    run = dataclasses.replace(run, fingerprint=source.fingerprint)
    model = build_model(run, vocab_size=source.vocab_size)
    return {name: finding.values for name, finding in measures.measure(model, run, source, measures.NAMES).items()}


def test_measuring_while_training_changes_no_bit_of_it(tmp_path: Path) -> None:
    run, store = tiny.run("lazy"), Store(tmp_path)
    plain = train(run, tiny.SOURCE)
    watched = train(run, tiny.SOURCE, callbacks=[measures.Watch(store, tiny.SOURCE, 2, "code")])
    assert watched.metrics == plain.metrics and watched.curve == plain.curve
    assert plain.model is not None and watched.model is not None
    other = watched.model.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in plain.model.state_dict().items())


def test_each_look_leaves_a_record_of_each_measure(tmp_path: Path) -> None:
    run, store = tiny.run("lazy", train__steps=7), Store(tmp_path)
    train(run, tiny.SOURCE, callbacks=[measures.Watch(store, tiny.SOURCE, 3, "code")])
    records = store.all_measurements()
    assert {(record.measure, record.step) for record in records} == {
        (name, step) for name in measures.WHILE_TRAINING for step in (3, 6, 7)
    }
    assert all(record.values["code_hash"] == "code" and record.run == run.id for record in records)
    assert {(r.measure, r.step) for r in records if r.arrays is not None and r.measure != "scalars"} == {
        (name, 7) for name in ("sink", "mass", "sparsity", "focus", "scale", "repeated")
    }
    taus = [store.arrays(r) for r in sorted(records, key=lambda r: r.step) if r.measure == "scalars"]
    assert [array["tau"].shape for array in taus] == [(1, 2)] * 3
    assert not np.array_equal(taus[0]["tau"], taus[-1]["tau"])
    assert np.abs(taus[0]["tau_gradient"]).max() > 0 and taus[0]["bias_gradient"].shape == taus[0]["bias"].shape


@pytest.mark.parametrize("arm", ["softmax", "lazy", "mamba", "stick_breaking", "sigmoid"])
def test_every_measure_is_defined_or_says_why_not(arm: str) -> None:
    values = found(arm)
    assert set(values) == set(measures.NAMES)
    missing = {name: value["not_defined"] for name, value in values.items() if "not_defined" in value}
    assert missing.keys() == ({"scalars"} if arm != "lazy" else set())
    assert all(missing.values())


def test_what_means_nothing_for_a_mixer_is_not_given() -> None:
    assert "keys_and_values" in found("mamba")["scale"]
    sigmoid = found("sigmoid")["sparsity"]
    assert "plain_softmax_below_uniform_percent" not in sigmoid and "no softmax" in sigmoid["plain_softmax"]
    assert (found("mamba")["example"]["of"], found("lazy")["example"]["of"]) == ("channel", "head")
    assert "one head" in found("softmax", model__num_heads=1)["redundancy"]["not_defined"]


def test_softmax_has_full_rows_and_lazy_attention_starts_with_a_silent_first_row() -> None:
    plain, lazy = found("softmax"), found("lazy")
    assert plain["mass"]["row_mass_mean"] == pytest.approx(1, abs=1e-6)
    assert plain["mass"]["dead_rows_percent"] == 0 and plain["sparsity"]["zeros_percent"] == 0
    assert lazy["mass"]["row_mass_mean"] < 1
    assert lazy["mass"]["dead_rows_percent"] == pytest.approx(100 / 12)
    assert lazy["sparsity"]["zeros_percent"] == pytest.approx(
        lazy["sparsity"]["plain_softmax_below_uniform_percent"], abs=3
    )


def test_a_hybrid_is_measured_layer_by_layer() -> None:
    run = tiny.run("lazy", model__num_layers=2, model__pattern="lazy,softmax")
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, backend="reference,reference"))
    model = build_model(run, vocab_size=tiny.SOURCE.vocab_size)
    masses = measures.measure(model, run, tiny.SOURCE, ["mass"])["mass"].values["row_mass_by_layer"]
    assert masses[0] < 0.9 and masses[1] == pytest.approx(1, abs=1e-6)


def test_groups_of_a_task_are_told_apart() -> None:
    values = found("softmax", TASK)
    assert 0 < values["sink"]["first_weight_trigger_mean"] < 1 and 0 < values["sink"]["first_weight_other_mean"] < 1
    assert len(values["extrapolation"]["trigger_loss_nats_by_factor"]) == 4
    assert values["example"]["tokens"][0] == "BOS"


def test_longer_sequences_are_scored_by_position() -> None:
    run = dataclasses.replace(tiny.run("softmax"), fingerprint=TASK.fingerprint)
    model = build_model(run, vocab_size=TASK.vocab_size)
    finding = extrapolation.measure(model, run, TASK)
    assert finding.values["factors"] == [1, 2, 4, 8]
    ends, losses = finding.arrays["bucket_ends"], finding.arrays["loss"]
    assert ends.tolist() == list(range(3, 97, 3)) and losses.shape == ends.shape
    # Buckets of equal size: their mean is the mean of the whole sequences.
    assert losses.mean() == pytest.approx(finding.values["loss_nats_at_8x"], rel=1e-6)


def test_learned_positions_end_where_training_did() -> None:
    run = tiny.run("softmax", model__positions="learned")
    with pytest.raises(NotDefinedError, match="training length, 12 tokens"):
        extrapolation.measure(build_model(run, vocab_size=16), run, tiny.SOURCE)
    assert "12 tokens" in found("softmax", model__positions="learned")["extrapolation"]["not_defined"]


def test_a_target_is_recalled_where_its_pair_has_stood_before() -> None:
    stream = np.array([[1, 2, 3, 1, 2, 1, 2, 4], [5, 5, 5, 5, 6, 5, 5, 6]])
    data = Evaluation(stream[:, :-1], stream[:, 1:], np.ones((2, 7), dtype=np.int64))
    assert recall.repeats(data).tolist() == [
        [False, False, False, True, False, True, False],
        [False, True, True, False, False, True, True],
    ]
    ignored = np.where(np.arange(7) < 2, IGNORED, data.targets)
    assert not recall.repeats(dataclasses.replace(data, targets=ignored))[1, :3].any()


def test_recall_splits_the_loss_without_a_rest() -> None:
    run = tiny.run("softmax")
    model = build_model(run, vocab_size=16)
    values = recall.measure(model, run, tiny.SOURCE).values
    share = values["recall_tokens_percent"] / 100
    whole = share * values["recall_loss_nats"] + (1 - share) * values["other_loss_nats"]
    data = tiny.SOURCE.evaluation("report", length=12, tokens=96)
    with torch.no_grad():
        logits = model(torch.from_numpy(data.inputs))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(data.targets).flatten())
    assert whole == pytest.approx(float(loss), rel=1e-5) and 0 < share < 1 and math.isfinite(whole)


def test_a_repeated_token_moves_only_where_the_mass_of_a_row_grows_with_its_length() -> None:
    values = found("softmax[positions=none]")["repeated"]
    assert max(values["moved_by_copies"]) < 1e-6
    assert found("sigmoid[positions=none]")["repeated"]["moved_by_copies"][0] > 1e-3
