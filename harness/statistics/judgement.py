"""One table judged: an arm's mean, its difference to the baseline, and one word on whether to believe it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from harness.errors import UsageError, unknown
from harness.statistics.noise import LEVEL, MARGIN, Array, errors_apart, resolvable
from harness.statistics.paired import Paired, compare
from harness.statistics.signflip import reachable, sign_flip_p


@dataclass(frozen=True)
class Interval:
    """A mean and the bounds around it, in the unit of the losses; a single seed has infinite bounds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Judgement:
    """One row of a table.

    The verdict is one of
        baseline           the arm the others are compared with
        same function      declared to be another row's function: in no m, no verdict
        not tested         declared descriptive: in no m, no verdict
        not run            no seed has an outcome yet
        failed             seeds failed, none finished, and the baseline did no better on them
        worse (failed)     failed on more seeds than the baseline, of the seeds where both have an outcome
        one seed           one pair only, so nothing is known of the noise
        identical          every paired loss is the baseline's to the last bit: most likely the same function
        better, worse      the interval leaves 0 out and |mean difference| is at least the margin
        equal within X     the interval lies inside +-X, the margin
        not resolved       none of these; also what an arm with failed seeds, or without pairs, cannot claim
    """

    arm: str
    """Name of the row."""
    n: int
    """Seeds that count: pairs with the baseline for an arm that is tested, finished seeds for any other."""
    failed: int
    """Seeds of this arm that ended without a finite loss."""
    missing: int
    """Seeds of this arm that have no outcome yet."""
    seeds: int
    """Seeds asked for."""
    value: Interval | None
    """Mean loss of the finished seeds with the t interval of this arm alone, at confidence 1 - `level` on its
    own degrees of freedom. It shows one arm's noise; it is not the test, and overlap of two of them decides
    nothing."""
    difference: Interval | None
    """Arm - baseline with its simultaneous interval (`paired.compare`); None untested or below two pairs."""
    p: float | None
    """From the t of the interval, times m, at most 1; at or below `level` where the interval leaves 0 out."""
    resolvable: float | None
    """The true difference this row's seeds and spread resolve with about 80 % chance (`noise.resolvable`)."""
    sign_flip_p: float | None
    """Exact sign-flip p, times m, at most 1; None where 2 m / 2^n exceeds `level`, so it could not matter."""
    verdict: str
    """See above."""


def judge(
    values: Mapping[str, Sequence[float | None]],
    *,
    baseline: str,
    same_function: Mapping[str, str] = {},
    margin: float = MARGIN,
    level: float = LEVEL,
    descriptive: Collection[str] = (),
) -> dict[str, Judgement]:
    """Judge every arm of a table against its baseline, by the one rule of `paired.compare`.

    m, the number of comparisons, is every arm asked for that is neither the baseline, nor the same function
    as another, nor descriptive. Arms that failed or have not run count too: what failed must not narrow an
    interval.

    Args:
        values: arm -> a loss (lower is better) for each seed, seeds in the same order in every arm. None: it
            has not run yet. nan or infinite: it ran and failed.
        baseline: the arm the others are compared with.
        same_function: arm -> the arm it computes the same function as.
        margin: smallest difference that matters, unit of the losses, at least 0.
        level: chance, at most, of any false "better" or "worse" in a table without differences, in (0, 1).
        descriptive: arms that are shown but not tested.

    Returns:
        One judgement an arm, in the order of `values`.

    Raises:
        UsageError: an unknown arm, arms of unequal length, no seeds, or a margin or level out of range.
    """
    _check(values, baseline, same_function, margin, level, descriptive)
    untested = dict.fromkeys(descriptive, "not tested") | dict.fromkeys(same_function, "same function")
    untested[baseline] = "baseline"
    result = {arm: _alone(arm, cells, untested.get(arm, ""), level) for arm, cells in values.items()}
    tested = [arm for arm in values if arm not in untested]
    if not tested:
        return result
    differences = np.stack([_losses(values[arm]) - _losses(values[baseline]) for arm in tested])
    paired = compare(differences, tests=len(tested), level=level, margin=margin)
    for row, arm in enumerate(tested):
        verdict = _verdict(paired, row, values[arm], values[baseline], margin)
        alone = replace(result[arm], n=int(paired.count[row]), verdict=verdict)
        result[arm] = _with_difference(alone, paired, row, differences[row], level, margin)
    return result


