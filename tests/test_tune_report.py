"""What is said of a search, and when a table of tuned arms gives a verdict."""

from __future__ import annotations

import math
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from harness.events import Event
from harness.report.study_view import StudyView
from harness.report.tuned import ONE_STUDY, judge_tuned
from harness.report.tuning import all_failed, render_tuning, tuning_csv, tuning_markdown, tuning_payload
from harness.report.tuning_figure import draw
from harness.tune.dims import Dim
from harness.tune.effort import Effort
from harness.tune.results import Trial, TuneResult, VariantResult
from tests import tuning

PAIRS = {"a tuned": "a defaults", "b tuned": "b defaults"}


def searched() -> TuneResult:
    rate = Dim(name="train.learning_rate", low=1e-4, high=1e-1, log=True)
    rows = [(0, "done", 0.01, 2.0, 8), (1, "pruned", 0.0002, None, 2), (2, "done", 0.099, 1.5, 8),
            (3, "failed", 0.1, None, 1)]  # fmt: skip
    trials = tuple(
        Trial(slot=slot, state=state, settings={"train.learning_rate": rate_}, value=value, steps=steps, curve={},  # type: ignore[arg-type]
              status="diverged" if state == "failed" else "", error="the loss is nan" if state == "failed" else None)
        for slot, state, rate_, value, steps in rows
    )  # fmt: skip
    study = tuning.study([], trials=trials, asked=4, dims=(rate,), importances={"train.learning_rate": 1.0})
    return tuning.result(VariantResult(label="softmax", studies=(study,)), workers=2)


def shown(result: TuneResult, width: int) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_tuning(result, width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [80, 140])
def test_a_search_says_what_each_arm_got(width: int) -> None:
    text = shown(searched(), width)
    plain = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "12 trials, tpe, median pruning" in plain
    assert "best: softmax[train.learning_rate=0.099]" in plain
    assert "the best learning_rate lies at the edge" in plain
    assert "1 of 4 trials failed; trial 3 diverged: the loss is nan" in plain
    assert "2 workers: TPE and pruning look at the trials that have ended" in plain
    row = next(line.split() for line in text.splitlines() if line.startswith("softmax"))
    assert row[:8] == ["softmax", "4", "1", "1", "1", "1.5000", "2.0000", "19"]


def test_points_that_depend_on_nothing_need_no_word_about_workers() -> None:
    result = tuning.result(VariantResult(label="a", studies=(tuning.study([1.0]),)), workers=4,
                           effort=Effort(sampler="qmc", pruning="none"))  # fmt: skip
    assert "workers" not in shown(result, 100)


def test_json_holds_plain_numbers() -> None:
    (variant,) = tuning_payload(searched())["variants"]
    assert variant == {
        "name": "softmax", "trials": 4, "pruned": 1, "failed": 1, "best": {"train.learning_rate": 0.099},
        "best_value": 1.5, "at_edge": ["train.learning_rate"], "curve": [2.0, 2.0, 1.5, 1.5],
        "range": [[2.0, 2.0], [2.0, 2.0], [1.5, 1.5], [1.5, 1.5]], "expected": None,
        "importances": {"train.learning_rate": 1.0},
    }  # fmt: skip


def test_best_so_far_has_the_range_over_studies_and_what_random_orders_would_give() -> None:
    several = VariantResult(label="b", studies=(tuning.study([3.0, 1.0]), tuning.study([2.0, 2.0])))
    drawn = tuning.result(several, effort=Effort(sampler="random", pruning="none"))
    (variant,) = tuning_payload(drawn)["variants"]
    assert (variant["curve"], variant["range"]) == ([2.5, 1.5], [[2.0, 3.0], [1.0, 2.0]])
    assert variant["expected"] == [2.5, 1.5]
    for text in (shown(drawn, 140), tuning_markdown(drawn, "x.svg")):
        assert "b: best after 1: 2.5000 (2.0000 to 3.0000), 2: 1.5000 (1.0000 to 2.0000) trials" in text
        assert "b: expected best after 1: 2.5000, 2: 1.5000 trials" in text


def test_an_arm_without_a_finished_trial_has_nothing_to_show_and_says_so() -> None:
    result = tuning.result(VariantResult(label="a", studies=(tuning.study([None, None]),)))
    assert tuning_payload(result)["variants"][0]["best_value"] is None
    assert all_failed(result) == ["all 2 trials of a failed: diverged: not finite"]
    assert "—" in shown(result, 80) and draw(result)["svg"]


