"""The noise floor: how far two trainings of the same thing lie apart, and what a budget of seeds can tell from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from harness.statistics.noise import LEVEL, MARGIN, Array, resolvable_difference
from harness.statistics.paired import compare

ENOUGH = 32
"""Pairs from which tables are drawn: fewer give the same runs again and again."""

TABLES = 4000
SHAPES = ((1, 3), (1, 5), (1, 8), (3, 3), (3, 5), (5, 5))
"""Arms tested and seeds of the tables that are drawn."""


@dataclass(frozen=True)
class NullTables:
    """Tables in which nothing differs, drawn from runs of one config: how often the rule finds something.

    Args:
        arms, seeds: of each table, the baseline not counted.
        tables: drawn.
        share: of the tables that hold a "better" or a "worse".
    """

    arms: int
    seeds: int
    tables: int
    share: float


@dataclass(frozen=True)
class NoiseFloor:
    """What the paired differences of a baseline and its twin say.

    Args:
        n: pairs.
        spread: standard deviation of a paired difference, unit of the losses.
        low, high: its interval at confidence 1 - `LEVEL`, from the chi-square distribution.
        comparisons: arms that a table of this baseline would test.
        resolvable: seeds an arm to the difference that they resolve in 80 % of tables.
        null: tables drawn from the runs themselves; empty below `ENOUGH` pairs.
    """

    n: int
    spread: float
    low: float
    high: float
    comparisons: int
    resolvable: dict[int, float]
    null: tuple[NullTables, ...] = ()


def noise_floor(pairs: Sequence[tuple[float, float]], comparisons: int, seeds: int) -> NoiseFloor | None:
    """The noise floor of a baseline, from itself and its twin.

        s sqrt((n - 1) / chi2) around s,    and `resolvable_difference(s, k n, comparisons)` for k = 1, 2, 4

    Args:
        pairs: finite losses of the baseline and of its twin, one pair a seed.
        comparisons: arms that a table would test, at least 1.
        seeds: asked for.

    Returns:
        The floor, or None below two pairs: one says nothing about noise.
    """
    n = len(pairs)
    if n < 2:
        return None
    losses = np.asarray(pairs, dtype=np.float64)
    spread = float((losses[:, 1] - losses[:, 0]).std(ddof=1))
    # chdtri inverts the upper tail, which the larger quantile leaves the smaller part of.
    low, high = (math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (LEVEL / 2, 1 - LEVEL / 2))
    reach = {k * seeds: resolvable_difference(spread, k * seeds, comparisons, LEVEL, MARGIN) for k in (1, 2, 4)}
    null = tuple(null_tables(losses, *shape) for shape in SHAPES) if n >= ENOUGH else ()
    return NoiseFloor(n, spread, spread * low, spread * high, comparisons, reach, null)


def null_tables(losses: Array, arms: int, seeds: int, *, tables: int = TABLES) -> NullTables:
    """How often the verdict rule errs on tables drawn from runs that differ in seeds alone.

    A table is made of single runs, none of them twice. Drawn from 96 runs of normal noise a share strays by about 0.6
    points from what the rule does on fresh ones; tables made of whole pairs would stray by 1.4, because there are
    only half as many differences to draw from.

    Args:
        losses: [pairs, 2], more runs than a table has cells.
        arms, seeds: of a table, the baseline not counted.
        tables: to draw; the same ones each time.
    """
    # RandomState alone promises the same numbers in every version.
    draw = np.random.RandomState(1000 * arms + seeds)
    chosen = draw.rand(tables, losses.size).argsort(1)[:, : (arms + 1) * seeds]
    cells = losses.ravel()[chosen].reshape(tables, arms + 1, seeds)
    found = compare(cells[:, 1:] - cells[:, :1], tests=arms, level=LEVEL, margin=MARGIN).resolved.any(-1)
    return NullTables(arms, seeds, tables, float(found.mean()))