def _alone(arm: str, cells: Sequence[float | None], verdict: str, level: float) -> Judgement:
    """The judgement of an arm on its own: its mean, and no comparison."""
    losses = _losses(cells)
    finished = losses[np.isfinite(losses)]
    missing = sum(cell is None for cell in cells)
    return Judgement(
        arm=arm,
        n=finished.size,
        failed=len(cells) - missing - finished.size,
        missing=missing,
        seeds=len(cells),
        value=_own_interval(finished, level),
        difference=None,
        p=None,
        resolvable=None,
        sign_flip_p=None,
        verdict=verdict,
    )


def _with_difference(
    alone: Judgement, paired: Paired, row: int, differences: Array, level: float, margin: float
) -> Judgement:
    """The judgement completed by the comparison, where there are pairs enough for one."""
    if alone.n < 2:
        return alone
    tests, freedom = len(paired.count), float(paired.freedom[row])
    apart = errors_apart(freedom, tests, level)
    flips = None
    if reachable(alone.n, tests, level):
        flips = min(1.0, tests * sign_flip_p(differences[np.isfinite(differences)].tolist()))
    return replace(
        alone,
        difference=Interval(float(paired.mean[row]), float(paired.low[row]), float(paired.high[row])),
        p=float(paired.p[row]),
        resolvable=float(resolvable(paired.error[row], apart, freedom, margin=margin)),
        sign_flip_p=flips,
    )


def _verdict(
    paired: Paired, row: int, cells: Sequence[float | None], baseline: Sequence[float | None], margin: float
) -> str:
    """The word for a tested arm; failures first, because no mean of the survivors can outweigh them."""
    outcomes = [cell for cell in cells if cell is not None]
    if not outcomes:
        return "not run"
    pairs = [(a, b) for a, b in zip(cells, baseline, strict=True) if a is not None and b is not None]
    excess = sum(not math.isfinite(a) for a, _ in pairs) - sum(not math.isfinite(b) for _, b in pairs)
    if excess > 0:
        return "worse (failed)"
    finished = [math.isfinite(cell) for cell in outcomes]
    if not any(finished):
        return "failed"
    if paired.count[row] == 1:
        return "one seed"
    if paired.resolved[row] and paired.mean[row] > 0:
        return "worse"
    if not all(finished):
        return "not resolved"
    if paired.resolved[row]:
        return "better"
    if paired.identical[row]:
        return "identical"
    return f"equal within {margin:g}" if paired.equal[row] else "not resolved"


def _losses(cells: Sequence[float | None]) -> Array:
    """The losses as an array, nan where there is none for whatever reason."""
    return np.array([cell if cell is not None and math.isfinite(cell) else math.nan for cell in cells])


def _own_interval(finished: Array, level: float) -> Interval | None:
    """The mean of one arm's finished seeds with its own t interval: infinite for one seed, None for none."""
    if finished.size == 0:
        return None
    mean = float(finished.mean())
    if finished.size == 1:
        return Interval(mean, -math.inf, math.inf)
    error = float(finished.std(ddof=1)) / math.sqrt(finished.size)
    half = float(special.stdtrit(finished.size - 1, 1 - level / 2)) * error
    return Interval(mean, mean - half, mean + half)


def _check(
    values: Mapping[str, Sequence[float | None]],
    baseline: str,
    same_function: Mapping[str, str],
    margin: float,
    level: float,
    descriptive: Collection[str],
) -> None:
    """Raise a UsageError for anything `judge` cannot make sense of."""
    for arm in [baseline, *same_function, *same_function.values(), *descriptive]:
        if arm not in values:
            raise unknown("arm", arm, values)
    if baseline in same_function or baseline in descriptive:
        raise UsageError(f"the baseline {baseline!r} must be an arm of its own: choose another baseline")
    lengths = sorted({len(cells) for cells in values.values()})
    if len(lengths) != 1 or lengths[0] == 0:
        raise UsageError(f"arms have {lengths} seeds; all need the same, at least one: fill up with None")
    if not (math.isfinite(margin) and margin >= 0):
        raise UsageError(f"margin {margin} must be a finite number, 0 or more")
    if not 0 < level < 1:
        raise UsageError(f"level {level} must lie between 0 and 1, both excluded")
