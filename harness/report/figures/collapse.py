"""Collapse by depth: residual, rank, cosines; and the repeated-token probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.figures.style import band, doubling, legend, panels, whole_steps
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "collapse"
TITLE = "Collapse by depth"
CAPTION = (
    "Of the residual stream before the first layer (depth 0) and after each. Relative residual: 0 where all tokens are "
    "alike. Last panel: how far the last token moves, relative to its norm, when one token is repeated once more; "
    "under 1e-7, which is rounding, marks stand at 1e-7."
)
NEEDS = "collapse"
_PANELS = (
    ("relative_residual_by_depth", "relative residual (0 to 1)"),
    ("effective_rank_by_depth", "effective rank (dimensions)"),
    ("token_cosine_by_depth", "token cosine"),
    ("token_cosine_centred_by_depth", "cosine, mean removed"),
)


def draw(result: Result, findings: Findings) -> Figure | None:
    """Five panels, one line an arm."""
    figure, grid = panels(len(_PANELS) + 1, height=2.3)
    for axes, (name, label) in zip(grid, _PANELS, strict=False):
        for index, arm in enumerate(findings.arms):
            rows = arm.lists("collapse", name)
            if rows is not None:
                band(axes, range(rows.shape[1]), rows, arm.label, index)
        axes.set_xlabel("depth (layers)")
        axes.set_ylabel(label)
        whole_steps(axes)
    last = grid[-1]
    for index, arm in enumerate(findings.arms):
        rows, copies = arm.lists("repeated", "moved_by_copies"), arm.lists("repeated", "copies")
        # Below rounding there is no movement to show, and a log axis has no zero.
        if rows is not None and copies is not None:
            band(last, copies[0], rows.clip(min=1e-7), arm.label, index)
    doubling(last)
    last.set_yscale("log")
    last.set_xlabel("copies of one token")
    last.set_ylabel("move over norm")
    legend(figure, grid[0])
    return figure
