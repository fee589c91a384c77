"""Where a search stands, live: one bar for each study, one for each worker; plain lines where there is no terminal."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from harness.events import Event
from harness.report.columns import DIGITS
from harness.report.formats import fixed
from harness.report.progress import LiveView, duration


class StudyView(LiveView):
    """Shows the events of `search`; use as a context.

    Args:
        console: where to; bars on a terminal, one line for each trial that has ended elsewhere.
    """

    def __init__(self, console: Console) -> None:
        self.started = time.monotonic()
        self.total = self.left = self.done = 0
        self.best: dict[str, float] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.asked: dict[str, int] = {}
        self.studies: dict[str, TaskID] = {}
        self.bars: dict[int, TaskID] = {}
        self.waiting = False
        self.whole = Progress(
            TextColumn("[bold]trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"),
            console=console,
        )  # fmt: skip
        self.each = Progress(
            TextColumn("  {task.description}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"), console=console,
        )  # fmt: skip
        self.work = Progress(
            TextColumn("  {task.description}", markup=False), BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}"), console=console,
        )  # fmt: skip
        self.all = self.whole.add_task("trials", total=0, left="")
        super().__init__(console, self.whole, self.each, self.work)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "planned":
            self._planned(event)
        elif event.kind == "step":
            state = f"step {event.step}/{event.steps}  loss {event.loss:.3f}"
            self._worker(event, f"{event.label} trial {event.seed}", state, event.step / max(1, event.steps))
        elif event.kind == "ended":
            self._ended(event)
        elif event.kind == "waiting" and not self.waiting:
            self.waiting = True
            self.console.print("another process trains the rest, waiting")

    def _planned(self, event: Event) -> None:
        # A grid that is extended is planned once more, with further trials.
        before = self.asked.get(event.label, 0)
        self.asked[event.label] = event.total
        self.total += event.total - before
        self.left += event.left
        if before:
            self.each.update(self.studies[event.label], total=event.total)
        else:
            self.counts[event.label] = {"pruned": 0, "failed": 0}
            done = event.total - event.left
            self.studies[event.label] = self.each.add_task(event.label, total=event.total, completed=done, state="")
        if math.isfinite(event.loss):
            self.best[event.label] = min(event.loss, self.best.get(event.label, math.inf))
        self.whole.update(self.all, total=self.total, completed=self.total - self.left + self.done)

    def _worker(self, event: Event, words: str, state: str, share: float) -> None:
        if event.worker not in self.bars:
            self.bars[event.worker] = self.work.add_task(words, total=1.0, state=state)
        self.work.update(self.bars[event.worker], description=words, completed=share, state=state)

    def _ended(self, event: Event) -> None:
        self.done += 1
        label, value = event.label, event.loss
        if event.status == "ok":
            self.best[label] = min(value, self.best.get(label, math.inf))
        else:
            self.counts[label]["pruned" if event.status == "stopped" else "failed"] += 1
        best = fixed(self.best.get(label), DIGITS)
        counts = "".join(f"  {count} {word}" for word, count in self.counts[label].items() if count)
        self.each.update(self.studies[label], advance=1, state=f"best {best}{counts}")
        seconds = (time.monotonic() - self.started) / self.done * (self.left - self.done)
        self.whole.update(self.all, advance=1, left=f"{duration(seconds)} left")
        failed = event.status not in ("ok", "stopped")
        if failed or not self.console.is_terminal:
            words = f"pruned at {fixed(value, DIGITS)}" if event.status == "stopped" else fixed(value, DIGITS)
            words = f"{event.status}: {event.error}" if failed else f"{words}, best {best}"
            count = self.total - self.left + self.done
            self.say(f"[{count}/{self.total}] {label} trial {event.seed}: {words}")
