"""The distribution behind the sink: mean weight on the first key, over sequences, layers and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import COLOURS, DASHES, READINGS, legend, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "alpha"
TITLE = "Weight on the first token"
CAPTION = (
    "Distribution of alpha_1, the mean weight on the first key, over sequences, layers, heads and seeds. Dotted: "
    "thresholds of 0.1, 0.2, 0.3 and 0.5; Sink_1 is the share to the right of 0.3."
)
NEEDS = "sink"


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels, one outline an arm."""
    figure, both = panels(2)
    for axes, (suffix, title) in zip(both, READINGS.items(), strict=True):
        for index, arm in enumerate(findings.arms):
            counts, edges = arm.arrays("sink", f"alpha_1_counts{suffix}"), arm.arrays("sink", "edges")
            if counts is None or edges is None:
                continue
            shares = 100 * counts.sum(0) / counts.sum()
            axes.stairs(
                shares,
                edges[0],
                label=arm.label,
                color=COLOURS[index % len(COLOURS)],
                linestyle=DASHES[index % len(DASHES)],
                linewidth=1.5,
            )
        for epsilon in (0.1, 0.2, 0.3, 0.5):
            axes.axvline(epsilon, color="#777777", linewidth=0.7, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("alpha_1 (mean weight on the first key)")
        axes.set_ylabel("share of heads (%)")
    legend(figure, both[0])
    return figure
