"""The noise floor: how far two trainings of the same thing lie apart, and what a budget of seeds can tell from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from harness.statistics.noise import LEVEL, MARGIN, resolvable_difference


@dataclass(frozen=True)
class NoiseFloor:
    """What the paired differences of a baseline and its twin say.

    Args:
        n: pairs.
        spread: standard deviation of a paired difference, unit of the losses.
        low, high: its interval at confidence 1 - `LEVEL`, from the chi-square distribution.
        comparisons: arms that a table of this baseline would test.
        resolvable: seeds an arm to the difference that they resolve in 80 % of tables.
    """

    n: int
    spread: float
    low: float
    high: float
    comparisons: int
    resolvable: dict[int, float]


def noise_floor(differences: Sequence[float], comparisons: int, seeds: int) -> NoiseFloor | None:
    """The noise floor of a baseline, from itself and its twin.

        s sqrt((n - 1) / chi2) around s,    and `resolvable_difference(s, k n, comparisons)` for k = 1, 2, 4

    Args:
        differences: twin - baseline, a finite loss difference for each seed.
        comparisons: arms that a table would test, at least 1.
        seeds: asked for.

    Returns:
        The floor, or None below two pairs: one says nothing about noise.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = values.size
    if n < 2:
        return None
    spread = float(values.std(ddof=1))
    # chdtri inverts the upper tail, which the larger quantile leaves the smaller part of.
    low, high = (math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (LEVEL / 2, 1 - LEVEL / 2))
    reach = {k * seeds: resolvable_difference(spread, k * seeds, comparisons, LEVEL, MARGIN) for k in (1, 2, 4)}
    return NoiseFloor(n, spread, spread * low, spread * high, comparisons, reach)
