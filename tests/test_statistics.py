"""The verdict rule on single tables: what each word means and what failures do."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from harness.errors import UsageError
from harness.statistics import Judgement, judge, resolvable_difference, sign_flip_p
from harness.statistics.noise import pooled_freedom
from harness.statistics.paired import compare

NAN = math.nan
BASE = [2.00, 2.10, 2.20, 2.05, 2.15]
NOISE = [0.010, -0.010, 0.004, -0.006, 0.002]


def shifted(by: float, noise: list[float] = NOISE) -> list[float]:
    return [loss + by + e for loss, e in zip(BASE, noise, strict=True)]


def one(values: list[float | None], **options: float) -> Judgement:
    return judge({"base": BASE, "arm": values}, baseline="base", **options)["arm"]


# --- the rule


def test_one_arm_is_the_ordinary_paired_t_test():
    arm = shifted(0.01)
    expected = stats.ttest_rel(arm, BASE)
    low, high = expected.confidence_interval(0.95)
    got = one(arm)
    assert got.difference is not None
    assert (got.difference.low, got.difference.high) == pytest.approx((low, high), rel=1e-9)
    assert got.p == pytest.approx(expected.pvalue, rel=1e-9)


def test_several_arms_share_one_spread_and_pay_for_their_number():
    arms = {"a": shifted(0.02), "b": shifted(0.0, [0.004, 0.0, -0.012, 0.006, 0.002])}
    table = judge({"base": BASE, **arms}, baseline="base")
    differences = np.array(list(arms.values())) - np.array(BASE)
    spread = math.sqrt(differences.var(axis=1, ddof=1).mean())
    own = differences.std(axis=1, ddof=1)
    half = stats.t.ppf(1 - 0.05 / 4, 4 * 4 * 2 / 5) * np.maximum(spread, own) / math.sqrt(5)
    for row, arm in enumerate(arms):
        interval = table[arm].difference
        assert interval is not None
        assert interval.high - interval.mean == pytest.approx(half[row], rel=1e-9)


def test_degrees_of_freedom_match_the_traces_they_abbreviate():
    """Satterthwaite from the full covariance of a table with holes, against the closed form."""
    seen = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]], dtype=bool)
    blocks = [np.diag(row.astype(float)) - np.outer(row, row) / row.sum() for row in seen]
    zero = np.zeros((5, 5))
    centre = np.block([[blocks[a] if a == b else zero for b in range(4)] for a in range(4)])
    both = np.kron(np.ones((4, 4)) + np.eye(4), np.eye(5)) @ centre
    expected = np.trace(both) ** 2 / np.trace(both @ both)

    values = np.where(seen, np.random.default_rng(0).normal(size=seen.shape), NAN)
    freedom = compare(values, tests=4, level=0.05, margin=0.0).freedom
    assert freedom == pytest.approx(expected * np.array([3, 3, 1, 1]) / 3)
    full = compare(np.random.default_rng(0).normal(size=(6, 5)), tests=6, level=0.05, margin=0.0).freedom
    assert full == pytest.approx(pooled_freedom(6, 5))


def test_p_is_below_the_level_exactly_where_the_interval_leaves_zero_out():
    rng = np.random.default_rng(1)
    sides = set()
    for _ in range(200):
        noise = rng.normal(size=(4, 4))
        noise[1] += 2.0
        table = judge({f"{i}": list(row) for i, row in enumerate(noise)}, baseline="0", margin=0.0)
        for judgement in list(table.values())[1:]:
            assert judgement.difference is not None and judgement.p is not None
            outside = judgement.difference.low > 0 or judgement.difference.high < 0
            assert outside == (judgement.p <= 0.05)
            assert outside == (judgement.verdict in ("better", "worse"))
            sides.add(outside)
    assert sides == {True, False}


# --- the words


def test_verdicts_say_which_side_and_which_size():
    assert one(shifted(-0.05)).verdict == "better"
    assert one(shifted(0.05)).verdict == "worse"
    assert one(shifted(0.0, [e / 10 for e in NOISE])).verdict == "equal within 0.005"
    assert one(shifted(0.004)).verdict == "not resolved"


def test_a_sure_difference_below_the_margin_is_not_better():
    tiny = shifted(-0.004, [e / 100 for e in NOISE])
    assert one(tiny).verdict == "equal within 0.005"
    assert one(tiny, margin=0.001).verdict == "better"
    straddling = shifted(-0.0045, [e / 10 for e in NOISE])
    got = one(straddling)
    assert got.difference is not None
    assert got.difference.low < -0.005 and got.difference.high < 0
    assert got.verdict == "not resolved"


def test_identical_losses_are_called_identical_without_dividing_by_zero():
    got = one(list(BASE))
    assert (got.verdict, got.p) == ("identical", 1.0)
    assert got.difference == dataclasses.replace(got.difference, mean=0.0, low=0.0, high=0.0)
    noisy = judge({"base": BASE, "twin": BASE, "arm": shifted(0.0)}, baseline="base")["twin"]
    assert noisy.verdict == "identical"
    assert noisy.difference is not None and noisy.difference.high > 0


def test_a_constant_difference_is_judged_by_its_size():
    base = [1.0, 2.0, 4.0]
    for by, verdict in ((0.5, "worse"), (-0.5, "better"), (2.0**-9, "equal within 0.005")):
        got = judge({"base": base, "arm": [x + by for x in base]}, baseline="base")["arm"]
        assert got.verdict == verdict
        assert got.difference == dataclasses.replace(got.difference, mean=by, low=by, high=by)
        assert (got.p, got.resolvable) == (0.0, 0.005)


def test_twins_add_nothing_to_the_spread():
    alone = judge({"base": BASE, "a": shifted(0.0), "gone": [None] * 5}, baseline="base")["a"]
    for twin in (BASE, shifted(0.0)):
        again = judge({"base": BASE, "a": shifted(0.0), "twin": twin}, baseline="base")["a"]
        assert again.difference == alone.difference


def test_a_row_of_the_same_function_counts_in_no_m_and_gets_no_verdict():
    arms = {"base": BASE, "a": shifted(-0.01)}
    flash = {"flash": shifted(0.1, [0.3, -0.2, 0.1, 0.0, 0.0])}
    table = judge({**arms, **flash}, baseline="base", same_function={"flash": "base"})
    assert table["a"] == judge(arms, baseline="base")["a"]
    assert (table["flash"].verdict, table["flash"].difference) == ("same function", None)
    assert table["flash"].p is None and table["flash"].value is not None
    shown = judge({**arms, **flash}, baseline="base", descriptive=["flash"])
    assert (shown["flash"].verdict, shown["a"]) == ("not tested", table["a"])


# --- few seeds, failures, holes


def test_one_seed_has_a_mean_and_no_interval():
    table = judge({"base": [2.0], "arm": [1.0]}, baseline="base")
    assert table["arm"].verdict == "one seed"
    assert (table["arm"].difference, table["arm"].p, table["arm"].resolvable) == (None, None, None)
    assert table["arm"].value is not None
    assert (table["arm"].value.mean, table["arm"].value.high) == (1.0, math.inf)
    assert table["base"].verdict == "baseline"


def test_failures_are_rows_and_cannot_win():
    losses = shifted(-0.5)
    for lost in (NAN, math.inf):
        got = one([lost, *losses[1:]])
        assert (got.verdict, got.failed, got.missing, got.n) == ("worse (failed)", 1, 0, 4)
        assert got.value is not None and got.value.mean == pytest.approx(np.mean(losses[1:]))
        assert got.difference is not None and got.difference.mean < 0
    base = [NAN, *BASE[1:]]
    for arm, verdict in (
        ([NAN, *losses[1:]], "not resolved"),
        ([NAN, *BASE[1:]], "not resolved"),
        ([NAN, *shifted(0.5)[1:]], "worse"),
        ([NAN, NAN, *losses[2:]], "worse (failed)"),
        (losses, "better"),
    ):
        assert judge({"base": base, "arm": arm}, baseline="base")["arm"].verdict == verdict


def test_an_arm_that_has_not_run_has_not_failed():
    assert one([None] * 5).verdict == "not run"
    got = one([*shifted(-0.05)[:3], None, None])
    assert (got.verdict, got.failed, got.missing, got.n, got.seeds) == ("better", 0, 2, 3, 5)
    waiting = judge({"base": [None, 2.0], "arm": [NAN, 2.0]}, baseline="base")["arm"]
    assert waiting.verdict == "one seed"
    assert one([NAN, None, None, None, None]).verdict == "worse (failed)"


def test_a_table_without_a_baseline_run_says_nothing_and_breaks_nothing():
    table = judge({"base": [NAN] * 3, "gone": [NAN] * 3, "arm": [1.0, 2.0, 3.0]}, baseline="base")
    assert [row.verdict for row in table.values()] == ["baseline", "failed", "not resolved"]
    assert [row.failed for row in table.values()] == [3, 3, 0]
    assert table["base"].value is None and table["arm"].value is not None


def test_what_failed_does_not_narrow_the_others_interval():
    with_failure = judge({"base": BASE, "a": shifted(0.0), "b": [NAN] * 5}, baseline="base")["a"]
    alone = one(shifted(0.0))
    assert with_failure.difference is not None and alone.difference is not None
    assert with_failure.difference.high > alone.difference.high


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ({"a": [1.0], "b": [1.0, 2.0]}, {"baseline": "a"}, "same"),
        ({"a": [], "b": []}, {"baseline": "a"}, "at least one"),
        ({"a": [1.0]}, {"baseline": "b"}, "no arm 'b'"),
        ({"a": [1.0], "b": [1.0]}, {"baseline": "a", "same_function": {"c": "a"}}, "no arm 'c'"),
        ({"a": [1.0], "b": [1.0]}, {"baseline": "a", "descriptive": ["a"]}, "another baseline"),
        ({"a": [1.0], "b": [1.0]}, {"baseline": "a", "margin": NAN}, "margin"),
        ({"a": [1.0], "b": [1.0]}, {"baseline": "a", "level": 1.0}, "level"),
    ],
)
def test_nonsense_is_refused_in_one_line(values, options, says):
    with pytest.raises(UsageError, match=says) as caught:
        judge(values, **options)
    assert "\n" not in str(caught.value)


# --- second opinion, budget


def test_sign_flip_p_counts_every_pattern_of_signs():
    for differences in ([1.0, 2.0, 4.0], [0.1, 0.2, -0.3, 0.1, 0.1], [0.3, 0.0, 0.0], [0.0, 0.0]):
        signs = np.array(list(itertools.product((1, -1), repeat=len(differences))))
        share = np.mean(np.abs(signs @ differences) >= abs(sum(differences)) - 1e-9)
        assert sign_flip_p(differences) == share
    assert sign_flip_p([1.0] * 40) == 2 / 2**40
    for wrong in ([], [NAN], [1.0] * 41):
        with pytest.raises(ValueError, match="sign_flip_p"):
            sign_flip_p(wrong)


def test_sign_flip_p_is_shown_only_where_it_can_reach_its_level():
    assert one(shifted(-0.05)).sign_flip_p is None  # 2 / 2^5 > 0.05
    losses = {"base": [2.0 + i for i in range(6)], "arm": [1.0 + i * 0.9 for i in range(6)]}
    assert judge(losses, baseline="base")["arm"].sign_flip_p == 2 / 64
    three = judge({**losses, "b": losses["arm"], "c": losses["arm"]}, baseline="base")
    assert three["arm"].sign_flip_p is None


def test_more_seeds_and_fewer_arms_resolve_more():
    assert resolvable_difference(0.01, 1, 1) == math.inf
    seeds = [resolvable_difference(0.01, n, 3) for n in (2, 3, 5, 8, 20)]
    arms = [resolvable_difference(0.01, 5, m) for m in (2, 3, 4, 6, 8)]
    assert seeds == sorted(seeds, reverse=True) and arms == sorted(arms)
    assert resolvable_difference(0.0, 5, 3) == 0.005
    small, large = (resolvable_difference(spread, 5, 3, margin=0.0) for spread in (0.01, 0.02))
    assert large == pytest.approx(2 * small)
