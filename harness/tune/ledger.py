"""The trials of one study: who trains which, what became of it, and what is still to do.

A trial that is asked for has a *slot*, from 0 to the last one. An attempt at it is a trial of Optuna; only where the
process behind an attempt dies, or is interrupted, does the slot get another one. So Optuna's numbers may run past
the trials asked for, and slots never do.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from harness.config import RunConfig
from harness.errors import UsageError
from harness.records import Claim
from harness.tune import points
from harness.tune.effort import FIRST_SEED, PRUNE_FROM, Effort
from harness.tune.process import elsewhere, gone
from harness.tune.results import StudyResult, Trial
from harness.tune.space import Space

AGAIN = ("died", "interrupted", "ok", "stopped")
"""What a failed attempt says of itself where its slot gets another one: one that ended well failed in the telling."""


@dataclass
class Attempt:
    """A trial that this process has taken.

    Args:
        slot: which one.
        trial: Optuna's.
        run: what is to be trained.
        died: earlier attempts whose process died.
    """

    slot: int
    trial: optuna.Trial
    run: RunConfig
    died: int = 0


class Ledger:
    """One study.

    Args:
        study: Optuna's.
        label, index: the arm and which of its studies.
        space: of the arm.
        effort: what it gets.
        retries: further attempts after a death.
        hold: takes the journal's turn; every change of a trial's state happens within one.
    """

    propose: Callable[[int], dict[str, Any] | None]
    """The point of a slot, None where TPE is asked."""

    seeds: Callable[[int], int]
    """The training seed of a slot."""

    def __init__(
        self,
        study: optuna.Study,
        *,
        label: str,
        index: int,
        space: Space,
        effort: Effort,
        retries: int,
        hold: Callable[[], Claim],
    ) -> None:
        self.study, self.label, self.index, self.space, self.effort = study, label, index, space, effort
        self.retries, self.hold = retries, hold
        self.slots = effort.trials
        self.propose = self._proposed
        self.seeds = lambda slot: FIRST_SEED + index

    def _proposed(self, slot: int) -> dict[str, Any] | None:
        if slot == 0:
            return self.space.defaults()
        return points.drawn(self.effort, self.index, slot, self.space.dims)

    def take(self, process: Mapping[str, Any]) -> Attempt | None:
        """The next trial to train; None where there is none now.

        Args:
            process: whose it will be, and under `parent` the one that will tell how it ended.
        """
        with self.hold():
            self._reap()
            self._again()
            while True:
                taken = self._ask()
                if taken is None:
                    return None
                trial, slot = taken
                settings = {dim.name: dim.tidy(trial.params[dim.name]) for dim in self.space.dims}
                trial.set_user_attr("settings", {**self.space.pins, **settings})
                try:
                    run = self.space.settle(settings, seed=self.seeds(slot))
                except UsageError as error:
                    self.fail(trial, "refused", str(error))
                    continue
                trial.set_user_attr("run", run.id)
                trial.set_user_attr("process", dict(process))
                return Attempt(slot, trial, run, self._deaths(self._attempts()[slot]))

    def _ask(self) -> tuple[optuna.Trial, int] | None:
        attempts = self._attempts()
        if not any(trial.state is TrialState.WAITING for tries in attempts.values() for trial in tries):
            free = [slot for slot in range(self.slots) if slot not in attempts]
            if not free:
                return None
            point = self.propose(free[0])
            if point is None:
                return self._ask_tpe(free[0])
            self._enqueue(point, free[0])
        self.study.sampler = optuna.samplers.RandomSampler()
        trial = self.study.ask(points.distributions(self.space.dims))
        slot = trial.user_attrs.get("slot")
        if slot is None:
            # Somebody put a point of his own into the queue, with the dashboard say: it takes the next free slot.
            slot = next(slot for slot in itertools.count() if slot not in attempts)
            self._own(trial, slot)
        return trial, slot

    def _own(self, trial: optuna.Trial, slot: int) -> None:
        trial.set_user_attr("point", dict(trial.params))
        trial.set_user_attr("slot", slot)

    def _ask_tpe(self, slot: int) -> tuple[optuna.Trial, int]:
        self.study.sampler = points.tpe(self.effort, self.index, slot)
        trial = self.study.ask(points.distributions(self.space.dims))
        self._own(trial, slot)
        return trial, slot

    def _enqueue(self, point: Mapping[str, Any], slot: int, **more: Any) -> None:
        self.study.enqueue_trial(dict(point), user_attrs={"slot": slot, "point": dict(point), **more})

    def _reap(self) -> None:
        """Close the trials of processes that are gone. One without an owner, met in our turn, was never begun."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            process = trial.user_attrs.get("process")
            if gone(process and process["parent"]):
                self.study.tell(trial.number, state=TrialState.FAIL)

    def _again(self) -> None:
        """Queue another attempt at each slot whose last one broke off."""
        for slot, tries in self._attempts().items():
            last = tries[-1]
            if _broke_off(last) and self._deaths(tries) <= self.retries and slot < self.slots:
                history = [trial.number for trial in tries]
                self._enqueue(last.user_attrs["point"], slot, retry_of=last.number, history=history)

    def _attempts(self) -> dict[int, list[FrozenTrial]]:
        found: dict[int, list[FrozenTrial]] = {}
        for trial in self.study.get_trials(deepcopy=False):
            if "slot" in trial.user_attrs:
                found.setdefault(trial.user_attrs["slot"], []).append(trial)
        return dict(sorted(found.items()))

    def _deaths(self, tries: list[FrozenTrial]) -> int:
        return sum(_broke_off(trial) and _status(trial) != "interrupted" for trial in tries)

    def report(self, attempt: Attempt, step: int, loss: float) -> bool:
        """Note a point of the curve; whether the trial is to stop there."""
        self._note(attempt, {step: loss})
        steps = attempt.run.train.steps
        if self.effort.pruning == "none" or step >= steps or step < PRUNE_FROM * steps:
            return False
        return attempt.trial.should_prune()

    def _note(self, attempt: Attempt, curve: Mapping[int, float]) -> None:
        with warnings.catch_warnings():
            # A second attempt that starts over comes past points that are known.
            warnings.simplefilter("ignore")
            for step, loss in curve.items():
                attempt.trial.report(loss, step)

    def close(self, attempt: Attempt, status: str, error: str | None, curve: Mapping[int, float], **more: Any) -> None:
        """Write down how an attempt ended.

        Args:
            attempt: the one.
            status: `ok`, `stopped` (pruned), or what went wrong; `died` and `interrupted` are tried again.
            error: why, one line.
            curve: step to selection loss.
            more: kept with it.
        """
        with self.hold():
            self._note(attempt, curve)
            if status not in ("ok", "stopped"):
                self.fail(attempt.trial, status, error, **more)
                return
            attempt.trial.set_user_attr("outcome", {"status": status, "error": None, **more})
            value = curve[max(curve)] if status == "ok" else None
            self.study.tell(attempt.trial, value, state=TrialState.COMPLETE if status == "ok" else TrialState.PRUNED)

    def fail(self, trial: optuna.Trial, status: str, error: str | None, **more: Any) -> None:
        """Close a trial as failed; the caller holds the turn."""
        trial.set_user_attr("outcome", {"status": status, "error": error, **more})
        self.study.tell(trial, state=TrialState.FAIL)

    def waits(self) -> bool:
        """Whether trials are left that other processes of this host train."""
        return any(not elsewhere(p) for p in self._running())

    def other_hosts(self) -> int:
        """Trials that another host has taken and not closed."""
        return sum(elsewhere(p) for p in self._running())

    def _running(self) -> list[Mapping[str, Any] | None]:
        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [(trial.user_attrs.get("process") or {}).get("parent") for trial in running]

    def points(self) -> list[dict[str, Any]]:
        """The points of the slots that have been given out, in their order."""
        return [dict(tries[-1].user_attrs["point"]) for tries in self._attempts().values()]

    def allocated(self) -> int:
        """Slots that have been given out."""
        return len(self._attempts())

    def result(self) -> StudyResult:
        """What the study holds now."""
        asked = {slot: tries for slot, tries in self._attempts().items() if slot < self.slots}
        ended = [_ended(slot, tries, self._deaths(tries) > self.retries) for slot, tries in asked.items()]
        return StudyResult(
            name=self.study.study_name,
            trials=tuple(trial for trial in ended if trial is not None),
            asked=self.slots,
            steps=self.space.run.train.steps,
            dims=self.space.dims,
            importances=self._importances(),
        )

    def _importances(self) -> dict[str, float]:
        done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len({trial.value for trial in done}) < 4:
            return {}
        # The default looks at the best tenth, which of a dozen trials is one.
        better_half = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.5)
        found = optuna.importance.get_param_importances(self.study, evaluator=better_half)
        return {name: float(share) for name, share in found.items()}


