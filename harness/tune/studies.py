"""The studies of a plan: made or opened to be filled, or found again by whoever wants what they chose."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage

from harness.errors import UsageError
from harness.experiment import Plan, PlannedArm
from harness.records import Claim, Store
from harness.tune.effort import SAMPLERS, Effort
from harness.tune.journal import (
    ENDINGS,
    differences,
    journal_path,
    made_of,
    open_storage,
    open_study,
    put_aside,
    settings_key,
    study_name,
)
from harness.tune.ledger import Ledger
from harness.tune.results import StudyResult
from harness.tune.space import Space, check_words, space_of


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a search is run, beside what it may spend.

    Args:
        studies: independent ones of each arm.
        retries: further attempts at a trial whose process died.
        storage: `journal` or `sqlite`.
        fresh: put the studies there are aside.
    """

    studies: int = 1
    retries: int = 2
    storage: str = "journal"
    fresh: bool = False

    def check(self, workers: int) -> Terms:
        """Itself, if it can be done.

        Raises:
            UsageError: no studies, negative retries, no such storage, or SQLite for several workers.
        """
        if workers < 1:
            raise UsageError(f"--workers {workers}: allowed is a whole number of at least 1")
        if self.studies < 1:
            raise UsageError(f"--studies {self.studies}: allowed is a whole number of at least 1")
        if self.retries < 0:
            raise UsageError(f"--retries {self.retries}: allowed is 0 or more")
        if self.storage not in ENDINGS:
            raise UsageError(f"--storage {self.storage}: allowed is {' or '.join(ENDINGS)}")
        if self.storage == "sqlite" and workers > 1:
            raise UsageError(
                f"--storage sqlite with {workers} workers: SQLite cannot lock a row, so that two processes may take "
                "the same queued trial; use --workers 1, or the journal"
            )
        return self


def spaces(planned: Plan, words: Mapping[str, str], backend: str) -> dict[str, Space]:
    """What is searched for each arm of a plan.

    Args:
        planned: its runs hold the defaults.
        words: `--space`.
        backend: asked for by `--set`, or `auto`.

    Raises:
        UsageError: a word of `--space` is wrong, or nothing is left to be searched.
    """
    check_words(words, [arm.arm for arm in planned.arms])
    found = {arm.label: _space(arm, words, backend) for arm in planned.arms}
    for label, space in found.items():
        if not space.dims:
            raise UsageError(f"nothing is left to search for {label}: every knob is held at a value")
    return found


def _space(arm: PlannedArm, words: Mapping[str, str], backend: str) -> Space:
    own = arm.arm.sections.get("train", {}).get("backend", backend)
    return space_of(arm.arm, arm.runs[0], words, backend=own)


def open_ledgers(
    spaces: Mapping[str, Space], settings: Mapping[str, Any], effort: Effort, terms: Terms, store: Store
) -> tuple[Path, list[Ledger]]:
    """The studies of a search, made where they are missing; one arm after another.

    Returns:
        The file, and for each arm its studies.

    Raises:
        UsageError: a study there was made of other data, settings or code.
        RecordError: the file cannot be read or written.
    """
    path = journal_path(store, settings, effort, terms.storage)
    with _hold(store, path)():
        if terms.fresh:
            put_aside(path)
        storage = open_storage(path, store)
        ledgers = [
            _ledger(storage, path, label, index, space, effort, terms.retries, store)
            for label, space in spaces.items()
            for index in range(terms.studies)
        ]
        for ledger in ledgers:
            _extends(ledger, path, effort.trials)
        for ledger in ledgers:
            if ledger.study.user_attrs.get("trials") != effort.trials:
                ledger.study.set_user_attr("trials", effort.trials)
    return path, ledgers


def _extends(ledger: Ledger, path: Path, trials: int) -> None:
    # Fewer trials would hide some that count, the best one perhaps, and no table could say that they were spent.
    spent = min(ledger.study.user_attrs.get("trials", 0), ledger.allocated())
    if trials < spent:
        raise UsageError(
            f"--trials {trials}: the study of {ledger.label} in {path} has had {spent}; --trials {spent} gives it "
            "whole, more go on with it, --fresh puts the file aside and starts anew"
        )


def _ledger(
    storage: BaseStorage, path: Path, label: str, index: int, space: Space, effort: Effort, retries: int, store: Store
) -> Ledger:
    study = open_study(storage, path, study_name(label, index), made_of(space, label, effort))
    return Ledger(study, label=label, index=index, space=space, effort=effort, retries=retries, hold=_hold(store, path))


