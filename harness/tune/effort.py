"""How much a search may spend, the same for every variant of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError

FIRST_SEED = 1000
"""Seed of the first study's trainings; a table's own seeds start at 0, so that it never shows a run that was chosen."""

SAMPLERS = ("tpe", "random", "qmc")
PRUNING = ("median", "none")
GRID = "grid"
"""Sampler of `--retune`, whose points are given."""

STARTUP = 4
"""Trials before TPE proposes: the defaults, then points drawn at random, the same ones for every variant."""

PRUNE_AFTER = 3
"""Finished trials that the median needs."""

PRUNE_FROM = 0.2
"""Share of the steps before which no trial is pruned."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What every study of a search gets.

    Args:
        trials: of each study; pruned and failed ones count.
        sampler: `tpe`, `random` or `qmc`.
        pruning: `median` or `none`.
        seed: of the points.
        space: `--space` as written, by field.
    """

    trials: int = 12
    sampler: str = "tpe"
    pruning: str = "median"
    seed: int = 0
    space: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> Effort:
        """Itself, if it can be done.

        Raises:
            UsageError: no trials, or a sampler or pruning that does not exist.
        """
        if self.trials < 1:
            raise UsageError(f"--trials {self.trials}: a search needs at least 1 trial")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: allowed is 0 or more")
        for flag, value, allowed in (("sampler", self.sampler, SAMPLERS), ("pruning", self.pruning, PRUNING)):
            if value not in allowed:
                raise UsageError(f"--{flag} {value}: allowed is {' or '.join(allowed)}")
        return self

    def identity(self) -> dict[str, Any]:
        """What makes two searches two: everything but the number of trials, which may grow."""
        return {
            "sampler": self.sampler,
            "pruning": self.pruning,
            "seed": self.seed,
            "space": dict(sorted(self.space.items())),
        }

    @property
    def in_order(self) -> bool:
        """Whether its points depend on nothing but seed and number."""
        return self.sampler != "tpe" and self.pruning == "none"
