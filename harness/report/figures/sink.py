"""Sink by position: how many heads have more than 0.3 of their weight on key k."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import READINGS, legend, look, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sink"
TITLE = "Sink by position"
CAPTION = (
    "Share of (sequence, layer, head) whose mean weight on key k exceeds 0.3, sequences of 64 tokens; mean and range "
    "over the seeds, arms side by side at each key. Left: weights as they are. Right: each row divided by its mass, a "
    "stand-in for weights that need not sum to one."
)
NEEDS = "sink"
KEYS = 10
SPREAD = 0.66
"""Room that the arms of one key share, in keys."""


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels, a mark an arm and key."""
    figure, both = panels(2)
    step = SPREAD / max(1, len(findings.arms) - 1)
    for axes, (suffix, title) in zip(both, READINGS.items(), strict=True):
        for index, arm in enumerate(findings.arms):
            by_key, epsilons = arm.arrays("sink", f"sink_by_key{suffix}"), arm.arrays("sink", "epsilons")
            if by_key is None or epsilons is None:
                continue
            chosen = int(np.argmin(np.abs(epsilons[0] - 0.3)))
            keys = min(KEYS, by_key.shape[-1])
            shares, style = by_key[:, chosen, :keys], look(index)
            mean, places = shares.mean(0), np.arange(1, keys + 1) + index * step - SPREAD / 2
            away = [mean - shares.min(0), shares.max(0) - mean]
            axes.errorbar(
                places,
                mean,
                yerr=away,
                fmt=style["marker"],
                color=style["color"],
                label=arm.label,
                elinewidth=1.0,
                markersize=3.0,
            )
        for key in range(2, KEYS + 1, 2):
            axes.axvspan(key - 0.5, key + 0.5, color="#f4f4f4", linewidth=0, zorder=0)
        axes.set_xticks(range(1, KEYS + 1))
        axes.grid(visible=False, axis="x")
        axes.set_xlim(0.5, KEYS + 0.5)
        axes.set_ylim(-3, 103)
        axes.set_title(title)
        axes.set_xlabel("key position k (1 is the first token)")
        axes.set_ylabel("Sink_k (% of maps)")
    legend(figure, both[0])
    return figure
