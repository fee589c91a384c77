"""One searched field: its range or its options, and what of it a table shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from harness.fields import shown

EDGE = 0.05
"""Share of a range, on its own scale, that counts as its edge."""

DIGITS = 4
"""Significant digits of a sampled number: what a table prints is what was trained."""


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One searched field.

    Args:
        name: as an arm writes it, `tau_start` or `train.learning_rate`.
        low, high, log: its range and scale; both ends belong to it.
        whole: whole numbers only.
        options: the values of a choice or switch, in place of a range.
        walls: whether each end is where the legal values end, so that no wider range exists.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    options: tuple[Any, ...] = ()
    walls: tuple[bool, bool] = (False, False)

    def at(self, share: float) -> Any:
        """The value at a share of the range, in [0, 1)."""
        if self.options:
            return self.options[int(share * len(self.options))]
        if self.log:
            return self.tidy(math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))))
        return self.tidy(self.low + share * (self.high - self.low))

    def share(self, value: float) -> float:
        """Where in the range a number lies: 0 at `low`, 1 at `high`."""
        low, high, place = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return (place - low) / (high - low)

    def tidy(self, value: Any) -> Any:
        """A value as it is trained: within the range, numbers at `DIGITS` digits."""
        if self.options:
            return value
        inside = min(max(value, self.low), self.high)
        if self.whole:
            return round(inside)
        return min(max(float(f"{inside:.{DIGITS}g}"), self.low), self.high)

    def at_edge(self, value: Any) -> bool:
        """Whether a wider range might have held a better value."""
        if self.options:
            return False
        share = self.share(value)
        return (share <= EDGE and not self.walls[0]) or (share >= 1 - EDGE and not self.walls[1])

    def words(self) -> str:
        """The range as a table says it."""
        if self.options:
            return " | ".join(map(shown, self.options))
        return f"{self.low:g} to {self.high:g}{' (log)' * self.log}"

    def plain(self) -> dict[str, Any]:
        """The dimension as JSON."""
        if self.options:
            return {"name": self.name, "options": list(self.options)}
        return {"name": self.name, "low": self.low, "high": self.high, "log": self.log}
