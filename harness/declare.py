"""A question put before its runs: what an ablation's file exports as `EXPERIMENT`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms to compare, and what is expected of them before they run.

    Args:
        question: what the table is to answer, one sentence.
        expectation: what its author expects, and on which grounds.
        metric: the one metric that verdicts are given on.
        arms: arms as the command line writes them, `NAME[field=value,...]`; the first is the baseline.
        task: a synthetic task in the place of text.
        preset: size and recipe; the task's own, or `quick`, unless given.
        settings: fields of the sections, `{"train": {"steps": 500}}`, on top of the preset.
    """

    question: str
    expectation: str
    metric: str = "val_loss_nats"
    arms: tuple[str, ...]
    task: str | None = None
    preset: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
