"""Loss curves of the arms on the selection split, with bands over the seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import band, legend, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "curves"
TITLE = "Loss while training"
CAPTION = "Selection split; line: mean over the finished seeds, band: lowest to highest seed."
NEEDS = ""


def draw(result: Result, findings: Findings) -> Figure | None:
    """One line an arm."""
    figure, [axes] = panels(1, height=3.2)
    drawn = 0
    for index, row in enumerate(result.arms):
        curves = [record.curve for record in row.records if record is not None and record.status == "ok"]
        whole = [curve for curve in curves if curve and len(curve) == len(curves[0])]
        if whole:
            steps = [point["step"] for point in whole[0]]
            losses = np.array([[point["selection_loss_nats"] for point in curve] for curve in whole])
            band(axes, steps, losses, row.label, index)
            drawn += 1
    axes.set_xlabel("training step")
    axes.set_ylabel("selection loss (nats/token)")
    legend(figure, axes)
    return figure if drawn else None
