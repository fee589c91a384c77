"""What `tune` does, and what `compare` and `ablate` do with what it chose."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import registry
from harness.commands import experiments
from harness.config import SECTIONS, canonical
from harness.errors import UsageError
from harness.events import Event
from harness.execute.pool import default_workers
from harness.execute.worker import Setup
from harness.experiment import Plan, Request, sections
from harness.fields import build, resolved
from harness.records import Store
from harness.report.tuning_figure import write_tuning
from harness.tune.chosen import chosen_plan
from harness.tune.effort import Effort
from harness.tune.grid import Grid
from harness.tune.ledger import Ledger
from harness.tune.results import TuneResult, VariantResult
from harness.tune.search import search
from harness.tune.space import Space
from harness.tune.studies import Terms, find_tuned, open_ledgers, spaces


class TuneInterrupted(Exception):
    """Ctrl-C during a search; what has ended is in its journal.

    Args:
        result: the search so far.
    """

    def __init__(self, result: TuneResult) -> None:
        super().__init__("interrupted")
        self.result = result


def arms_to_tune(names: Sequence[str]) -> tuple[Sequence[str], dict[str, Any]]:
    """Arms of `tune`, and what a declared experiment among the names adds to the request.

    Raises:
        UsageError: a declared experiment beside other names.
    """
    declared = [name for name in names if name in registry.experiments()]
    if declared and len(names) > 1:
        raise UsageError(f"{declared[0]} is a declared experiment with arms of its own; tune it alone")
    if declared:
        arms, words = experiments.ablation(declared[0])
        return arms, {key: value for key, value in words.items() if key != "name"}
    # In the order of `compare`: sizes are matched to the first arm's.
    return names or experiments.default_arms(aliases=False), {}


def shared_settings(request: Request) -> dict[str, Any]:
    """What all studies of a request have in common: the sections as its preset and `--set` make them."""
    shared = sections(request)
    built: dict[str, Any] = {name: resolved(build(s, shared[name], where=name)) for name, s in SECTIONS.items()}
    return {**built, "match": request.match, "budget": request.budget}


def tune(
    request: Request,
    effort: Effort,
    terms: Terms,
    store: Store,
    *,
    workers: int | None,
    notify: Callable[[Event], None],
) -> TuneResult:
    """Search the settings of every arm with the same effort; write the tables.

    Args:
        request: the arms and what they share.
        effort: of each study.
        terms: how it is run.
        store: results folder.
        workers: processes; none is one a core, one for SQLite.
        notify: told of each step.

    Raises:
        UsageError: anything in it cannot be done, or a study there is another's.
        RecordError: the disk failed.
        TuneInterrupted: Ctrl-C.
    """
    planned, found = prepare(request, effort)
    if workers is None and terms.storage == "sqlite":
        workers = 1
    count = default_workers(planned.arms[0].runs[0]) if workers is None else workers
    terms.check(count)
    store.check_writable()
    path, ledgers = open_ledgers(found, shared_settings(request), effort, terms, store)

    def result() -> TuneResult:
        return _result(planned, found, ledgers, effort, path, count)

    try:
        search(ledgers, _setup(planned, request, store), workers=count, notify=notify)
    except KeyboardInterrupt:
        raise TuneInterrupted(result()) from None
    ended = result()
    write_tuning(ended, store, _stem(ended))
    return ended


def prepare(request: Request, effort: Effort) -> tuple[Plan, dict[str, Space]]:
    """The arms of a search with their defaults, and what is searched for each.

    Raises:
        UsageError: anything in it cannot be done.
    """
    effort.check()
    planned = experiments.prepare(dataclasses.replace(request, seeds=1))
    return planned, spaces(planned, effort.space, _backend(request))


def _backend(request: Request) -> str:
    return str(request.sets.get("train.backend", "auto"))


def _setup(planned: Plan, request: Request, store: Store) -> Setup:
    return Setup(store.root, planned.corpus, planned.tokenizer, request.cache, False, False)


def _result(
    planned: Plan, spaces: Mapping[str, Space], ledgers: Sequence[Ledger], effort: Effort, path: Path, workers: int
) -> TuneResult:
    variants = []
    for label, space in spaces.items():
        moved = [f"the default of {name} is outside --space; trial 0 took the nearest value" for name in space.moved()]
        own = tuple(ledger.result() for ledger in ledgers if ledger.label == label)
        variants.append(VariantResult(label=label, studies=own, notes=tuple(moved)))
    return TuneResult(
        effort=effort,
        variants=tuple(variants),
        corpus=planned.source.description.partition(";")[0],
        preset=str(planned.settings["preset"]),
        journal=f"studies/{path.name}",
        workers=workers,
        other_hosts=sum(ledger.other_hosts() for ledger in ledgers),
    )


def _stem(result: TuneResult) -> str:
    asked = [result.journal, result.effort.trials, [[v.label, len(v.studies)] for v in result.variants]]
    return f"tune-{hashlib.sha256(canonical(asked).encode()).hexdigest()[:8]}"


def dry_run(request: Request, effort: Effort, terms: Terms) -> dict[str, Any]:
    """What `tune` would search: each arm's fields with their ranges, and its trials."""
    planned, found = prepare(request, effort)
    return {
        "corpus": planned.source.description,
        "variants": [
            {
                "name": label,
                "trials": effort.trials * terms.studies,
                "dims": [dim.plain() for dim in space.dims],
                "pins": dict(space.pins),
                "defaults": space.defaults(),
            }
            for label, space in found.items()
        ],
    }


