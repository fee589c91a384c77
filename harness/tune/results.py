"""What a search found, as plain data: read from its studies, drawn by the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from harness.tune.dims import Dim
from harness.tune.effort import Effort

State = Literal["done", "pruned", "failed"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial that has ended, whatever its attempts.

    Args:
        slot: its number in the study, from 0: the defaults.
        state: how it ended.
        settings: the values it was trained with.
        value: selection loss after the last step, nats per token; none unless it is done.
        steps: trained.
        curve: step to selection loss.
        status, error: of a failure.
        attempts: how often it was started; more than once only where its process died or was interrupted.
        seconds: of training.
    """

    slot: int
    state: State
    settings: Mapping[str, Any]
    value: float | None
    steps: int
    curve: Mapping[int, float]
    status: str = ""
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """One study.

    Args:
        name: Optuna's.
        trials: that have ended, by slot.
        asked: trials in all.
        steps: of a whole trial.
        dims: what was searched.
        importances: share of each field in what separates good trials from the rest.
    """

    name: str
    trials: tuple[Trial, ...]
    asked: int
    steps: int
    dims: tuple[Dim, ...]
    importances: Mapping[str, float] = field(default_factory=dict)

    @property
    def best(self) -> Trial | None:
        """The trial with the lowest loss, the earlier of two; none where none is done."""
        done = [trial for trial in self.trials if trial.value is not None]
        return min(done, key=lambda trial: (trial.value, trial.slot), default=None)

    def count(self, state: State) -> int:
        """Trials that ended so."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def curve(self) -> list[float | None]:
        """Best loss after each trial, by number; none before the first that is done."""
        found: list[float | None] = []
        for trial in self.trials:
            values = [value for value in (*found[-1:], trial.value) if value is not None]
            found.append(min(values, default=None))
        return found

    @property
    def saved(self) -> float:
        """Share of all steps that pruning left out."""
        left_out = sum(self.steps - trial.steps for trial in self.trials if trial.state == "pruned")
        return left_out / (self.steps * len(self.trials)) if self.trials else 0.0


@dataclass(frozen=True, kw_only=True)
class VariantResult:
    """All studies of one arm.

    Args:
        label: the arm.
        studies: independent of each other, at least one.
        notes: what a reader should know.
    """

    label: str
    studies: tuple[StudyResult, ...]
    notes: tuple[str, ...] = ()

    def count(self, state: State) -> int:
        """Trials that ended so, in all studies."""
        return sum(study.count(state) for study in self.studies)

    @property
    def trials(self) -> int:
        """Trials that have ended, in all studies."""
        return sum(len(study.trials) for study in self.studies)

    @property
    def asked(self) -> int:
        """Trials in all."""
        return sum(study.asked for study in self.studies)

    @cached_property
    def best(self) -> Trial | None:
        """The best trial of all studies."""
        found = [study.best for study in self.studies if study.best is not None]
        return min(found, key=lambda trial: trial.value or math.nan, default=None)

    @property
    def at_edge(self) -> list[str]:
        """Fields whose best value lies where the range ends, so that a wider one might hold a better value."""
        best = self.best
        if best is None:
            return []
        return [dim.name for dim in self.studies[0].dims if dim.at_edge(best.settings[dim.name])]

    @property
    def curve(self) -> list[float | None]:
        """Best loss after each trial, the mean of the studies."""
        return [_mean(values) for values in self._side_by_side()]

    @property
    def span(self) -> list[tuple[float, float] | None]:
        """Range of the studies around `curve`."""
        known = [[value for value in values if value is not None] for values in self._side_by_side()]
        return [(min(values), max(values)) if len(values) == len(self.studies) else None for values in known]

    @property
    def expected(self) -> list[float | None]:
        """`expected_best` after each number of trials, the mean of the studies."""
        return [_mean(values) for values in zip(*map(expected_best, self.studies), strict=False)]

    def _side_by_side(self) -> list[tuple[float | None, ...]]:
        return list(zip(*(study.curve for study in self.studies), strict=False))

    @property
    def saved(self) -> float:
        """Share of all steps that pruning left out."""
        return sum(study.saved for study in self.studies) / len(self.studies)

    @property
    def importances(self) -> dict[str, float]:
        """Mean of the studies, the largest first."""
        known = [study.importances for study in self.studies if study.importances]
        means = {name: sum(one.get(name, 0.0) for one in known) / len(known) for one in known[:1] for name in one}
        return dict(sorted(means.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """A whole search.

    Args:
        effort: of each study.
        variants: in the order asked for.
        corpus: the data, one line.
        preset: name of the sizes.
        journal: file of the studies.
        workers: the most that ran at once.
        other_hosts: trials that run elsewhere.
    """

    effort: Effort
    variants: tuple[VariantResult, ...]
    corpus: str
    preset: str
    journal: str
    workers: int
    other_hosts: int = 0

    @property
    def complete(self) -> bool:
        """Whether every trial has ended."""
        return all(variant.trials == variant.asked for variant in self.variants)


def expected_best(study: StudyResult) -> list[float | None]:
    """Expected best loss after n trials, over all orders in which the drawn points could have come.

        E_n = sum_i v_i C(N - i, n - 1) / C(N, n),   v sorted upwards from i = 1

    Trial 0 is not drawn, so it stands first in every order: values above its own count as its own. A failed trial
    has no value; until n exceeds their number, all n may have failed, and there is no expectation.

    Args:
        study: one whose points do not depend on each other, without pruning.

    Returns:
        E_n for n = 1, 2, ..., all trials.
    """
    first = study.trials[0].value if study.trials else None
    cap = math.inf if first is None else first
    values = sorted(min(cap, math.inf if trial.value is None else trial.value) for trial in study.trials[1:])
    found = [first]
    for n in range(1, len(values) + 1):
        found.append(_mean_of_smallest(values, n))
    return found


def _mean_of_smallest(values: Sequence[float], n: int) -> float | None:
    total, ways = 0.0, math.comb(len(values), n)
    for i, value in enumerate(values, start=1):
        weight = math.comb(len(values) - i, n - 1)
        if weight and not math.isfinite(value):
            return None
        if weight:
            total += value * weight / ways
    return total


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
