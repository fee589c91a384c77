"""The promises of the verdict rule, kept in at least 10,000 simulated tables a case.

A case is a kind of noise, a number of arms and a number of seeds. The bounds allow for the error of the
simulation: three standard errors of a share of 0.05 in 10,000 tables are 0.0065.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.statistics import judge, resolvable_difference
from harness.statistics.noise import errors_apart, pooled_freedom, resolvable
from harness.statistics.paired import compare

TABLES = 10_000
LEVEL = 0.05
UNEQUAL = {"arm x3": (1, 3.0), "baseline x3": (0, 3.0), "baseline x1/3": (0, 1 / 3)}
EXTREME = {"arm x10": (1, 10.0), "baseline x10": (0, 10.0)}
KINDS = ["normal", "t3", *UNEQUAL]


def noise(kind: str, arms: int, seeds: int, tables: int = TABLES) -> np.ndarray:
    """Losses [tables, arms + 1, seeds] without any true difference; the baseline comes first."""
    rng = np.random.default_rng([arms, seeds, len(kind)])
    shape = (tables, arms + 1, seeds)
    losses = rng.standard_t(3, shape) if kind == "t3" else rng.standard_normal(shape)
    row, factor = {**UNEQUAL, **EXTREME}.get(kind, (0, 1.0))
    losses[:, row] *= factor
    return losses


def paired(losses: np.ndarray) -> np.ndarray:
    return losses[:, 1:] - losses[:, :1]


def judged(differences: np.ndarray, margin: float = 0.0):
    return compare(differences, tests=differences.shape[1], level=LEVEL, margin=margin)


def false_verdicts(differences: np.ndarray) -> float:
    return float(judged(differences).resolved.any(-1).mean())


@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_without_a_difference_hold_a_verdict_in_five_percent_at_most(kind, seeds):
    for arms in range(1, 7):
        assert false_verdicts(paired(noise(kind, arms, seeds))) <= 0.0565, arms


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("kind", EXTREME)
def test_even_tenfold_noise_stays_below_seven_percent(kind, seeds):
    for arms in (2, 4, 6):
        assert false_verdicts(paired(noise(kind, arms, seeds))) <= 0.067, arms


def test_the_rule_is_not_silent():
    """One arm is the exact t-test, so its share of false verdicts is the level, not just below it."""
    for seeds in (3, 5, 8):
        assert 0.0435 <= false_verdicts(paired(noise("normal", 1, seeds))) <= 0.0565


@pytest.mark.parametrize("kind", [*KINDS, *EXTREME])
def test_missing_runs_do_not_make_verdicts_easier(kind):
    for arms in (2, 5):
        losses = noise(kind, arms, 5)
        holes = np.zeros((3, arms + 1, 5), dtype=bool)
        holes[0, 1, 2:] = True  # the first arm, the noisy one where there is one, keeps two seeds
        holes[1, 0, 3:] = True  # the baseline keeps three
        holes[2, ::2, 4] = holes[2, 1::3, 0] = True  # holes here and there
        scattered = np.random.default_rng(arms).random(losses.shape) < 0.15
        for hole in (*holes, scattered):
            assert false_verdicts(paired(np.where(hole, np.nan, losses))) <= 0.067, arms


def two_way(differences: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and half-widths of the usual rule: two-way residual spread or the arm's own, freedom (n-1) m."""
    _, arms, seeds = differences.shape
    residuals = losses - losses.mean(1, keepdims=True) - losses.mean(2, keepdims=True)
    residuals += losses.mean((1, 2), keepdims=True)
    spread = 2 * (residuals**2).sum((1, 2)) / (arms * (seeds - 1))
    variance = np.maximum(differences.var(2, ddof=1), spread[:, None])
    critical = stats.t.ppf(1 - LEVEL / (2 * arms), arms * (seeds - 1))
    return differences.mean(2), critical * np.sqrt(variance / seeds)


def test_the_two_way_spread_would_trust_a_noisy_baseline():
    losses = noise("baseline x3", 6, 3)
    mean, half = two_way(paired(losses), losses)
    assert (np.abs(mean) > half).any(1).mean() > 0.09
    assert false_verdicts(paired(losses)) < 0.05


@pytest.mark.parametrize(("seeds", "arms", "cost"), [(3, 2, 1.12), (3, 4, 1.21), (5, 2, 1.04), (5, 4, 1.08)])
def test_what_the_safer_spread_costs_with_equal_noise(seeds, arms, cost):
    losses = noise("normal", arms, seeds)
    mean, usual = two_way(paired(losses), losses)
    rule = judged(paired(losses))
    needed = [np.quantile(half - mean, 0.8) for half in (rule.high - rule.mean, usual)]
    assert needed[0] / needed[1] == pytest.approx(cost, abs=0.02)


@pytest.mark.parametrize("margin", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["normal", "t3", "arm x3", "baseline x3"])
def test_the_resolvable_difference_is_resolved_in_the_promised_share(kind, margin):
    spread = {"normal": 2, "t3": 6}.get(kind, 10) ** 0.5
    for seeds in (3, 5, 8):
        for arms in (1, 3, 6):
            differences = paired(noise(kind, arms, seeds))
            freedom = pooled_freedom(arms, seeds)
            apart = errors_apart(freedom, arms, LEVEL)
            printed = resolvable(judged(differences).error[:, 0], apart, freedom, margin=margin)
            known = resolvable_difference(spread, seeds, arms, level=LEVEL, margin=margin)
            for shift, low, high in (
                (printed, 0.77, 0.90),
                (printed.mean(), 0.70, 0.87),
                (known, 0.76, 0.89),
            ):
                moved = differences.copy()
                moved[:, 0] += np.asarray(shift).reshape(-1, 1)
                share = judged(moved, margin).resolved[:, 0].mean()
                assert low <= share <= high, (seeds, arms, shift)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_is_said_of_a_difference_as_large_as_the_margin_in_five_percent_at_most(kind):
    for seeds in (3, 8):
        for arms in (1, 4):
            differences = paired(noise(kind, arms, seeds))
            for scale in (0.1, 0.3):
                share = judged(scale * differences + 1.0, margin=1.0).equal.any(-1).mean()
                assert share <= 0.0565, (seeds, arms, scale)
            assert judged(0.02 * differences, margin=1.0).equal.mean() > 0.9


def test_judge_says_what_the_simulated_rule_says():
    losses = noise("normal", 3, 5, tables=200) * 0.004
    losses[:, 1] += 0.01
    losses[:, 2] *= 0.1
    losses[:, 2] += 0.9 * losses[:, 0]
    rule = judged(paired(losses), margin=0.005)
    seen = set()
    for table, row in enumerate(losses):
        verdicts = judge({str(arm): list(cells) for arm, cells in enumerate(row)}, baseline="0")
        for arm in range(3):
            judgement = verdicts[str(arm + 1)]
            assert judgement.difference is not None
            assert judgement.difference.high == pytest.approx(rule.high[table, arm])
            assert (judgement.verdict in ("better", "worse")) == rule.resolved[table, arm]
            assert (judgement.verdict == "equal within 0.005") == rule.equal[table, arm]
            freedom = pooled_freedom(3, 5)
            apart = errors_apart(freedom, 3, LEVEL)
            expected = resolvable(rule.error[table, arm], apart, freedom, margin=0.005)
            assert judgement.resolvable == pytest.approx(float(expected))
            seen.add(judgement.verdict)
    assert {"worse", "equal within 0.005", "not resolved"} <= seen
