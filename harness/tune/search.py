"""Fill studies: workers train, this process asks Optuna for points and tells it what became of them."""

from __future__ import annotations

import contextlib
import math
import multiprocessing.connection
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import RecordError, UsageError
from harness.events import Event
from harness.execute.process import Child
from harness.execute.worker import Setup
from harness.tune.ledger import Attempt, Ledger
from harness.tune.process import described
from harness.tune.worker import serve

SECONDS_BETWEEN_LOOKS = 0.5


@dataclass
class _Task:
    ledger: Ledger
    attempt: Attempt

    def event(self, kind: Any, worker: int, **more: Any) -> Event:
        return Event(kind=kind, worker=worker, label=self.ledger.study.study_name, seed=self.attempt.slot, **more)


class _Worker(Child):
    def __init__(self, index: int, setup: Setup) -> None:
        super().__init__(serve, setup)
        self.index = index
        self.task: _Task | None = None
        # A user's file may do anything to its process: the next trial gets another.
        self.spent = False
        pid = self.process.pid or 0
        self.described = {**described(pid), "parent": described(os.getpid())}


def search(ledgers: Sequence[Ledger], setup: Setup, *, workers: int, notify: Callable[[Event], None]) -> None:
    """Train what is left of every study.

    Args:
        ledgers: the studies; trials are taken from the one that has had the fewest.
        setup: what a worker needs.
        workers: processes at most.
        notify: told of every step and end.

    Raises:
        UsageError: a worker cannot load data or variant.
        RecordError: the disk failed.
        KeyboardInterrupt: Ctrl-C; what has ended is written down, what was going on is tried again next time.
    """
    left = 0
    for ledger in ledgers:
        found = ledger.result()
        missing = ledger.slots - len(found.trials)
        left += missing
        best = math.nan if found.best is None or found.best.value is None else found.best.value
        notify(Event(kind="planned", label=found.name, total=ledger.slots, left=missing, loss=best))
    if left <= 0:
        return
    hunt = _Hunt(ledgers, setup, notify)
    try:
        hunt.serve(min(workers, left))
    except OSError as error:
        raise RecordError(f"a journal in {setup.root} was not written: {error.strerror or error}") from error
    finally:
        hunt.stop()


class _Hunt:
    def __init__(self, ledgers: Sequence[Ledger], setup: Setup, notify: Callable[[Event], None]) -> None:
        self.ledgers, self.setup, self.notify = ledgers, setup, notify
        self.workers: list[_Worker] = []

    def serve(self, count: int) -> None:
        self.workers = [_Worker(index, self.setup) for index in range(count)]
        look = True
        while True:
            for worker in self.workers if look else ():
                if worker.task is None:
                    self._give(worker)
            active = [worker for worker in self.workers if worker.task is not None]
            if not active:
                if not any(ledger.waits() for ledger in self.ledgers):
                    return
                # Another command of this host trains the rest; should it die, its trials are ours.
                self.notify(Event(kind="waiting"))
                time.sleep(SECONDS_BETWEEN_LOOKS)
                continue
            handles = [handle for worker in active for handle in worker.handles]
            ready = multiprocessing.connection.wait(handles, timeout=SECONDS_BETWEEN_LOOKS)
            look = not ready
            for worker in active:
                if worker.pipe in ready:
                    look |= self._listen(worker)
                elif worker.process.sentinel in ready:
                    self._bury(worker)
                    look = True

    def _give(self, worker: _Worker) -> None:
        if worker.spent:
            worker.stop()
            worker = self._replace(worker)
        busy = [other.task.ledger for other in self.workers if other.task is not None]
        # One trial at a time in each study where there are enough: the next point then knows all before it.
        for ledger in sorted(self.ledgers, key=lambda ledger: (busy.count(ledger), ledger.allocated())):
            attempt = ledger.take(worker.described)
            if attempt is not None:
                worker.task = _Task(ledger, attempt)
                worker.spent = attempt.run.file_hash is not None
                worker.send(attempt.run.to_dict())
                return

    def _listen(self, worker: _Worker) -> bool:
        """Hear a worker out; whether it is free now."""
        message = worker.receive()
        if message is None:
            self._bury(worker)
            return True
        task = worker.task
        if task is None:
            raise RecordError(f"a worker spoke of {message[0]!r} without a trial")
        kind, *rest = message
        if kind == "step":
            step, steps, loss = rest
            self.notify(task.event("step", worker.index, step=step, steps=steps, loss=loss))
        elif kind == "point":
            step, loss = rest
            worker.send(math.isfinite(loss) and task.ledger.report(task.attempt, step, loss))
        elif kind == "done":
            self._done(worker, task, *rest)
            return True
        elif kind == "unwritable":
            raise RecordError(rest[0])
        else:
            raise UsageError(rest[0])
        return False

    def _done(self, worker: _Worker, task: _Task, status: str, error: str | None, curve: dict[int, float],
              seconds: float, parameters: int) -> None:  # fmt: skip
        finite = {step: loss for step, loss in curve.items() if math.isfinite(loss)}
        steps = max(curve, default=0)
        task.ledger.close(task.attempt, status, error, finite, seconds=seconds, parameters=parameters, steps=steps)
        worker.task = None
        loss = finite.get(steps, math.nan)
        self.notify(task.event("ended", worker.index, status=status, error=error, loss=loss))

    def _bury(self, worker: _Worker) -> None:
        """A worker died: the next one takes its place, and its trial's slot gets another attempt, if any is left."""
        ended, task = worker.bury(), worker.task
        self._replace(worker)
        if task is None:
            return
        task.ledger.close(task.attempt, "died", f"its process ended with {ended}", {})
        if task.attempt.died >= task.ledger.retries:
            self.notify(task.event("ended", worker.index, status="crashed", error=f"its process ended with {ended}"))

    def _replace(self, worker: _Worker) -> _Worker:
        fresh = _Worker(worker.index, self.setup)
        self.workers[self.workers.index(worker)] = fresh
        return fresh

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
            if worker.task is not None:
                # Where the journal cannot be written, the next command finds the trial without its process.
                with contextlib.suppress(OSError, RecordError):
                    worker.task.ledger.close(worker.task.attempt, "interrupted", "the command was stopped", {})
