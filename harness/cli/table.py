"""From the flags of `compare` and `ablate` to their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harness.cli.answer import Answer, teller
from harness.cli.flags import Experiment
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.experiment import Plan, Request
    from harness.records import Store
    from harness.report import Result
    from harness.tasks import Task


def train_table(
    verb: Experiment,
    progress: Console,
    *,
    name: str,
    arms: Sequence[str],
    seeds: int | None = None,
    retune: str | None = None,
    task: Task | None = None,
    **declared: Any,
) -> Iterator[Answer]:
    """Train what is missing of an experiment, and answer with its table.

    Args:
        verb: the flags.
        progress: where to show how it goes.
        name: of the experiment.
        arms: as text.
        seeds: of each arm, where it isn't the flag that says so.
        retune: a knob of the recipe that every arm gets its own best value of.
        task: of a declared experiment that has one.
        declared: what else a declared experiment asks for.

    Raises:
        UsageError: anything in it cannot be done.
        RecordError: the disk failed.
    """
    from harness import report, tasks
    from harness.commands import experiments, measure
    from harness.execute import Options
    from harness.records import Store
    from harness.report.progress import ProgressView

    if verb.task is not None and (task is None or task.name != verb.task):
        task = tasks.find(verb.task)
        name, declared = f"{name}-{task.name}", task.declared(declared)
    seeds = verb.seeds if seeds is None else seeds
    request = verb.request(name=name, arms=arms, task=task, seeds=seeds, budget=verb.budget, **declared)
    options = Options(
        workers=verb.workers,
        keep_weights=_keep(verb.keep_weights),
        fresh=verb.fresh,
        cache=request.cache,
        measure_every=measure.interval(verb.measure_every),
    )
    store = Store(verb.out)
    planned = _planned(verb, request, store, progress, retune)
    if verb.dry_run:
        found = experiments.dry_run(planned, store, options)
        yield Answer(payload=found, shown=lambda width: report.dry_run(found))
        return
    unseen = measure.unwatched(planned, store, every=options.measure_every, fresh=options.fresh)
    if unseen is not None:
        teller(progress)(unseen)
    try:
        with ProgressView(progress) as view:
            result = experiments.run(planned, store, options, view)
    except experiments.Interrupted as stopped:
        yield table(stopped.result, store)
        yield Answer(told=["interrupted: finished runs are kept; the same command goes on"], code=130)
        return
    yield table(result, store)


def table(result: Result, store: Store) -> Answer:
    """A table, with the records that had to be left out of it."""
    from harness import report

    return Answer(
        payload=report.payload(result),
        shown=lambda width: report.render(result, width),
        told=[f"skipped: {problem}" for problem in store.problems],
        code=1 if any(arm.failed for arm in result.arms) else 0,
    )


def _planned(verb: Experiment, request: Request, store: Store, progress: Console, retune: str | None) -> Plan:
    from harness.commands import experiments

    if not verb.tuned and retune is None:
        if verb.studies is not None:
            raise UsageError("--studies belongs to --tuned and --retune")
        tell = teller(progress)
        return experiments.prepare(request, None if verb.dry_run else store, lambda event: tell(event.label))
    if retune is not None and (verb.tuned or verb.dry_run):
        raise UsageError(f"--retune goes without {'--tuned' if verb.tuned else '--dry-run'}")
    if request.noise_floor:
        raise UsageError("--noise-floor trains the baseline as it is; leave --tuned out")
    from harness.commands import tune
    from harness.report.study_view import StudyView

    if verb.tuned:
        return tune.tuned(request, store, studies=verb.studies or 1)
    with StudyView(progress) as view:
        return tune.retuned(request, retune or "", store, studies=verb.studies or 1, workers=verb.workers, notify=view)


def _keep(word: str) -> bool:
    if word not in ("all", "none"):
        raise UsageError(f"--keep-weights {word}: allowed is all or none")
    return word == "all"
