"""Synthetic tasks: the data, the size and the metric that come with one, and what is expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.data import BACKCOPY
from harness.errors import unknown


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task that a comparison can be run on in the place of text.

    Args:
        name: as `--task` takes it.
        source: its corpus, with the version of the task in it.
        preset: size and recipe, unless another is asked for.
        metric: what verdicts are given on.
        expectation: what is expected, and on which grounds.
    """

    name: str
    source: str
    preset: str
    metric: str
    expectation: str

    def corpus(self, text: str | None) -> str:
        """The corpus of a run on this task, over the characters of a text where one is named."""
        return self.source if text is None else f"{self.source}:{text}"

    def declared(self, words: Mapping[str, Any]) -> dict[str, Any]:
        """What an experiment declares, once it is run on this task: another metric and another expectation."""
        return {**words, "metric": self.metric, "expectation": self.expectation}


TASKS = {
    "backcopy": Task(
        name="backcopy",
        source=BACKCOPY,
        preset="backcopy",
        metric="trigger_loss_nats",
        expectation="Plain softmax parks the weight of its idle head on the first token (Sink_1 above 90 %, after "
        "arXiv 2410.13835); where a row may sum to less than one, nothing has to be parked.",
    )
}


def find(name: str) -> Task:
    """The task of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
