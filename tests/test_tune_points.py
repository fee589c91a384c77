"""Where points come from, and what n of them are worth."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.tune.dims import Dim
from harness.tune.effort import STARTUP, Effort
from harness.tune.points import distributions, drawn
from harness.tune.results import VariantResult, expected_best
from tests import tuning

RATE = Dim(name="train.learning_rate", low=1e-4, high=1e-1, log=True)
WARMUP = Dim(name="train.warmup", low=0.0, high=0.3)
TAU = Dim(name="tau_start", low=-1.5, high=0.5)
MODE = Dim(name="mode", options=("a", "b"))


def test_variants_share_the_values_of_the_fields_they_share() -> None:
    for slot in range(1, 6):
        few = drawn(Effort(sampler="random"), 0, slot, [RATE, WARMUP])
        more = drawn(Effort(sampler="random"), 0, slot, [RATE, TAU, WARMUP])
        assert few is not None and more is not None
        assert more.items() >= few.items()


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_a_point_depends_on_seed_study_and_number_alone(sampler: str) -> None:
    dims = [RATE, WARMUP, TAU, MODE]
    points = [str(drawn(Effort(sampler=sampler, seed=seed), study, slot, dims))
              for seed in range(2) for study in range(2) for slot in range(1, 9)]  # fmt: skip
    again = [str(drawn(Effort(sampler=sampler, seed=seed), study, slot, dims))
             for seed in range(2) for study in range(2) for slot in range(1, 9)]  # fmt: skip
    assert points == again
    assert len(set(points)) == len(points)


def test_qmc_fills_the_range_more_evenly_than_chance() -> None:
    shares = sorted(RATE.share(drawn(Effort(sampler="qmc"), 0, slot, [RATE, TAU])[RATE.name]) for slot in range(1, 17))  # type: ignore[index]
    assert all(abs(share - (place + 0.5) / 16) < 0.07 for place, share in enumerate(shares))


def test_tpe_is_asked_only_after_the_first_points() -> None:
    asked = [drawn(Effort(), 0, slot, [RATE]) is None for slot in range(1, STARTUP + 2)]
    assert asked == [False] * (STARTUP - 1) + [True, True]
    assert drawn(Effort(), 0, 1, [RATE]) == drawn(Effort(sampler="random"), 0, 1, [RATE])


def test_dimensions_become_distributions() -> None:
    whole = Dim(name="n", low=1, high=8, whole=True)
    found = distributions([RATE, MODE, whole])
    assert (found[RATE.name].low, found[RATE.name].high, found[RATE.name].log) == (1e-4, 1e-1, True)  # type: ignore[attr-defined]
    assert found["mode"].choices == ("a", "b")  # type: ignore[attr-defined]
    assert type(found["n"]).__name__ == "IntDistribution" and isinstance(whole.at(0.4), int)


losses = st.one_of(st.none(), st.floats(0, 5).map(lambda x: round(x, 3)))


@settings(max_examples=60)
@given(st.floats(0, 5), st.lists(losses, max_size=5))
def test_the_expected_best_is_the_mean_over_all_orders(first: float, rest: list[float | None]) -> None:
    found = expected_best(tuning.study([first, *rest]))
    values = [math.inf if value is None else value for value in rest]
    for n in range(len(values) + 1):
        bests = [min([first, *order[:n]]) for order in itertools.permutations(values)]
        assert found[n] == pytest.approx(sum(bests) / len(bests))


def test_where_all_of_n_trials_may_fail_there_is_no_expected_best() -> None:
    assert expected_best(tuning.study([None, None, 2.0, 1.0])) == [None, None, pytest.approx(4 / 3), pytest.approx(1.0)]


def test_the_curve_is_the_best_so_far() -> None:
    assert tuning.study([None, 3.0, 4.0, 2.0, None]).curve == [None, 3.0, 3.0, 2.0, 2.0]


def test_several_studies_give_their_mean_and_range() -> None:
    both = VariantResult(label="a", studies=(tuning.study([3.0, 1.0]), tuning.study([2.0, None])))
    assert both.curve == [2.5, 1.5]
    assert both.span == [(2.0, 3.0), (1.0, 2.0)]
    assert (both.trials, both.count("failed"), both.best and both.best.value) == (4, 1, 1.0)


@pytest.mark.parametrize(("field", "value"), [("trials", 0), ("sampler", "grid"), ("pruning", "some"), ("seed", -1)])
def test_an_effort_that_cannot_be_made_is_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"--{field} {value}"):
        Effort(**{field: value}).check()  # type: ignore[arg-type]
