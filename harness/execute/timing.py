"""Step time and peak memory of a set of arms: interleaved, warmed up, in a process of their own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from harness import environment
from harness.config import RunConfig
from harness.data import Source
from harness.events import Event
from harness.execute.process import Child, in_a_fork
from harness.experiment import Plan
from harness.records import Store, TimingRecord
from harness.train import step_function

WARM_UP = 2
ROUNDS = 9


def time_arms(plan: Plan, store: Store, notify: Callable[[Event], None]) -> str | None:
    """Measure the arms of a plan together, unless this machine has done so before.

    Args:
        plan: the experiment.
        store: where the record is looked up and written.
        notify: told before a measurement starts.

    Returns:
        The key of the timing record; None where no arm could be timed.

    Raises:
        RecordError: it cannot be written.
    """
    runs = {arm.timing_key: arm.runs[0] for arm in plan.arms}
    codes = [environment.code_hash(run.variant, run.model.pattern) for run in runs.values()]
    asked = "\0".join([environment.machine(), *sorted(runs), *sorted(codes)])
    key = hashlib.sha256(asked.encode()).hexdigest()[:16]
    if store.timing(key) is None:
        notify(Event(kind="phase", label="timing the arms"))
        started, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
        arms = _in_fresh_process(runs, plan.source)
        if not arms:
            # Nothing is known, and a record of nothing would keep the next command from trying again.
            return None
        store.write_timing(
            TimingRecord(
                key=key,
                machine=environment.machine(),
                environment=environment.describe(),
                arms=arms,
                started=started,
                seconds=round(time.monotonic() - clock, 3),
            )
        )
    return key


def _in_fresh_process(runs: Mapping[str, RunConfig], source: Source) -> dict[str, Any]:
    child = Child(_measure, (dict(runs), source))
    try:
        # A process that died, as one without enough memory does, has no timings, and the table shows it.
        return child.receive() or {}
    finally:
        child.stop()


def _measure(pipe: Connection, asked: tuple[Mapping[str, RunConfig], Source], parent: int) -> None:
    runs, source = asked
    # What a mixer prints must not get into the JSON of a command.
    os.dup2(2, 1)
    peaks = {key: _peak_memory(run, source) for key, run in runs.items()}
    steps: dict[str, Callable[[], float]] = {}
    for key, run in runs.items():
        with _without(steps, key):
            steps[key] = step_function(run, source)
            for _ in range(WARM_UP):
                steps[key]()
    times: dict[str, list[float]] = {key: [] for key in steps}
    for _ in range(ROUNDS):
        for key, step in list(steps.items()):
            with _without(steps, key):
                begin = time.perf_counter()
                step()
                _synchronise(runs[key])
                times[key].append((time.perf_counter() - begin) * 1e3)
    pipe.send({key: _summary(times[key], peaks[key]) for key in steps})


@contextlib.contextmanager
def _without(steps: dict[str, Callable[[], float]], key: str) -> Iterator[None]:
    """Leave an arm that cannot train out of the measurement; its runs say why it cannot."""
    try:
        yield
    except (Exception, SystemExit):
        steps.pop(key, None)


def _summary(milliseconds: list[float], peak: int | None) -> dict[str, Any]:
    low, middle, high = statistics.quantiles(milliseconds, n=4)
    return {"step_ms": middle, "quartiles_ms": [low, high], "peak_memory_bytes": peak}


def _synchronise(run: RunConfig) -> None:
    if run.train.device == "cuda":
        torch.cuda.synchronize()


def _peak_memory(run: RunConfig, source: Source) -> int | None:
    """Bytes that building the model and two steps add, in a forked child: freed memory of one arm serves no other."""
    return in_a_fork(lambda: _peak_here(run, source))


def _peak_here(run: RunConfig, source: Source) -> int | None:
    if run.train.device == "cuda":
        step = step_function(run, source)
        step(), step()
        return int(torch.cuda.max_memory_allocated())
    if not Path("/proc/self/clear_refs").exists():
        return None
    _touch_libraries()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    step = step_function(run, source)
    step(), step()
    return _status("VmHWM") - before


def _touch_libraries() -> None:
    # The first step of a process loads code and buffers of torch that belong to no arm.
    layer = torch.nn.Linear(8, 8)
    layer(torch.zeros(8, 8)).sum().backward()
    torch.optim.AdamW(layer.parameters(), fused=True).step()


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
