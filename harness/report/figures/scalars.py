"""Numbers that a variant declares: their values by layer and head, and they and their gradients over the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.report.figures.style import COLOURS, DASHES, MARKERS, WIDTH, in_parts, whole_steps
from harness.report.findings import ArmFindings, Findings
from harness.report.layout import fold
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "scalars"
TITLE = "Scalars of the variant"
CAPTION = (
    "What the layers declare (`scalars`), a row each, first seed. Left: after the last step, by layer and head; a "
    "declaration with several numbers a head by their place. Middle: over the training. Right: its gradient at each "
    "look, after clipping; where it is not a parameter itself there is none. Of several numbers a head, middle and "
    "right show the root mean square (rms). Layer by colour, head by dashes and marks. tau of Lazy Attention: a query "
    "that sees n keys loses every weight under -tau/n."
)
NEEDS = "scalars"
ROWS = 4
"""Rows of one figure."""
NAME_WIDTH = 34
"""Characters of a title that a panel has room for."""

Row = tuple[ArmFindings, str, list[int]]


def draw(result: Result, findings: Findings) -> list[Figure]:
    """A row of three panels for each arm and scalar."""
    from matplotlib.figure import Figure

    rows: list[Row] = []
    for arm in findings.arms:
        for record in arm.last("scalars")[:1]:
            names = [name for name in record.values.get("names", []) if arm.arrays("scalars", name) is not None]
            rows += [(arm, name, record.values.get(f"{name}_layers", [])) for name in names]
    figures = []
    for part in in_parts(rows, ROWS):
        figure = Figure(figsize=(WIDTH, 2.2 * len(part) + 0.2), layout="constrained")
        for line, row in zip(figure.subplots(len(part), 3, squeeze=False), part, strict=True):
            _draw_row(line, *row)
        figures.append(figure)
    return figures


def _draw_row(line: Any, arm: ArmFindings, name: str, layers: Sequence[int]) -> None:
    values, path, gradient = line
    final = arm.arrays("scalars", name)
    if final is None:
        return
    places = layers or list(range(1, final.shape[1] + 1))
    _values(values, final[0], places, name)
    values.set_title("\n".join(fold(f"{arm.label}: {name}", ",[ ", NAME_WIDTH)), loc="left")
    for axes, kind, label in ((path, name, name), (gradient, f"{name}_gradient", f"gradient of {name}")):
        found = arm.path("scalars", kind)
        if found is None or len(found[0]) < 2:
            why = "not followed while training" if found is None or kind == name else "one look alone"
            axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color="#555555", fontsize=8)
            axes.set_axis_off()
            continue
        _path(axes, *found, places)
        axes.set_ylabel(label if found[1].ndim < 4 else f"{label} (rms)")


def _values(axes: Axes, final: NDArray[Any], places: Sequence[int], name: str) -> None:
    """[L, H] as marks, [L, H, W] as lines over W."""
    heads = final.shape[1]
    for layer, row in zip(places, final, strict=True):
        for head, value in enumerate(row):
            colour, mark = COLOURS[layer % len(COLOURS)], MARKERS[head % len(MARKERS)]
            if final.ndim > 2:
                style = DASHES[head % len(DASHES)]
                axes.plot(range(1, len(value) + 1), value, color=colour, linestyle=style, linewidth=1.0)
            else:
                beside = 0.5 * ((head + 0.5) / heads - 0.5)
                axes.plot([layer + beside], [value], mark, color=colour, markersize=3.5)
    axes.set_ylabel(name)
    axes.set_xlabel("place of the number" if final.ndim > 2 else "layer (heads side by side)")
    if final.ndim == 2:
        axes.set_xlim(min(places) - 0.6, max(places) + 0.6)
        axes.set_xticks(list(places) if len(places) <= 8 else list(places)[:: -(-len(places) // 8)])


def _path(axes: Axes, steps: NDArray[Any], values: NDArray[Any], places: Sequence[int]) -> None:
    values = np.sqrt(np.square(values.astype(np.float64)).mean(-1)) if values.ndim > 3 else values
    for layer, rows in zip(places, values.swapaxes(0, 1), strict=True):
        for head in range(rows.shape[1]):
            style = DASHES[head % len(DASHES)]
            axes.plot(steps, rows[:, head], color=COLOURS[layer % len(COLOURS)], linestyle=style, linewidth=1.1)
    axes.set_xlabel("training step")
    whole_steps(axes)