def _hold(store: Store, path: Path) -> Callable[[], Claim]:
    return lambda: store.hold(f"turn-{path.stem}")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Studies that answer for every arm of a plan.

    Args:
        path: their file.
        effort: what each got.
        studies: of each arm, by its label.
        spaces: of each arm.
    """

    path: Path
    effort: Effort
    studies: Mapping[str, tuple[StudyResult, ...]]
    spaces: Mapping[str, Space]


def find_tuned(planned: Plan, settings: Mapping[str, Any], store: Store, *, studies: int, backend: str) -> Tuned:
    """The studies of these settings that have every arm; of several searches the one that was touched last.

    Args:
        planned: the arms with their defaults.
        settings: that all arms share.
        store: results folder.
        studies: needed of each arm.
        backend: asked for by `--set`, or `auto`.

    Raises:
        UsageError: there are none; says what is missing, and the command that makes it.
    """
    files = [path for path in store.studies.glob("*") if path.suffix in ENDINGS.values()]
    files.sort(key=lambda path: (-os.stat(path).st_mtime, path.name))
    if files:
        store.check_writable()
    reasons = []
    for path in files:
        if path.name.startswith(f"{settings_key(settings)}-"):
            found = _tuned(path, planned, store, studies, backend)
            if isinstance(found, Tuned):
                return found
            reasons.append(f"{path.name}: {found}")
    words = [arm.label for arm in planned.arms]
    # Sizes are matched to the baseline's, so that another baseline makes other models of the same arms.
    words += ["--baseline", planned.baseline] if planned.baseline != words[0] else []
    words += ["--match", settings["match"]] if settings["match"] else []
    words += ["--studies", str(studies)] if studies > 1 else []
    if not reasons:
        reasons = [f"{store.studies} has no study of these settings{_nearest(files, planned, store, backend)}"]
    raise UsageError(
        f"nothing is tuned for these arms ({'; '.join(reasons)}); first: run.py tune {shlex.join(words)} ..."
    )


def _nearest(files: Sequence[Path], planned: Plan, store: Store, backend: str) -> str:
    """The file of other settings that has all arms and the fewest differences, and what these are."""
    found = []
    for path in files:
        known = {study.study_name: study for study in optuna.get_all_study_summaries(open_storage(path, store))}
        different: dict[str, None] = {}
        for arm in planned.arms:
            made = known[arm.label].user_attrs.get("made") if arm.label in known else None
            if made is None or made["effort"]["sampler"] not in SAMPLERS:
                break
            effort = Effort(**made["effort"])
            here = made_of(_space(arm, effort.space, backend), arm.label, effort)
            different.update(dict.fromkeys(differences(made, here)))
        else:
            found.append((len(different), path.name, list(different) or ["another --match or --budget"]))
    if not found:
        return ""
    _, name, words = min(found)
    return f"; the nearest, {name}, differs: {'; '.join(words)}"


def _tuned(path: Path, planned: Plan, store: Store, count: int, backend: str) -> Tuned | str:
    """The studies of a file, or why they do not do."""
    storage = open_storage(path, store)
    known = {study.study_name: study for study in optuna.get_all_study_summaries(storage)}
    results: dict[str, tuple[StudyResult, ...]] = {}
    found: dict[str, Space] = {}
    effort = Effort()
    trials: dict[str, int] = {}
    for arm in planned.arms:
        rows = []
        for index in range(count):
            name = study_name(arm.label, index)
            if name not in known or "made" not in known[name].user_attrs:
                return f"no study of {name}"
            if known[name].user_attrs["made"]["effort"]["sampler"] not in SAMPLERS:
                return f"{name} was retuned on a grid there"
            made, trials[name] = known[name].user_attrs["made"], known[name].user_attrs.get("trials", 0)
            effort = Effort(trials=trials[name], **made["effort"])
            found[arm.label] = _space(arm, effort.space, backend)
            different = differences(made, made_of(found[arm.label], arm.label, effort))
            if different:
                return f"the study of {name} differs: {'; '.join(different)}"
            ledger = _ledger(storage, path, arm.label, index, found[arm.label], effort, 0, store)
            rows.append(ledger.result())
            if len(rows[-1].trials) < trials[name]:
                return f"the study of {name} has {len(rows[-1].trials)} of {trials[name]} trials; let it end first"
            if rows[-1].best is None:
                return f"all trials of {name} failed ({rows[-1].trials[0].error})"
        results[arm.label] = tuple(rows)
    if len(set(trials.values())) > 1:
        return f"unequal effort: {', '.join(f'{name} {number}' for name, number in trials.items())} trials"
    return Tuned(path=path, effort=effort, studies=results, spaces=found)
