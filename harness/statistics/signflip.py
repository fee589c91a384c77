"""The exact sign-flip test: a second opinion on a mean difference that assumes symmetry and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.statistics.noise import Array

LARGEST = 40


def reachable(n: int, tests: int, level: float) -> bool:
    """Whether a sign-flip p of n differences, corrected for `tests`, can reach `level` (2 tests / 2^n)."""
    return 2 * tests / 2.0**n <= level and n <= LARGEST


def sign_flip_p(differences: Sequence[float]) -> float:
    """The share of all 2^n sign patterns whose |sum| is at least the one observed (two-sided, exact).

    Enumerated in two halves that are sorted and matched, so 40 differences need 2^20 sums each, not 2^40.

    Args:
        differences: finite paired differences, 1 to 40 of them.

    Returns:
        p in [2 / 2^n, 1], not adjusted for several tests.

    Raises:
        ValueError: none, more than 40, or a difference that is not finite.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not 1 <= values.size <= LARGEST or not np.isfinite(values).all():
        raise ValueError(f"sign_flip_p takes 1 to {LARGEST} finite differences, got {differences!r}")
    # Sums equal on paper differ in the last bits by the order they were added in, and must count as ties.
    bar = abs(float(values.sum())) - 1e-12 * float(np.abs(values).sum())
    if bar <= 0:
        return 1.0
    middle = values.size // 2
    left, right = np.sort(_signed_sums(values[:middle])), _signed_sums(values[middle:])
    # The patterns come in pairs of opposite sum, so the upper tail is half of the two-sided count.
    upper = left.size - np.searchsorted(left, bar - right, side="left")
    return float(2 * upper.sum() / 2.0**values.size)


def _signed_sums(values: Array) -> Array:
    """The sums of `values` under every pattern of signs, 2^n of them."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums
