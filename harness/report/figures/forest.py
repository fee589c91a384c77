"""Differences to the baseline with their simultaneous intervals: a forest plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.columns import metric_name
from harness.report.figures.style import COLOURS, panels
from harness.report.findings import Findings
from harness.report.rows import Result
from harness.statistics import MARGIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "differences"
TITLE = "Difference to the baseline"
CAPTION = (
    "Point: mean over pairs of one seed; line: the interval of all comparisons together, which the verdict goes by; "
    f"grey: ± {MARGIN:g}, the margin under which a difference is called equal."
)
NEEDS = ""
_VERDICTS = {"better": COLOURS[3], "worse": COLOURS[2]}


def draw(result: Result, findings: Findings) -> Figure | None:
    """One line an arm, the first at the top."""
    rows = [row for row in result.arms if row.difference is not None]
    if not rows:
        return None
    figure, [axes] = panels(1, height=0.6 + 0.38 * len(rows))
    axes.axvspan(-MARGIN, MARGIN, color="#cccccc", alpha=0.6, linewidth=0)
    axes.axvline(0, color="#555555", linewidth=0.8)
    for place, row in enumerate(rows):
        interval = row.difference
        if interval is None:
            continue
        colour = _VERDICTS.get(row.verdict, COLOURS[0])
        axes.plot([interval.low, interval.high], [place, place], color=colour)
        axes.plot([interval.mean], [place], "o", color=colour)
        axes.annotate(
            row.verdict, (1.01, place), xycoords=("axes fraction", "data"), va="center", color=colour, fontsize=8
        )
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    title, unit = metric_name(result.experiment.metric)
    axes.set_xlabel(f"difference in {title} to {result.experiment.baseline} ({unit}); left is lower")
    return figure
