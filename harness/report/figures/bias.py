"""Learned bias over distance, a line a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import COLOURS, DASHES, doubling, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "bias"
TITLE = "Learned bias over distance"
CAPTION = (
    "Entries of the table of the first seed up to the training length, layer by colour, head by dashes; distance 0 is "
    "the token itself. Distances that no training sequence has keep their start and are not shown."
)
NEEDS = "scalars"


def draw(result: Result, findings: Findings) -> Figure | None:
    """One panel an arm that has such a table."""
    found = [(arm.label, table[0]) for arm in findings.arms if (table := arm.arrays("scalars", "bias")) is not None]
    if not found:
        return None
    length = int(result.experiment.settings["data"]["length"])
    figure, grid = panels(len(found), columns=2, height=2.4)
    for axes in grid[1:]:
        axes.sharey(grid[0])
    for axes, (label, table) in zip(grid, found, strict=True):
        reach = min(length, table.shape[-1])
        for layer, heads in enumerate(table):
            for head, entries in enumerate(heads):
                axes.plot(
                    range(1, reach + 1),
                    entries[:reach],
                    color=COLOURS[(layer + 1) % len(COLOURS)],
                    linestyle=DASHES[head % len(DASHES)],
                    linewidth=1.0,
                    label=f"layer {layer + 1}" if head == 0 else None,
                )
        doubling(axes)
        axes.axhline(0, color="#555555", linewidth=0.7)
        axes.set_title(label)
        axes.set_xlabel("distance + 1 (tokens)")
        axes.set_ylabel("bias (added to the score)")
        if len(table) > 1:
            axes.legend()
    return figure
