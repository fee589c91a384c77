"""Where an experiment stands, live: one bar for it, one for each worker; plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from harness.events import Event

View = TypeVar("View", bound="LiveView")


class LiveView:
    """Bars that stand while something goes on and leave nothing behind; use as a context.

    Args:
        console: where to; bars on a terminal alone.
        bars: from the top down.
    """

    def __init__(self, console: Console, *bars: Progress) -> None:
        self.console = console
        self.live = Live(Group(*bars), console=console, transient=True, refresh_per_second=8)

    def __enter__(self: View) -> View:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def say(self, line: str) -> None:
        """A line that stays; the names in it are no markup."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class ProgressView(LiveView):
    """Shows the events of `execute`; use as a context.

    Args:
        console: where to; bars on a terminal, one line for each finished run elsewhere.
    """

    def __init__(self, console: Console) -> None:
        self.total = self.left = self.done = 0
        self.started = time.monotonic()
        self.shares: dict[int, float] = {}
        self.bars: dict[int, TaskID] = {}
        self.whole = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.each = Progress(
            TextColumn("  {task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[loss]}"),
            console=console,
        )
        self.all: TaskID | None = None
        super().__init__(console, self.whole, self.each)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "planned":
            self.total, self.left = event.total, event.left
            self.all = self.whole.add_task("runs", total=event.total, completed=event.total - event.left, left="")
            if event.left and not self.console.is_terminal:
                self.console.print(f"{event.left} of {event.total} runs to train")
        elif event.kind == "step":
            self._step(event)
        elif event.kind == "ended":
            self._ended(event)
        elif event.kind == "phase":
            self._phase(event.label)
        elif not self.console.is_terminal:
            self.console.print(f"{event.label} seed {event.seed}: another process trains it, waiting")
        else:
            self._bar(event, f"{event.label} seed {event.seed}", "in another process", 0.0)

    def _phase(self, name: str) -> None:
        for bar in self.bars.values():
            self.each.update(bar, visible=False)
        if self.all is not None:
            self.whole.update(self.all, left=name)
        if not self.console.is_terminal:
            self.console.print(name)

    def _step(self, event: Event) -> None:
        share = event.step / event.steps
        self.shares[event.worker] = share
        self._bar(
            event, f"{event.label} seed {event.seed}", f"step {event.step}/{event.steps}  loss {event.loss:.3f}", share
        )
        self._time_left()

    def _ended(self, event: Event) -> None:
        self.done += 1
        self.shares.pop(event.worker, None)
        if self.all is not None:
            self.whole.advance(self.all)
        self._time_left()
        failed = event.status != "ok"
        if failed or not self.console.is_terminal:
            result = f"{event.status}: {event.error}" if failed else "done"
            count = self.total - self.left + self.done
            self.say(f"[{count}/{self.total}] {event.label} seed {event.seed}: {result}")

    def _bar(self, event: Event, description: str, loss: str, share: float) -> None:
        if event.worker not in self.bars:
            self.bars[event.worker] = self.each.add_task(description, total=1.0, loss=loss)
        self.each.update(self.bars[event.worker], description=description, completed=share, loss=loss)

    def _time_left(self) -> None:
        finished = self.done + sum(self.shares.values())
        if self.all is None or finished <= 0:
            return
        seconds = (time.monotonic() - self.started) / finished * (self.left - finished)
        self.whole.update(self.all, left=f"{duration(seconds)} left")


def duration(seconds: float) -> str:
    """A time as a person says it: `40 s`, `3 min 05 s`, `1 h 02 min`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
