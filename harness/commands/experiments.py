"""What `compare`, `ablate` and `report` do: arms by name, the plan, the training, the table."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from harness import arms, registry, report, tasks
from harness.data import references
from harness.errors import UsageError, unknown
from harness.events import Event
from harness.execute import Options, execute, needed, time_arms
from harness.experiment import Plan, Request, plan
from harness.records import ExperimentFile, ReferenceRecord, ReferenceRow, Store


class Interrupted(Exception):
    """Ctrl-C during an experiment; what was finished is recorded.

    Args:
        result: the table so far.
    """

    def __init__(self, result: report.Result) -> None:
        super().__init__("interrupted")
        self.result = result


def default_arms(*, aliases: bool = True) -> list[str]:
    """The arms of `compare` without names: every shipped variant, with its aliases if asked, softmax first."""
    found = registry.shipped()
    ordered = sorted(found.values(), key=lambda variant: (variant.key != "softmax", variant.key))
    return [name for variant in ordered for name in (variant.key, *(variant.spec.aliases if aliases else ()))]


def ablation(name: str) -> tuple[Sequence[str], dict[str, Any]]:
    """Arms of an ablation, and what its declaration adds to a request.

    Args:
        name: a declared experiment, or a variant (a path too) whose switches are turned off.

    Raises:
        UsageError: neither.
    """
    declared = registry.experiments()
    if "[" in name:
        raise UsageError(f"ablate {name}: takes a name without brackets; compare takes arms such as {name!r}")
    if name in declared:
        found = declared[name]
        words = {"question": found.question, "expectation": found.expectation, "metric": found.metric}
        task = tasks.find(found.task) if found.task else None
        return found.arms, {"name": name, **words, "settings": found.settings, "task": task, "preset": found.preset}
    if not name.endswith(".py") and name not in registry.shipped():
        raise unknown("experiment or variant", name, [*declared, *registry.shipped()])
    # A record's file is named after its experiment: what a file system may not like becomes a dash.
    slug = re.sub(r"[^A-Za-z0-9_.=+-]+", "-", Path(name).stem)
    return arms.switch_arms(name), {"name": f"ablate-{slug}", "question": f"What does each part of {name} contribute?"}


def prepare(request: Request, store: Store | None = None, notify: Callable[[Event], None] | None = None) -> Plan:
    """The plan of a request on this machine.

    Args:
        request: what was asked.
        store: results folder, where step times for equal seconds are kept; without it none are measured.
        notify: told before they are.

    Raises:
        UsageError: anything in it cannot be done.
    """
    cuda = torch.cuda.is_available()
    if request.budget == "seconds" and store is not None:
        request = timed(request, store, notify or (lambda event: None), cuda=cuda)
    return plan(request, cuda=cuda)


def timed(request: Request, store: Store, notify: Callable[[Event], None], *, cuda: bool) -> Request:
    """A request for equal seconds with the step time of each arm, measured now unless this machine has done so.

    Raises:
        UsageError: anything in it cannot be done, or an arm has no step time because it cannot train.
    """
    # An empty mapping asks for the arms as they are: the ones to be timed.
    planned = plan(dataclasses.replace(request, step_ms={}), cuda=cuda)
    store.check_writable()
    key = time_arms(planned, store, notify)
    record = store.timing(key) if key else None
    measured = record.arms if record else {}
    step_ms = {arm.label: measured[arm.timing_key]["step_ms"] for arm in planned.arms if arm.timing_key in measured}
    return dataclasses.replace(request, step_ms=step_ms)


def run(planned: Plan, store: Store, options: Options, notify: Callable[[Event], None]) -> report.Result:
    """Train what is missing, time the arms, score the trivial rows, write the tables.

    Args:
        planned: the experiment.
        store: results folder.
        options: how it is run.
        notify: told of each step.

    Returns:
        The table.

    Raises:
        UsageError: the results folder cannot be written; said before the first step.
        RecordError: the disk failed on the way.
        Interrupted: Ctrl-C.
    """
    store.check_writable()
    index = planned.file()
    store.write_experiment(index)
    try:
        execute(planned, store, options, notify)
        index = planned.file(timing=time_arms(planned, store, notify))
        store.write_experiment(index)
        _score_references(planned, store, notify)
    except KeyboardInterrupt:
        report.write_tables(index, store)
        raise Interrupted(report.result(index, store)) from None
    result = report.result(index, store)
    report.write_tables(index, store)
    return result


def _score_references(planned: Plan, store: Store, notify: Callable[[Event], None]) -> None:
    data = planned.arms[0].runs[0].data
    where: dict[str, Any] = {
        "fingerprint": planned.source.fingerprint,
        "length": data.length,
        "tokens": data.report_tokens,
    }
    if store.reference(**where) is None:
        notify(Event(kind="phase", label="scoring trivial predictors"))
        rows = references(planned.source, length=data.length, tokens=data.report_tokens)
        found = [
            ReferenceRow(name=row.name, nats_per_token=row.nats_per_token, bits_per_byte=row.bits_per_byte)
            for row in rows
        ]
        store.write_reference(ReferenceRecord(**where, rows=found))


def find_experiment(store: Store, name: str) -> ExperimentFile:
    """The experiment of a name, or of a name with its key; of several with one name the last.

    Raises:
        UsageError: there is none.
    """
    found = store.latest_experiment(name)
    if found is None and not store.all_experiments():
        raise UsageError("; skipped: ".join([f"no experiment is recorded in {store.root} yet", *store.problems]))
    if found is None:
        error = unknown("recorded experiment", name, [file.stem for file in store.all_experiments()])
        raise UsageError("; skipped: ".join([str(error), *store.problems]))
    return found


def dry_run(planned: Plan, store: Store, options: Options) -> dict[str, Any]:
    """What `run` would train: the size of each arm; each run with its arm, seed and id, and whether it is recorded."""
    runs = [
        {"arm": label, "seed": run.train.seed, "id": run.id, "recorded": not needed(store, run, fresh=options.fresh)}
        for label, run in planned.runs()
    ]
    file, widths = planned.file(), {arm.label: arm.runs[0].model.mlp_dim for arm in planned.arms}
    return {
        "experiment": file.stem,
        "corpus": planned.source.description,
        "arms": report.planned_sizes(file, widths),
        "runs": runs,
    }
