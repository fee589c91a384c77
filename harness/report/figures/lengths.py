"""Length extrapolation: the loss by position, past what the models were trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import band, doubling, legend, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "extrapolation"
TITLE = "Longer sequences than trained on"
CAPTION = (
    "Report split, sequences of up to eight times the training length (dotted line). A mark is the mean loss of the "
    "targets of one quarter of the training length, at its end; on a task, the triggers have a panel of their own."
)
NEEDS = "extrapolation"


def draw(result: Result, findings: Findings) -> Figure | None:
    """A panel for all targets, and one for the triggers of a task."""
    names = [
        (name, label)
        for name, label in (("loss", "loss (nats/token)"), ("trigger_loss", "trigger loss (nats/token)"))
        if any(arm.arrays("extrapolation", name) is not None for arm in findings.arms)
    ]
    if not names:
        return None
    figure, grid = panels(len(names), columns=2, height=3.0)
    for axes, (name, label) in zip(grid, names, strict=True):
        for index, arm in enumerate(findings.arms):
            losses, ends = arm.arrays("extrapolation", name), arm.arrays("extrapolation", "bucket_ends")
            if losses is not None and ends is not None:
                band(axes, ends[0], losses, arm.label, index, markersize=3)
        axes.axvline(float(result.experiment.settings["data"]["length"]), color="#555555", linestyle=":", linewidth=1)
        doubling(axes)
        axes.set_xlabel("position (tokens)")
        axes.set_ylabel(label)
    legend(figure, grid[0])
    return figure
