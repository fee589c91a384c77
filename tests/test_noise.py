"""The noise floor: a baseline against its twin, and what a budget of seeds could tell."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import report
from harness.errors import UsageError
from harness.experiment import Request, plan
from harness.fields import identity
from harness.records import Store
from harness.statistics import noise_floor, resolvable_difference
from harness.statistics.floor import allowed
from harness.statistics.paired import compare
from harness.train import build_model, train
from tests import cli, fakes, tiny

SETS = {"model.num_layers": "1", "model.model_dim": "16", "model.num_heads": "2", "model.mlp_dim": "16",
        "data.length": "16", "data.report_tokens": "64", "data.curve_tokens": "32", "train.device": "cpu"}  # fmt: skip


def floor_plan(folder: Path, *arms: str, **more: Any) -> Any:
    sets = {**SETS, "data.corpus": str(cli.text(folder))}
    return plan(Request(name="noise-floor", arms=arms, seeds=3, sets=sets, noise_floor=True, **more), cuda=False)


def weights(run: Any) -> Any:
    return build_model(run, vocab_size=tiny.SOURCE.vocab_size).state_dict()


def test_a_twin_has_the_data_of_its_seed_and_a_start_of_its_own() -> None:
    plain, twin = tiny.run(), tiny.run(train__init_seed=7)
    assert not weights(plain)["layers.0.mixer.q.weight"].equal(weights(twin)["layers.0.mixer.q.weight"])
    seen: list[Any] = []

    class Watched(tiny.Letters):
        def training_batch(self, **asked: Any) -> Any:
            batch = super().training_batch(**asked)
            seen.append(batch.inputs)
            return batch

    losses = [train(run, Watched()).metrics["val_loss_nats"] for run in (plain, twin)]
    half = len(seen) // 2
    assert half == plain.train.steps
    assert all(np.array_equal(one, other) for one, other in zip(seen[:half], seen[half:], strict=True))
    assert losses[0] != losses[1]


def test_a_start_of_the_runs_own_seed_is_the_plain_start() -> None:
    assert all(
        value.equal(weights(tiny.run(seed=3))[name])
        for name, value in weights(tiny.run(seed=3, train__init_seed=3)).items()
    )


def test_runs_without_a_start_of_their_own_keep_their_ids() -> None:
    assert tiny.run().id != tiny.run(train__init_seed=0).id
    assert "init_seed" not in identity(tiny.run().train)


def test_the_plan_is_the_baseline_and_its_twin_with_another_start_each_seed(tmp_path: Path) -> None:
    found = floor_plan(tmp_path, "softmax", "lazy", "sigmoid", baseline="lazy")
    assert [arm.label for arm in found.arms] == ["lazy", "lazy twin"]
    base, twin = (arm.runs for arm in found.arms)
    assert [run.train.seed for run in twin] == [run.train.seed for run in base] == [0, 1, 2]
    starts = [run.train.init_seed for run in twin]
    assert len(set(starts)) == 3 and min(starts) > 1000 and all(run.train.init_seed is None for run in base)
    assert found.arms[1].same_as is None
    assert (found.settings["twin"], found.settings["comparisons"]) == ("lazy twin", 2)


def test_a_start_cannot_be_set_for_one_arm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be the same in all arms"):
        floor_plan(tmp_path, "softmax", "lazy[train.init_seed=3]")


def test_the_floor_is_the_spread_of_the_differences_and_what_seeds_resolve() -> None:
    differences = [0.01, -0.02, 0.03, 0.0]
    floor = noise_floor([(2.0, 2.0 + difference) for difference in differences], 3, 4)
    assert floor is not None
    assert floor.spread == pytest.approx(np.std(differences, ddof=1))
    # chi-square with 3 degrees of freedom has its 2.5 % points at 0.215795 and 9.348404.
    assert floor.low == pytest.approx(floor.spread * math.sqrt(3 / 9.348404), rel=1e-5)
    assert floor.high == pytest.approx(floor.spread * math.sqrt(3 / 0.215795), rel=1e-5)
    assert floor.resolvable == {n: resolvable_difference(floor.spread, n, 3) for n in (4, 8, 16)}
    assert floor.resolvable[4] > floor.resolvable[8] > floor.resolvable[16]
    assert floor.null == () and noise_floor([(2.0, 2.1)], 1, 1) is None


def test_a_difference_of_that_size_is_resolved_in_four_tables_of_five() -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 2000)
    floor = noise_floor([(0.0, difference) for difference in noise], 1, 8)
    assert floor is not None
    drawn = np.random.default_rng(1).normal(floor.resolvable[8], floor.spread, (4000, 1, 8))
    share = compare(drawn, tests=1, level=0.05, margin=0.005).resolved.mean()
    assert 0.77 < share < 0.87


def test_the_table_of_a_twin_says_what_could_be_resolved(tmp_path: Path) -> None:
    base, twin = [2.0, 2.1, 2.05, 2.02], [2.02, 2.08, 2.06, 2.01]
    settings = {**fakes.experiment(["softmax"], 4, {}).settings, "twin": "softmax twin", "comparisons": 2}
    index, store = fakes.study(tmp_path, {"softmax": list(base), "softmax twin": list(twin)}, settings=settings)
    found = report.result(index, store)
    spread = float(np.std(np.subtract(twin, base), ddof=1))
    assert found.floor is not None and found.floor.spread == pytest.approx(spread)
    assert f"standard deviation of {spread:.4f}" in found.notes[0]
    assert "4 seeds " in found.notes[1] and "16 seeds " in found.notes[1] and "2 arms" in found.notes[1]
    assert any("another start for the twin" in line for line in found.fairness)
    payload = report.payload(found)["noise_floor"]
    assert set(payload) == {"pairs", "spread", "comparisons", "resolvable", "null_tables"}
    assert set(payload["resolvable"]) == {"4", "8", "16"} and payload["null_tables"] == []


def test_seeds_that_failed_are_left_out_of_the_floor(tmp_path: Path) -> None:
    settings = {**fakes.experiment(["softmax"], 3, {}).settings, "twin": "softmax twin", "comparisons": 1}
    outcomes: dict[str, list[fakes.Outcome]] = {
        "softmax": [2.0, 2.1, "diverged: nan"],
        "softmax twin": [2.02, 2.08, 2.0],
    }
    index, store = fakes.study(tmp_path, outcomes, settings=settings)
    found = report.result(index, store)
    assert found.floor is not None and found.floor.n == 2
    assert set(found.floor.resolvable) == {3, 6, 12}


def test_the_command_line_prints_the_floor_and_report_prints_it_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = cli.experiment("compare", "softmax", "lazy", out=out, extra=("--noise-floor", "2"))
    assert done.returncode == 0, done.stderr
    assert "softmax twin" in done.stdout and "noise floor of softmax: over 2 seeds" in done.stdout
    again = cli.run("report", "noise-floor", "--out", str(out), "--json")
    assert set(cli.payload(again)["noise_floor"]["resolvable"]) == {"2", "4", "8"}


@pytest.mark.parametrize("spread", [0.0005, 0.05])
def test_tables_drawn_from_runs_without_differences_rarely_hold_a_verdict(spread: float) -> None:
    drawn = np.random.default_rng(3).normal(2.0, spread, (48, 2))
    floor = noise_floor([(float(one), float(other)) for one, other in drawn], 1, 48)
    assert floor is not None and len(floor.null) == 6
    assert all(null.share <= null.allowed for null in floor.null)
    assert float(np.mean([null.share for null in floor.null])) <= 0.05
    # With noise far under the margin nothing is ever called.
    assert (max(null.share for null in floor.null) < 0.005) == (spread < 0.01)


def test_tables_of_one_arm_do_not_follow_the_mean_of_the_pairs() -> None:
    pairs = np.random.default_rng(5).normal(2.0, 0.05, (128, 2))
    plain, shifted = (noise_floor([(a, b + shift) for a, b in pairs], 1, 128) for shift in (0.0, 0.02))
    assert plain is not None and shifted is not None
    for one, other in zip(plain.null[:3], shifted.null[:3], strict=True):
        assert (one.arms, one.share == other.share) == (1, False)
        assert abs(one.share - other.share) < 0.02 and other.share <= other.allowed


def test_what_is_allowed_is_the_level_and_the_error_of_drawing_from_so_many_pairs() -> None:
    assert [round(allowed(1, seeds, 4000, 128), 3) for seeds in (3, 5, 8)] == [0.068, 0.063, 0.060]
    assert allowed(3, 3, 4000, 128) == 0.05
    assert allowed(1, 3, 10**9, 10**9) == pytest.approx(0.05, abs=1e-4)


def test_a_rule_that_calls_too_much_would_be_seen_in_the_drawn_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.statistics.floor.LEVEL", 0.3)
    drawn = np.random.default_rng(3).normal(2.0, 0.05, (48, 2))
    floor = noise_floor([(float(one), float(other)) for one, other in drawn], 1, 48)
    assert floor is not None and min(null.share for null in floor.null) > 0.1


STUDY = Path(__file__).parent.parent / "results" / "noise-pairs"


def test_in_the_committed_study_false_verdicts_stay_under_their_level() -> None:
    store = Store(STUDY)
    (experiment,) = store.all_experiments()
    table = report.result(experiment, store, present=False)
    assert table.floor is not None and table.floor.n == 128
    assert all(record is not None and record.status == "ok" for row in table.arms for record in row.records)
    assert len(table.floor.null) == 6
    assert all(null.share <= null.allowed for null in table.floor.null)
    assert sum(null.share for null in table.floor.null) / 6 <= 0.05
    assert (STUDY / "tables" / f"{experiment.stem}.md").read_text() == report.markdown(table)


def test_one_seed_is_no_floor() -> None:
    done = cli.run("compare", "softmax", "--noise-floor", "1")
    assert done.returncode == 2 and "at least 2 seeds" in done.stderr