def tuned(request: Request, store: Store, *, studies: int) -> Plan:
    """The arms of a request at their tuned settings and at their defaults, on seeds that no trial has seen.

    Args:
        request: the arms, as they were tuned.
        store: results folder with the studies.
        studies: independent ones of each arm; the seeds are shared out between them.

    Raises:
        UsageError: there are no such studies, or fewer seeds than studies.
    """
    if studies < 1:
        raise UsageError(f"--studies {studies}: allowed is a whole number of at least 1")
    planned = experiments.prepare(request)
    found = find_tuned(planned, shared_settings(request), store, studies=studies, backend=_backend(request))
    effort = found.effort
    choices = {
        label: [study.best.settings for study in own if study.best is not None] for label, own in found.studies.items()
    }
    pruning = "median pruning" if effort.pruning == "median" else "no pruning"
    several = f"{studies} studies of " if studies > 1 else ""
    edges = {label: VariantResult(label=label, studies=own).at_edge for label, own in found.studies.items()}
    about = {
        "name": "tuned",
        "words": f"tuned: {several}{effort.trials} trials an arm ({effort.sampler}, {pruning})",
        "searched": {label: len(space.dims) for label, space in found.spaces.items()},
        "at_edge": {label: names for label, names in edges.items() if names},
        "journal": f"studies/{found.path.name}",
    }
    return chosen_plan(planned, found.spaces, choices, about)


def retuned(
    request: Request,
    field: str,
    store: Store,
    *,
    studies: int,
    workers: int | None,
    notify: Callable[[Event], None],
) -> Plan:
    """The arms of a request, each at the best point of one grid of a training setting, and at the common value.

    Args:
        request: the arms.
        field: a knob of the recipe on a log scale, `learning_rate`.
        store: results folder; the trials are kept there.
        studies: independent grids, each with seeds of its own.
        workers: processes; none is one a core.
        notify: told of each step.

    Raises:
        UsageError: no such knob, or every trial of an arm failed.
    """
    planned = experiments.prepare(request)
    grid = Grid(planned, shared_settings(request), field, store, studies=studies, backend=_backend(request))
    store.check_writable()
    count = default_workers(planned.arms[0].runs[0]) if workers is None else workers
    Terms(studies=studies).check(count)
    grid.run(_setup(planned, request, store), workers=count, notify=notify)
    return chosen_plan(planned, grid.spaces, grid.choices(), grid.about())
