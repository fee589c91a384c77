"""Row mass by position of the query, on the first token and in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import band, legend, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "mass"
TITLE = "Mass by position"
CAPTION = "Sum of the weights of a row, and the part of it on the first token, averaged over layers and heads."
NEEDS = "mass"


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels, one line an arm."""
    figure, both = panels(2)
    for axes, name, label in zip(
        both, ("mass", "first"), ("row mass (sum of weights)", "weight on the first token"), strict=True
    ):
        for index, arm in enumerate(findings.arms):
            rows = arm.arrays("mass", name)
            if rows is not None:
                means = rows.mean((1, 2))
                band(axes, range(1, means.shape[1] + 1), means, arm.label, index, marker="")
        axes.set_xlabel("position of the query (tokens)")
        axes.set_ylabel(label)
    legend(figure, both[0])
    return figure
