"""Several workers on one experiment: what each is doing, what is left, and what happens when one dies."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness import environment
from harness.config import RunConfig
from harness.errors import UsageError
from harness.events import Event
from harness.execute.process import Child
from harness.execute.worker import Setup, needed, record_of, work
from harness.experiment import Plan
from harness.records import Store
from harness.train import Outcome

ATTEMPTS = 2
"""Trainings of a run whose worker dies under it; the last death is recorded."""

SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an experiment is run, none of which changes a number.

    Args:
        workers: processes; none is one a core, or one for a GPU.
        keep_weights: keep the final weights of each run.
        fresh: train stale and failed runs again.
        cache: folder for trained tokenizers.
        measure_every: steps between two looks into a model that trains; none is no look.
    """

    workers: int | None = None
    keep_weights: bool = True
    fresh: bool = False
    cache: Path | None = None
    measure_every: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers {self.workers}: allowed is a whole number of at least 1")


@dataclass
class _Task:
    label: str
    run: RunConfig
    attempts: int = 0


class _Worker(Child):
    def __init__(self, index: int, setup: Setup) -> None:
        super().__init__(work, setup)
        self.index = index
        self.task: _Task | None = None
        # A user's file may have changed the process itself, torch's default dtype say: no other run may meet it.
        self.spent = False

    def give(self, task: _Task) -> None:
        self.task = task
        task.attempts += 1
        self.send(task.run.to_dict())


def execute(plan: Plan, store: Store, options: Options, notify: Callable[[Event], None]) -> None:
    """Train the runs of a plan that have no record yet.

    Args:
        plan: the experiment.
        store: where records are read and written.
        options: workers and what is kept.
        notify: told of every step and end.

    Raises:
        UsageError: the results folder cannot be written, or a worker cannot load the data.
        KeyboardInterrupt: Ctrl-C; the workers are gone, finished runs are recorded.
    """
    runs = plan.runs()
    tasks = deque(_Task(label, run) for label, run in runs if needed(store, run, fresh=options.fresh))
    notify(Event(kind="planned", total=len(runs), left=len(tasks)))
    if not tasks:
        return
    setup = Setup(
        store.root,
        plan.corpus,
        plan.tokenizer,
        options.cache,
        options.keep_weights,
        options.fresh,
        options.measure_every,
    )
    count = min(len(tasks), options.workers or default_workers(tasks[0].run))
    pool = _Pool(store, setup, tasks, notify)
    try:
        pool.serve(count)
    finally:
        pool.stop()


def default_workers(run: RunConfig) -> int:
    """One worker for each `threads` of this machine's cores; one where a GPU does the work."""
    if run.train.device != "cpu":
        return 1
    cores = environment.describe()["cores"]
    return max(1, int(cores) // run.train.threads)


class _Pool:
    def __init__(self, store: Store, setup: Setup, tasks: deque[_Task], notify: Callable[[Event], None]) -> None:
        self.store, self.setup, self.tasks, self.notify = store, setup, tasks, notify
        self.workers: list[_Worker] = []
        self.busy: deque[_Task] = deque()

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()

    def serve(self, count: int) -> None:
        self.workers = [_Worker(index, self.setup) for index in range(count)]
        while True:
            for worker in list(self.workers):
                if worker.task is None and self.tasks:
                    self._unspent(worker).give(self.tasks.popleft())
            active = [worker for worker in self.workers if worker.task is not None]
            if not active and not self.busy:
                return
            waiting = [handle for worker in active for handle in worker.handles]
            ready = multiprocessing.connection.wait(waiting, timeout=SECONDS_BETWEEN_LOOKS) if waiting else []
            for worker in active:
                if worker.pipe in ready:
                    self._listen(worker)
                elif worker.process.sentinel in ready:
                    self._bury(worker)
            if not ready and not self.tasks:
                self._look_again()

    def _look_again(self) -> None:
        # What another process trains is asked for again until it is recorded, or its claim is free.
        if not any(worker.task is None for worker in self.workers):
            return
        if not any(worker.task for worker in self.workers):
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self.tasks.extend(self.busy)
        self.busy.clear()

    def _listen(self, worker: _Worker) -> None:
        task = worker.task
        if task is None:
            return
        message = worker.receive()
        if message is None:
            self._bury(worker)
            return
        kind, *rest = message
        seed = task.run.train.seed
        worker.spent = worker.spent or task.run.file_hash is not None
        if kind == "step":
            step, steps, loss = rest
            self.notify(
                Event(kind="step", worker=worker.index, label=task.label, seed=seed, step=step, steps=steps, loss=loss)
            )
            return
        worker.task = None
        if kind == "done":
            status, error = rest
            self.notify(
                Event(kind="ended", worker=worker.index, label=task.label, seed=seed, status=status, error=error)
            )
        elif kind == "busy":
            task.attempts -= 1
            self.busy.append(task)
            self.notify(Event(kind="waiting", worker=worker.index, label=task.label, seed=seed))
        else:
            raise UsageError(rest[0])

    def _unspent(self, worker: _Worker) -> _Worker:
        if not worker.spent:
            return worker
        worker.stop()
        return self._replace(worker)

    def _replace(self, worker: _Worker) -> _Worker:
        fresh = _Worker(worker.index, self.setup)
        self.workers[self.workers.index(worker)] = fresh
        return fresh

    def _bury(self, worker: _Worker) -> None:
        """A worker died: its run is tried again, then recorded as crashed; another worker takes its place."""
        ended = worker.bury()
        task = worker.task
        self._replace(worker)
        if task is None:
            return
        if task.attempts < ATTEMPTS:
            self.tasks.appendleft(task)
            return
        outcome = Outcome(status="crashed", error=f"its process ended with {ended}, {ATTEMPTS} times")
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        code = environment.code_hash(task.run.variant, task.run.model.pattern)
        with self.store.claim(task.run.id) or contextlib.nullcontext():
            self.store.write_run(record_of(task.run, outcome, code=code, started=started, seconds=0.0))
        self.notify(
            Event(
                kind="ended",
                worker=worker.index,
                label=task.label,
                seed=task.run.train.seed,
                status=outcome.status,
                error=outcome.error,
            )
        )
