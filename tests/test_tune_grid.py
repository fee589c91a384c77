"""One setting on one grid for all arms: further points while a best one lies at an end."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.commands import tune
from harness.errors import UsageError
from harness.experiment import Plan
from harness.records import Store
from harness.tune import grid
from harness.tune.process import described
from tests import tuning

HERE = {**described(os.getpid()), "parent": described(os.getpid())}
Loss = Callable[[str, float, int], float]


@pytest.fixture
def retune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """`ablate --retune learning_rate` of the arms, with losses from a formula instead of trainings."""

    def retuned(loss: Loss, *arms: str, studies: int = 1, seeds: int = 2, field: str = "learning_rate") -> Plan:
        def search(ledgers: Any, setup: Any, **_: Any) -> None:
            for ledger in ledgers:
                while (attempt := ledger.take(HERE)) is not None:
                    train = attempt.run.train
                    value = loss(ledger.label, train.learning_rate, train.seed)
                    status = "ok" if math.isfinite(value) else "diverged"
                    ledger.close(attempt, status, None, {10: value} if status == "ok" else {})

        monkeypatch.setattr(grid, "search", search)
        request = tuning.request(tmp_path / "out", *arms)
        request = dataclasses.replace(request, seeds=seeds)
        return tune.retuned(
            request, field, Store(tmp_path / "out"), studies=studies, workers=1, notify=lambda event: None
        )

    return retuned


def rates(plan: Plan) -> dict[str, set[float]]:
    return {arm.label: {run.train.learning_rate for run in arm.runs} for arm in plan.arms}


def valley(best: dict[str, float]) -> Loss:
    return lambda label, rate, seed: 1 + math.log(rate / best[label]) ** 2 + seed % 2 / 100


def test_each_arm_gets_its_own_best_value_and_its_defaults_beside_it(retune: Any) -> None:
    plan = retune(valley({"softmax": 0.02, "sigmoid": 0.005}), "softmax", "sigmoid")
    assert rates(plan) == {"softmax tuned": {0.02}, "sigmoid tuned": {0.005},
                           "softmax defaults": {0.01}, "sigmoid defaults": {0.01}}  # fmt: skip
    assert plan.baseline == "softmax tuned" and plan.seeds == (0, 1)
    assert "one grid of 5 values, 2 seeds" in plan.settings["tuning"]["words"]
    assert plan.settings["tuning"]["at_edge"] == {}


def test_the_grid_grows_for_all_arms_while_a_best_value_lies_at_its_end(retune: Any) -> None:
    plan = retune(valley({"softmax": 0.32, "sigmoid": 0.01}), "softmax", "sigmoid")
    assert rates(plan)["softmax tuned"] == {0.32} and rates(plan)["sigmoid tuned"] == {0.01}
    assert "9 values" in plan.settings["tuning"]["words"]
    sigmoid = next(arm for arm in plan.arms if arm.label == "sigmoid defaults")
    assert sigmoid.same_as == "sigmoid tuned", "the common value was its best"


def test_a_loss_that_falls_for_ever_ends_at_an_edge_that_is_named(retune: Any) -> None:
    plan = retune(lambda label, rate, seed: 1 / (1 + rate), "softmax")
    assert f"{grid.MOST} values" in plan.settings["tuning"]["words"]
    assert plan.settings["tuning"]["at_edge"] == {"softmax": ["train.learning_rate"]}


def test_a_value_at_which_a_seed_failed_is_not_the_best(retune: Any) -> None:
    def loss(label: str, rate: float, seed: int) -> float:
        return math.inf if (rate, seed) == (0.02, 1001) else valley({"softmax": 0.02})(label, rate, seed)

    plan = retune(loss, "softmax")
    assert rates(plan)["softmax tuned"] == {0.01}


def test_independent_grids_have_seeds_of_their_own_and_share_out_those_of_the_table(retune: Any) -> None:
    seen = set()

    def loss(label: str, rate: float, seed: int) -> float:
        seen.add(seed)
        return valley({"softmax": {500: 0.01, 501: 0.02, 502: 0.005}[seed // 2]})(label, rate, seed)

    plan = retune(loss, "softmax", studies=3, seeds=6)
    assert seen == set(range(1000, 1006))
    assert [run.train.learning_rate for run in plan.arms[0].runs] == [0.01, 0.02, 0.005] * 2
    assert plan.settings["tuning"]["studies"] == 3


def test_a_grid_that_another_set_of_arms_extended_the_other_way_keeps_its_points(retune: Any) -> None:
    seen: list[tuple[str, float]] = []

    def loss(label: str, rate: float, seed: int) -> float:
        seen.append((label, rate))
        return valley({"softmax": 0.01, "lazy": 0.00125, "sigmoid": 0.08})(label, rate, seed)

    retune(loss, "softmax", "lazy")
    plan = retune(loss, "softmax", "sigmoid")
    assert rates(plan)["softmax tuned"] == {0.01} and rates(plan)["sigmoid tuned"] == {0.08}
    grids = {arm: sorted(rate for label, rate in seen if label == arm) for arm in ("softmax", "sigmoid")}
    assert set(grids["sigmoid"]) <= set(grids["softmax"]), "one grid for all arms"
    assert max(map(grids["softmax"].count, grids["softmax"])) == grid.SEEDS, "nothing is trained twice"


def test_an_arm_that_fails_everywhere_is_said(retune: Any) -> None:
    with pytest.raises(UsageError, match="all trials of softmax failed"):
        retune(lambda label, rate, seed: math.inf, "softmax")


@pytest.mark.parametrize(("field", "arm", "said"), [
    ("warmup", "softmax", "no setting to retune"), ("learning_rat", "softmax", "did you mean 'learning_rate'"),
    ("learning_rate", "softmax[train.learning_rate=0.1]", "sets train.learning_rate itself"),
])  # fmt: skip
def test_what_has_no_grid_is_refused(retune: Any, field: str, arm: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        retune(valley({}), arm, field=field)
