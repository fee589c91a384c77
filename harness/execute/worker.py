"""A worker process: takes runs one by one, trains them, writes their records."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from harness import environment
from harness.config import RunConfig
from harness.data import Source, load
from harness.errors import RecordError, UsageError
from harness.measures import Watch
from harness.records import RunRecord, Store
from harness.registry import find
from harness.train import Moment, Outcome, save_weights, train
from harness.train.loop import Callback

SECONDS_BETWEEN_MESSAGES = 0.2


@dataclass(frozen=True)
class Setup:
    """What a worker needs beside its runs.

    Args:
        root: the results folder.
        corpus, tokenizer, cache: how the data is loaded.
        keep_weights: write the final weights beside the record.
        fresh: train again what is recorded but stale or failed.
        measure_every: steps between two looks into the model; none is no look.
    """

    root: Path
    corpus: str
    tokenizer: str
    cache: Path | None
    keep_weights: bool
    fresh: bool
    measure_every: int | None = None


def needed(store: Store, run: RunConfig, *, fresh: bool) -> bool:
    """Whether a run has to be trained: it has no record, or its record is stale or failed and `fresh` asks."""
    code = environment.code_hash(run.variant, run.model.pattern)
    record = store.run(run.id, code)
    if record is None:
        return True
    return fresh and (record.code_hash != code or record.status != "ok")


def work(pipe: Connection, setup: Setup, parent: int) -> None:
    """Serve runs from the pipe until it closes.

    Messages out: `("step", step, steps, loss)`, `("done", status, error)`, `("busy",)` where another process trains
    the run, `("unwritable", reason)`, `("unusable", reason)`.

    Args:
        pipe: runs come in as dicts of `RunConfig.to_dict`.
        setup: data and results folder.
        parent: process id; when it is gone, so is the worker.
    """
    store = Store(setup.root)
    listen(pipe, setup, lambda run, source: _serve(run, store, source, setup, Reporter(pipe, parent)))


def listen(pipe: Connection, setup: Setup, answer: Callable[[RunConfig, Source], tuple[Any, ...]]) -> None:
    """Load the data, then send the answer to each run that comes in, until the pipe closes.

    Args:
        pipe: runs come in as dicts of `RunConfig.to_dict`; also sent: `("unusable", reason)` where the data is not to
            be had, `("unwritable", reason)` where the disk fails.
        setup: data and results folder.
        answer: to a run.
    """
    # What a mixer prints must not get into the JSON of a command.
    os.dup2(2, 1)
    try:
        source = load(setup.corpus, setup.tokenizer, cache=setup.cache)
    except UsageError as error:
        pipe.send(("unusable", str(error)))
        return
    while True:
        try:
            run = RunConfig.from_dict(pipe.recv())
        except EOFError:
            return
        try:
            pipe.send(answer(run, source))
        except RecordError as error:
            pipe.send(("unwritable", str(error)))


class Reporter:
    """Tells the parent where a run stands, and ends the process when there is no parent left."""

    def __init__(self, pipe: Connection, parent: int) -> None:
        self.pipe, self.parent, self.last = pipe, parent, 0.0

    def __call__(self, moment: Moment) -> None:
        """Send word of a step, at most a few times a second."""
        if os.getppid() != self.parent:
            os._exit(1)
        now = time.monotonic()
        if now - self.last > SECONDS_BETWEEN_MESSAGES or moment.step == moment.steps:
            self.last = now
            self.pipe.send(("step", moment.step, moment.steps, moment.loss))


def _serve(run: RunConfig, store: Store, source: Source, setup: Setup, reporter: Reporter) -> tuple[Any, ...]:
    if find(run.variant).file_hash != run.file_hash:
        return ("unusable", f"{run.variant} changed while its runs were going on; start the command again")
    claim = store.claim(run.id)
    if claim is None:
        return ("busy",)
    with claim:
        # Another process may have finished the run between the plan and the claim.
        code = environment.code_hash(run.variant, run.model.pattern)
        if not needed(store, run, fresh=setup.fresh):
            record = store.run(run.id, code)
            return ("done", record.status if record else "ok", record.error if record else None)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        clock = time.monotonic()
        checkpoint = store.checkpoint_path(run.id)
        looks = [Watch(store, source, setup.measure_every, code)] if setup.measure_every else []
        outcome = attempt(run, source, [reporter, *looks], checkpoint=checkpoint, code=code)
        seconds = outcome.seconds or time.monotonic() - clock
        # The record comes first: a disk that has no room for the weights must not cost the training.
        store.write_run(record_of(run, outcome, code=code, started=started, seconds=seconds))
        checkpoint.unlink(missing_ok=True)
        if setup.keep_weights and outcome.status == "ok" and outcome.model is not None:
            save_weights(store.weights_path(run.id), outcome.model)
    return ("done", outcome.status, outcome.error)


def attempt(
    run: RunConfig,
    source: Source,
    callbacks: Sequence[Callback],
    *,
    checkpoint: Path,
    code: str,
    report: bool = True,
) -> Outcome:
    """Train a run; whatever goes wrong in it is its outcome, so that the next run can go on.

    Args:
        run, source, callbacks, checkpoint, code, report: as `train` takes them.

    Raises:
        RecordError: the checkpoint cannot be written.
    """
    try:
        return train(run, source, callbacks=callbacks, checkpoint=checkpoint, code=code, report=report)
    except RecordError:
        raise
    except torch.OutOfMemoryError as error:
        return Outcome(status="out of memory", error=str(error).splitlines()[0])
    except MemoryError as error:
        return Outcome(status="out of memory", error=str(error) or "the machine's memory")
    # A mixer may fail in any way it likes, by leaving the process too: that is a row, and the other arms go on.
    except (Exception, SystemExit) as error:
        if isinstance(error, RuntimeError) and "allocate memory" in str(error):
            return Outcome(status="out of memory", error=str(error).splitlines()[0])
        return Outcome(status="crashed", error=_one_line(error))


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    frame = traceback.extract_tb(error.__traceback__)[-1]
    # The last frame outside of installed packages is where the mixer's author has to look.
    for candidate in traceback.extract_tb(error.__traceback__):
        if "site-packages" not in candidate.filename:
            frame = candidate
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'} ({where})"


def record_of(run: RunConfig, outcome: Outcome, *, code: str, started: str, seconds: float) -> RunRecord:
    """The record of a run that has ended, well or not."""
    status: Any = outcome.status
    return RunRecord(
        id=run.id,
        status=status,
        error=outcome.error,
        config=run.to_dict(),
        backend=run.train.backend,
        parameters=outcome.parameters or None,
        metrics=dict(outcome.metrics),
        curve=list(outcome.curve),
        environment=environment.describe(),
        **environment.commit(),
        code_hash=code,
        started=started,
        seconds=round(seconds, 3),
    )
