"""How every figure looks: one colour and one line style an arm, axes with units, the same bytes for the same data."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

_T = TypeVar("_T")

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, grey for its yellow, which is too pale on paper: told apart by colour-blind eyes.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C")
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAP, BELOW_ZERO = "Blues", "Oranges"
PALEST = 0.18
"""Where the colours of a map start: the smallest weight must not look like the white of an exact 0."""
READINGS = {"": "raw weights", "_proxy": "rows divided by their mass (proxy)"}
"""Suffix of what the sink was measured on, and its title."""
WIDTH = 7.6
"""Inches across the page."""

HANDLE, LETTER, LINE = 0.6, 0.066, 0.17
"""Inches of a legend: across, its mark with the space around it and a letter at most; down, a line."""

PANEL = 2.6
"""Height of a row of panels, inches."""

_STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.dpi": 100.0,
    # Outlines instead of fonts: the page looks the same on any machine.
    "svg.fonttype": "path",
    "svg.hashsalt": "figure",
}


@contextmanager
def styled() -> Iterator[None]:
    """The look of the figures while they are made and saved."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def look(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of the arm at that place of the experiment."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def panels(count: int, *, columns: int = 3, height: float = PANEL) -> tuple[Figure, list[Axes]]:
    """A figure with that many panels in rows."""
    from matplotlib.figure import Figure

    across = min(columns, count)
    rows = math.ceil(count / across)
    figure = Figure(figsize=(WIDTH, height * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, across, squeeze=False).flatten().tolist()
    for spare in grid[count:]:
        spare.remove()
    return figure, grid[:count]


def legend(figure: Figure, axes: Axes, *, columns: int = 3) -> None:
    """One legend below all panels, with the handles of one of them; fewer columns where labels are long."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        fit = int(WIDTH / (HANDLE + LETTER * max(map(len, labels))))
        across = max(1, min(columns, len(labels), fit))
        figure.legend(handles, labels, loc="outside lower center", ncols=across)
        # Lines past those that any figure has room for: the panels keep their height.
        figure.set_figheight(figure.get_figheight() + LINE * max(0, math.ceil(len(labels) / across) - 2))


def band(axes: Axes, x: Sequence[float] | Any, rows: Any, label: str, index: int, **more: Any) -> None:
    """Mean over the seeds as a line, and from the lowest to the highest seed as a band.

    Args:
        axes: where.
        x: [n].
        rows: [seeds, n].
        label: of the arm.
        index: its place in the experiment.
        more: for the line.
    """
    axes.plot(x, rows.mean(0), label=label, **{**look(index), **more})
    if len(rows) > 1:
        axes.fill_between(x, rows.min(0), rows.max(0), color=COLOURS[index % len(COLOURS)], alpha=0.15, linewidth=0)


def in_parts(found: Sequence[_T], size: int) -> list[Sequence[_T]]:
    """What one figure after the other shows: more than a page's height cannot be printed."""
    return [found[start : start + size] for start in range(0, len(found), size)]


def whole_steps(axes: Axes) -> None:
    """Ticks of the horizontal axis at whole numbers: layers, depths, positions."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def doubling(axes: Axes) -> None:
    """A horizontal axis whose steps are doublings, labelled with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")


def by_layer(axes: Axes, rows: Any, label: str, index: int, **more: Any) -> None:
    """A value a layer: a line over the layers, or one bar where there is a single layer.

    Args:
        axes: where.
        rows: [seeds, layers].
        label, index: of the arm.
        more: for the line or the mark on the bar.
    """
    if rows.shape[1] > 1:
        band(axes, range(1, rows.shape[1] + 1), rows, label, index, **more)
        axes.set_xlabel("layer")
        whole_steps(axes)
        return
    mean = rows.mean()
    if more:
        axes.plot([index], [mean], **{**look(index), **more})
    else:
        away = [[mean - rows.min()], [rows.max() - mean]]
        axes.bar([index], [mean], yerr=away, color=COLOURS[index % len(COLOURS)], alpha=0.75, label=label)
    axes.set_xticks([])
    axes.set_xlabel("the one layer")


def saved(figure: Figure, ending: str) -> bytes:
    """The figure as `svg` or `png`, without a date: the same data gives the same bytes."""
    file = io.BytesIO()
    quiet = {"Date": None} if ending == "svg" else {"Software": None}
    figure.savefig(file, format=ending, dpi=160, metadata=quiet)
    return file.getvalue()
