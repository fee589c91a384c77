"""What happens while an experiment runs, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Event:
    """What the screen may want to know.

    Args:
        kind: `planned` (total and left are set), `step`, `ended`, `waiting` (another process trains the run),
            `phase` (what is done beside training is named by `label`).
        worker: index of the worker.
        label, seed: of the run.
        step, steps, loss: where it stands; of what is `planned`, the best loss so far.
        status, error: how it ended.
        total, left: runs of the experiment, and those that still have to be trained.
    """

    kind: Literal["planned", "step", "ended", "waiting", "phase"]
    worker: int = 0
    label: str = ""
    seed: int = 0
    step: int = 0
    steps: int = 0
    loss: float = 0.0
    status: str = ""
    error: str | None = None
    total: int = 0
    left: int = 0