def test_tables_on_disk_hold_every_trial_and_the_same_bytes() -> None:
    assert len(tuning_csv(searched()).splitlines()) == 5
    assert tuning_markdown(searched(), "x.svg") == tuning_markdown(searched(), "x.svg")
    several = VariantResult(label="b", studies=(tuning.study([3.0, 1.0]), tuning.study([2.0, 2.0])))
    drawn = tuning.result(several, effort=Effort(sampler="random", pruning="none"))
    first, second = draw(drawn), draw(drawn)
    assert first == second
    assert b"best selection loss" in first["svg"] and first["png"].startswith(b"\x89PNG")


def test_progress_is_a_line_a_trial_where_there_is_no_terminal() -> None:
    console = Console(file=StringIO(), width=100, color_system=None)
    with StudyView(console) as view:
        view(Event(kind="planned", label="lazy", total=4, left=3, loss=1.5))
        view(Event(kind="ended", label="lazy", seed=0, status="ok", loss=1.25))
        view(Event(kind="ended", label="lazy", seed=1, status="stopped", loss=3.5))
        view(Event(kind="ended", label="lazy", seed=2, status="diverged", error="nan", loss=math.nan))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == ["[2/4] lazy trial 0: 1.2500, best 1.2500", "[3/4] lazy trial 1: pruned at 3.5000, best 1.2500",
                     "[4/4] lazy trial 2: diverged: nan"]  # fmt: skip


def losses(a: list[float], b: list[float]) -> dict[str, list[float | None]]:
    return {"a tuned": [*a], "b tuned": [*b], "a defaults": [x + 1 for x in a], "b defaults": [x + 1 for x in b]}


def test_one_study_gets_an_interval_and_no_verdict() -> None:
    found = judge_tuned(losses([1.0, 1.01, 0.99], [2.0, 2.01, 1.99]), "a tuned", {}, {"studies": 1, "pairs": PAIRS})
    assert found["b tuned"].verdict == ONE_STUDY and found["b tuned"].p is None
    assert found["b tuned"].difference is not None and found["b tuned"].difference.mean == pytest.approx(1.0)
    assert found["a tuned"].verdict == "baseline"
    assert {found[label].verdict for label in PAIRS.values()} == {"not tested"}


def test_a_failed_arm_is_a_failed_arm_whatever_the_studies() -> None:
    found = judge_tuned(losses([1.0, 1.0], [math.nan, math.nan]), "a tuned", {}, {"studies": 1, "pairs": PAIRS})
    assert found["b tuned"].verdict == "worse (failed)"


def test_three_studies_get_a_verdict_whose_unit_is_the_study() -> None:
    # Seeds of a study share their settings: study 0 has seeds 0 and 3, and so on.
    a, b = [1.0, 1.1, 0.9, 1.02, 1.08, 0.92], [2.0, 2.1, 1.9, 2.04, 2.06, 1.94]
    found = judge_tuned(losses(a, b), "a tuned", {}, {"studies": 3, "pairs": PAIRS})
    row = found["b tuned"]
    assert (row.verdict, row.n, row.seeds) == ("worse", 3, 6)
    assert row.difference is not None and row.difference.mean == pytest.approx(1.0, abs=0.02)
    assert found["a tuned"].value is not None and found["a tuned"].value.mean == pytest.approx(sum(a) / 6)
    assert found["b defaults"].n == 6


def test_studies_that_chose_well_or_badly_by_luck_make_no_false_verdict() -> None:
    # Two arms without a difference, whose studies differ by luck more than their seeds do.
    random, tables, wrong = np.random.default_rng(0), 150, 0
    for _ in range(tables):
        luck = random.normal(0, 0.05, size=(2, 3)).repeat(3, axis=0).reshape(2, 3, 3)
        a, b = (arm.ravel() + random.normal(0, 0.002, 9) for arm in luck)
        found = judge_tuned(losses(a.tolist(), b.tolist()), "a tuned", {}, {"studies": 3, "pairs": PAIRS})
        wrong += found["b tuned"].verdict in ("better", "worse")
    # At the promised rate of 5 % more than 14 of 150 are less likely than one in a hundred.
    assert wrong <= 14
