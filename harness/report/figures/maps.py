"""Attention maps of the arms on one short sequence, tokens on the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import BELOW_ZERO, MAP, PALEST, WIDTH
from harness.report.findings import Findings
from harness.report.layout import fold
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "maps"
TITLE = "Attention maps"
CAPTION = (
    "One sequence of the selection split, first seed; each row is a query, each column a key; white is exactly 0, "
    "orange a negative weight, as dark as it is large. The first heads, or channels, of the last layer. "
    "⊢ is BOS, ␣ a blank."
)
NEEDS = "example"
HEADS = 2
COLUMNS = 3
TITLE_WIDTH = 28
"""Characters of a title that a panel has room for."""


def draw(result: Result, findings: Findings) -> Figure | None:
    """A map a head, row after row."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, PowerNorm
    from matplotlib.figure import Figure

    found = []
    for arm in findings.arms:
        maps, records = arm.arrays("example", "maps"), arm.last("example")
        if maps is not None:
            heads = maps[0, -1, :HEADS]
            words = [str(word) for word in records[0].values["tokens"]]
            of = records[0].values.get("of", "head")
            found += [(_title(f"{arm.label}, {of} {place}"), one, words) for place, one in enumerate(heads, 1)]
    if not found:
        return None
    # The square root of the weight: most weights are small, and a linear scale would show them all alike.
    scale = PowerNorm(0.5, vmin=0, vmax=1, clip=True)
    above, below = (ListedColormap(colormaps[name](np.linspace(PALEST, 1, 256))) for name in (MAP, BELOW_ZERO))
    across = min(COLUMNS, max(2, len(found)))
    rows = -(-len(found) // across)
    figure = Figure(figsize=(WIDTH, (WIDTH / across + 0.25) * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, across, squeeze=False).flatten().tolist()
    small = 6 if across < COLUMNS else 4.5
    for axes, (title, weights, words) in zip(grid, found, strict=False):
        for colours, sign in ((below, -1), (above, 1)):
            shown_part = np.ma.masked_less_equal(sign * weights, 0)
            axes.imshow(shown_part, cmap=colours, norm=scale, interpolation="nearest")
        places, shown = range(len(words)), [_visible(word) for word in words]
        axes.set_xticks(places, shown, fontsize=small, rotation=90 if max(map(len, shown)) > 2 else 0)
        axes.set_yticks(places, shown, fontsize=small)
        axes.tick_params(length=1.5, pad=1.5)
        axes.grid(False)
        axes.set_title(title)
        axes.set_xlabel("key (token)")
        axes.set_ylabel("query (token)")
    for spare in grid[len(found) :]:
        spare.remove()
    key = ScalarMappable(norm=scale, cmap=above)
    label = "weight (steps of its square root)"
    figure.colorbar(key, ax=grid[: len(found)], location="bottom", shrink=0.5, aspect=40, label=label)
    return figure


def _title(words: str) -> str:
    return "\n".join(fold(words, ",[ ", TITLE_WIDTH))


def _visible(word: str) -> str:
    """A token as a label: blanks can be seen, and signs that no font has stand as a box."""
    if word == "BOS":
        return "⊢"
    shown = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    # matplotlib reads a dollar sign as the start of a formula.
    return "".join(shown.get(letter, letter if letter.isprintable() else "□") for letter in word).replace("$", r"\$")
