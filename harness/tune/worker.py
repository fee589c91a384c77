"""A process that trains trials, one after another, and asks at each point of the curve whether to go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from harness import environment
from harness.config import RunConfig
from harness.data import Source
from harness.execute.worker import Reporter, Setup, attempt, listen
from harness.records import Store
from harness.registry import find
from harness.train import Moment


def serve(pipe: Connection, setup: Setup, parent: int) -> None:
    """Train trials from the pipe until it closes.

    Messages out: `("step", step, steps, loss)`, `("point", step, loss)`, to be answered by whether to stop,
    `("done", status, error, curve, seconds, parameters)`, `("unusable", reason)`, `("unwritable", reason)`.

    Args:
        pipe: runs come in as dicts of `RunConfig.to_dict`.
        setup: data and results folder.
        parent: process id; when it is gone, so is the worker.
    """
    listen(pipe, setup, lambda run, source: _trial(run, source, setup, [Reporter(pipe, parent), _asks(pipe)]))


def _asks(pipe: Connection) -> Callable[[Moment], bool]:
    def ask(moment: Moment) -> bool:
        if moment.selection_loss_nats is None:
            return False
        try:
            pipe.send(("point", moment.step, moment.selection_loss_nats))
            return bool(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    return ask


def _trial(run: RunConfig, source: Source, setup: Setup, callbacks: list[Callable[[Moment], Any]]) -> tuple[Any, ...]:
    if find(run.variant).file_hash != run.file_hash:
        return ("unusable", f"{run.variant} changed while its trials were going on; start the command again")
    if source.fingerprint != run.fingerprint:
        return ("unusable", f"{setup.corpus} changed while its trials were going on; start the command again")
    checkpoint = Store(setup.root).checkpoint_path(run.id)
    code = environment.code_hash(run.variant, run.model.pattern)
    outcome = attempt(run, source, callbacks, checkpoint=checkpoint, code=code, report=False)
    checkpoint.unlink(missing_ok=True)
    curve = {int(point["step"]): point["selection_loss_nats"] for point in outcome.curve}
    return ("done", outcome.status, outcome.error, curve, round(outcome.seconds, 3), outcome.parameters)
