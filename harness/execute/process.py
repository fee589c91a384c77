"""A process that works for this one: it takes messages, answers over a pipe, and does not outlive its parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any


class Child:
    """A process of its own, freshly started, so that no state of this one reaches it.

    Args:
        target: called in it with its end of the pipe, `setup`, and the id of this process.
        setup: what it needs beside its messages.
    """

    def __init__(self, target: Callable[..., None], setup: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs, setup, os.getpid()), daemon=True)
        # Ctrl-C reaches the whole group, workers that still import included; their parent decides what becomes of
        # them. The tracker lifts the block as it starts, so it has to be there before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    @property
    def handles(self) -> list[Any]:
        """What `multiprocessing.connection.wait` waits on: a message, or its death."""
        return [self.pipe, self.process.sentinel]

    def send(self, message: Any) -> None:
        """Give it a message; one that has died is noticed by its sentinel, not here."""
        with contextlib.suppress(OSError):
            self.pipe.send(message)

    def receive(self) -> Any:
        """Its next message; None where it died without one."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None

    def bury(self) -> str:
        """Clear away a process that has died; how it ended."""
        self.process.join()
        self.pipe.close()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        return f"signal {-code}" + (" (often: not enough memory)" if code == -9 else "")

    def stop(self) -> None:
        """End it, whatever it does."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def in_a_fork(measure: Callable[[], int | None]) -> int | None:
    """What a measurement gives in a copy of this process; None where it fails, or gives no count.

    The copy has no threads but one: this process must not have started torch's before.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(measure()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return int(text) if text.isdigit() else None
