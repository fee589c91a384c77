"""Sink by position: how many heads have more than 0.3 of their weight on key k."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import READINGS, band, legend, panels, whole_steps
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sink"
TITLE = "Sink by position"
CAPTION = (
    "Share of (sequence, layer, head) whose mean weight on key k exceeds 0.3, sequences of 64 tokens. Left: weights as "
    "they are. Right: each row divided by its mass, a stand-in for weights that need not sum to one."
)
NEEDS = "sink"
KEYS = 16


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels, one line an arm."""
    figure, both = panels(2)
    for axes, (suffix, title) in zip(both, READINGS.items(), strict=True):
        for index, arm in enumerate(findings.arms):
            by_key, epsilons = arm.arrays("sink", f"sink_by_key{suffix}"), arm.arrays("sink", "epsilons")
            if by_key is None or epsilons is None:
                continue
            chosen = int(np.argmin(np.abs(epsilons[0] - 0.3)))
            keys = min(KEYS, by_key.shape[-1])
            band(axes, range(1, keys + 1), by_key[:, chosen, :keys], arm.label, index)
        axes.set_ylim(-3, 103)
        axes.set_title(title)
        axes.set_xlabel("key position k (1 is the first token)")
        axes.set_ylabel("Sink_k (% of heads)")
        whole_steps(axes)
    legend(figure, both[0])
    return figure
