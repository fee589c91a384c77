"""The distribution behind the sink: mean weight on the first key, over sequences, layers and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import COLOURS, DASHES, READINGS, legend, panels
from harness.report.findings import ArmFindings, Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "alpha"
TITLE = "Weight on the first token"
CAPTION = (
    "Distribution of alpha_1, the mean weight on the first key, in each map (a head on a sequence), all seeds. Dotted: "
    "thresholds of 0.1, 0.2, 0.3 and 0.5; Sink_1 is the share to the right of 0.3. Where signed weights have means "
    "beyond 0 and 1, the legend says what share of maps that is."
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
            outside = _outside(arm, suffix)
            shares = (100 - sum(outside)) * counts.sum(0) / max(1, counts.sum())
            axes.stairs(
                shares,
                edges[0],
                label=arm.label + _said(outside),
                color=COLOURS[index % len(COLOURS)],
                linestyle=DASHES[index % len(DASHES)],
                linewidth=1.5,
            )
        for epsilon in (0.1, 0.2, 0.3, 0.5):
            axes.axvline(epsilon, color="#777777", linewidth=0.7, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("alpha_1 (mean weight on the first key)")
        axes.set_ylabel("share of maps (%)")
    legend(figure, both[0])
    return figure


def _outside(arm: ArmFindings, suffix: str) -> tuple[float, float]:
    """Percent of heads whose mean weight lies below 0, and above 1."""
    below, above = (arm.values("sink", f"alpha_1{suffix}_{side}_percent") for side in ("below_0", "above_1"))
    return sum(below) / max(1, len(below)), sum(above) / max(1, len(above))


def _said(outside: tuple[float, float]) -> str:
    found = [f"{share:.0f} % {side}" for share, side in zip(outside, ("below 0", "above 1"), strict=True) if share > 0]
    return f" ({', '.join(found)})" if found else ""