def _status(trial: FrozenTrial) -> str:
    outcome: Mapping[str, Any] = trial.user_attrs.get("outcome") or {}
    return str(outcome.get("status", "died"))


def _broke_off(trial: FrozenTrial) -> bool:
    return trial.state is TrialState.FAIL and _status(trial) in AGAIN


def _ended(slot: int, tries: list[FrozenTrial], given_up: bool) -> Trial | None:
    """The trial behind the attempts at a slot, None while it goes on."""
    last = tries[-1]
    if not last.state.is_finished() or (_broke_off(last) and not given_up):
        return None
    outcome: Mapping[str, Any] = last.user_attrs.get("outcome") or {}
    curve = dict(sorted(last.intermediate_values.items()))
    failed = last.state is TrialState.FAIL
    status = "crashed" if _broke_off(last) else _status(last)
    error = outcome.get("error") or "its process ended"
    return Trial(
        slot=slot,
        state="failed" if failed else "pruned" if last.state is TrialState.PRUNED else "done",
        settings=last.user_attrs.get("settings", {}),
        value=last.value if last.state is TrialState.COMPLETE else None,
        steps=int(outcome.get("steps", max(curve, default=0))),
        curve=curve,
        status=status if failed else "",
        error=f"{error}, {len(tries)} times" if _broke_off(last) else outcome.get("error"),
        attempts=len(tries),
        seconds=float(outcome.get("seconds", 0.0)),
    )
