"""Cases of a whole comparison: two workers with a thread each, and one worker with two threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.bench.case import Case, Group
from harness.execute import Options, execute
from harness.experiment import Request, plan
from harness.records import Store

ARMS = ("softmax", "lazy")
STEPS = 120
"""Half of `quick`: each call is timed several times, and it takes seconds."""


def groups() -> list[Group]:
    """One group of two, on the CPU: the `quick` comparison of two arms at one seed, half as long."""
    return [Group([_case(workers=2, threads=1), _case(workers=1, threads=2)], [(0, 1), (1, 1)])]


def _case(*, workers: int, threads: int) -> Case:
    request = Request(
        name="bench",
        arms=ARMS,
        seeds=1,
        sets={"train.device": "cpu", "train.threads": str(threads), "train.steps": str(STEPS)},
    )

    def make() -> Callable[[], Any]:
        planned = plan(request, cuda=False)

        def call() -> None:
            with tempfile.TemporaryDirectory() as folder:
                options = Options(workers=workers, keep_weights=False)
                execute(planned, Store(Path(folder)), options, lambda event: None)

        return call

    words = f"{workers} workers, a thread each" if workers > 1 else f"1 worker, {threads} threads"
    return Case(
        name=words,
        shape=f"quick, {STEPS} steps, softmax and lazy",
        dtype="float32",
        part="compare",
        backend="",
        make=make,
    )
