"""Sparsity, mass, dead rows and entropy by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import by_layer, legend, panels
from harness.report.findings import Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "layers"
TITLE = "Sparsity, mass and focus by layer"
CAPTION = (
    "Exact zeros count causal pairs alone; the hollow marks beside them are the share of plain-softmax weights under "
    "1/n for the same scores, which any flat attention has. Entropy is that of rows divided by their mass: 0 is one "
    "key, 1 is all keys alike."
)
NEEDS = "mass"
_PANELS = (
    ("sparsity", "zeros_by_layer_percent", "exact zeros (%)"),
    ("mass", "row_mass_by_layer", "row mass (sum of weights)"),
    ("mass", "dead_rows_by_layer_percent", "dead rows (%)"),
    ("focus", "normalised_entropy_by_layer", "normalised entropy (0 to 1)"),
    ("focus", "effective_keys_by_layer", "effective keys (number)"),
    ("focus", "distance_tokens_by_layer", "distance attended (tokens)"),
)


def draw(result: Result, findings: Findings) -> Figure | None:
    """Six panels, one line an arm."""
    figure, grid = panels(len(_PANELS), height=2.3)
    for axes, (measure, name, label) in zip(grid, _PANELS, strict=True):
        for index, arm in enumerate(findings.arms):
            rows = arm.lists(measure, name)
            if rows is not None:
                by_layer(axes, rows, arm.label, index)
            below = arm.lists(measure, "plain_softmax_below_uniform_by_layer_percent")
            if below is not None and name.startswith("zeros"):
                by_layer(axes, below, "", index, linestyle="none", markerfacecolor="white")
        axes.set_ylabel(label)
        # Where all is 0, the axis would else be drawn around it. The mass of signed weights may be negative.
        low, high = axes.dataLim.intervaly
        bottom = 1.08 * float(low) if np.isfinite(low) and low < 0 else 0.0
        axes.set_ylim(bottom, max(axes.get_ylim()[1] if np.isfinite(high) else 1.0, 1.0))
        if bottom < 0:
            axes.axhline(0, color="#555555", linewidth=0.7)
    legend(figure, grid[1])
    return figure
