"""One setting of the recipe on one grid for all arms, so that no arm is blamed for leaving its tuning behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.config import TrainConfig
from harness.errors import UsageError, unknown
from harness.events import Event
from harness.execute.worker import Setup
from harness.experiment import Plan
from harness.fields import settings
from harness.records import Store
from harness.tune.dims import Dim
from harness.tune.effort import FIRST_SEED, GRID, Effort
from harness.tune.ledger import Ledger
from harness.tune.search import search
from harness.tune.space import Space
from harness.tune.studies import Terms, open_ledgers

SEEDS = 2
"""Trainings of a point."""

FACTOR = 2.0
"""From one point of the grid to the next."""

FIRST = (0, -1, 1, -2, 2)
"""The first points, in powers of `FACTOR` times the common value."""

MOST = 13
"""Points at most: a loss that falls for ever along a setting has no best value on any grid."""


class Grid:
    """The studies behind `--retune`.

    Args:
        planned: arms with their defaults.
        shared: settings that they share.
        field: a knob of the recipe on a log scale.
        store: results folder.
        studies: independent ones of each arm, each with `SEEDS` seeds of its own.
        backend: asked for by `--set`, or `auto`.

    Raises:
        UsageError: no such knob, or an arm that sets it itself.
    """

    def __init__(
        self, planned: Plan, shared: Mapping[str, Any], field: str, store: Store, *, studies: int, backend: str
    ) -> None:
        field = field.removeprefix("train.")
        known = {name: s for name, s in settings(TrainConfig).items() if s.role.kind == "knob" and s.role.log}
        if field not in known:
            raise unknown("setting to retune, a knob of the recipe on a log scale,", field, known)
        self.field, self.name, self.store, self.studies = field, f"train.{field}", store, studies
        role = known[field].role
        self.low = max(role.above or 0.0, role.least or 0.0)
        self.high = math.inf if role.most is None else role.most
        self.centre = float(shared["train"][field])
        self.powers = list(FIRST)
        reach = FACTOR**MOST
        dim = Dim(name=self.name, low=self.centre / reach, high=min(self.high, self.centre * reach), log=True)
        self.spaces = {}
        for arm in planned.arms:
            if self.name in arm.arm.fields:
                raise UsageError(f"{arm.label} sets {self.name} itself; --retune {field} gives all arms one grid")
            own = arm.arm.sections.get("train", {}).get("backend", backend)
            self.spaces[arm.label] = Space(arm=arm.arm, run=arm.runs[0], dims=(dim,), backend=own)
        self.shared = shared
        self.ledgers: list[Ledger] = []
        # Another set of arms may have extended the grid otherwise: each study keeps its points in an order of its own.
        self.orders: dict[str, list[int]] = {}

    def run(self, setup: Setup, *, workers: int, notify: Callable[[Event], None]) -> None:
        """Train the grid, and further points while an arm's best lies at its end.

        Raises:
            UsageError, RecordError, KeyboardInterrupt: as `search`.
        """
        effort = Effort(trials=SEEDS * len(self.powers), sampler=GRID, pruning="none", space={self.name: GRID})
        terms = Terms(studies=self.studies)
        _, self.ledgers = open_ledgers(self.spaces, self.shared, effort, terms, self.store)
        for ledger in self.ledgers:
            powers = [round(math.log(point[self.name] / self.centre, FACTOR)) for point in ledger.points()]
            self.orders[ledger.study.study_name] = list(dict.fromkeys(powers))
            ledger.propose = self._points(ledger)
            ledger.seeds = self._seeds(ledger.index)
        while True:
            for ledger in self.ledgers:
                own = self._own(ledger)
                own += [power for power in self.powers if power not in own]
                ledger.slots = SEEDS * len(own)
            search(self.ledgers, setup, workers=workers, notify=notify)
            further = self._further()
            if not further:
                return
            self.powers += further

    def _own(self, ledger: Ledger) -> list[int]:
        return self.orders[ledger.study.study_name]

    def _points(self, ledger: Ledger) -> Callable[[int], dict[str, Any]]:
        return lambda slot: {self.name: self._value(self._own(ledger)[slot // SEEDS])}

    def _seeds(self, index: int) -> Callable[[int], int]:
        return lambda slot: FIRST_SEED + SEEDS * index + slot % SEEDS

    def _value(self, power: int) -> float:
        dim = next(iter(self.spaces.values())).dims[0]
        return float(dim.tidy(self.centre * FACTOR**power))

    def _further(self) -> list[int]:
        """Powers next to the ends where an arm's best lies."""
        best = [self._best(ledger) for ledger in self.ledgers]
        ends = {min(self.powers): -1, max(self.powers): 1}
        wanted = [end + step for end, step in ends.items() if end in best]
        legal = [power for power in wanted if self.low < self.centre * FACTOR**power <= self.high]
        return legal[: MOST - len(self.powers)]

    def _best(self, ledger: Ledger) -> int | None:
        """The power with the lowest mean loss of its seeds, nearest to the common value where two are equal."""
        losses: dict[int, list[float]] = {}
        for trial in ledger.result().trials:
            power = self._own(ledger)[trial.slot // SEEDS]
            if trial.value is not None and power in self.powers:
                losses.setdefault(power, []).append(trial.value)
        means = {power: sum(found) / SEEDS for power, found in losses.items() if len(found) == SEEDS}
        return min(means, key=lambda power: (means[power], abs(power)), default=None)

    def choices(self) -> dict[str, list[dict[str, Any]]]:
        """The best point of each arm, one for each of its studies.

        Raises:
            UsageError: an arm has none.
        """
        found: dict[str, list[dict[str, Any]]] = {label: [] for label in self.spaces}
        for ledger in self.ledgers:
            best = self._best(ledger)
            if best is None:
                errors = [trial.error for trial in ledger.result().trials if trial.error]
                raise UsageError(f"all trials of {ledger.label} failed: {(errors or ['no reason recorded'])[0]}")
            found[ledger.label].append({self.name: self._value(best)})
        return found

    def about(self) -> dict[str, Any]:
        """How the values were chosen, for the table."""
        ends = (min(self.powers), max(self.powers))
        at_edge = {ledger.label: [self.name] for ledger in self.ledgers if self._best(ledger) in ends}
        several = f"{self.studies} grids" if self.studies > 1 else "one grid"
        return {
            "name": "retuned",
            "words": f"{self.field} retuned: {several} of {len(self.powers)} values, {SEEDS} seeds a value",
            "searched": dict.fromkeys(self.spaces, 1),
            "at_edge": at_edge,
            "journal": "",
        }
