"""How a number is written: the same digits on screen, in Markdown and in CSV, so that a rebuild compares bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.statistics import Interval

NONE = "—"
MEBIBYTE = 1 << 20


def finite(value: float | None) -> bool:
    """Whether there is a number to write."""
    return value is not None and math.isfinite(value)


def fixed(value: float | None, digits: int, *, none: str = NONE) -> str:
    """A number with so many decimals, `none` where there is none; a rounded zero has no sign."""
    if value is None or not math.isfinite(value):
        return none
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def signed(value: float | None, digits: int, *, none: str = NONE) -> str:
    """`fixed` with a + before what is above zero."""
    text = fixed(value, digits, none=none)
    return f"+{text}" if value is not None and value > 0 and text.strip("0.") and text != none else text


def half(interval: Interval | None) -> float | None:
    """Half the width of an interval; none where a bound is infinite."""
    if interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return None
    return (interval.high - interval.low) / 2


def intervals(values: Sequence[Interval | None], digits: int, *, sign: bool = False) -> list[str]:
    """A column of `mean ± half width`, aligned at the point of the mean and at the ±.

    Args:
        values: one interval a row.
        digits: decimals.
        sign: whether a mean above zero gets a +.

    Returns:
        Texts of one width; without a finite interval the mean stands alone.
    """
    write = signed if sign else fixed
    means = [write(value.mean if value else None, digits) for value in values]
    halves = [fixed(half(value), digits, none="") for value in values]
    left = max((len(text) for text in means), default=0)
    right = max((len(text) for text in halves), default=0)
    tails = [f" ± {text:>{right}}" if text else " " * (right + 3 if right else 0) for text in halves]
    return [f"{mean:>{left}}{tail}" for mean, tail in zip(means, tails, strict=True)]


def chance(p: float | None) -> str:
    """A p value with three decimals, `<0.001` below them."""
    if p is None or not math.isfinite(p):
        return NONE
    return "<0.001" if p < 0.001 else fixed(p, 3)


def count(value: int | None) -> str:
    """A whole number with commas between its thousands."""
    return NONE if value is None else f"{value:,}"


def mebibytes(value: int | None) -> str:
    """Bytes in whole MiB."""
    return NONE if value is None else f"{value / MEBIBYTE:,.0f}"


def span(values: Sequence[int]) -> str:
    """What several counts have in common: one number, or the smallest and the largest."""
    low, high = min(values), max(values)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def listing(words: Sequence[str]) -> str:
    """Words with commas, each once, in the order of their first use."""
    return ", ".join(dict.fromkeys(words))


def number(values: Sequence[int]) -> str:
    """Seeds as a reader writes them: `0–4` where they are consecutive, else a list."""
    ordered = sorted(values)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))
