"""Attention maps of the arms on one short sequence, tokens on the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.report.figures.style import BELOW_ZERO, MAP, PALEST, WIDTH, in_parts
from harness.report.findings import Findings
from harness.report.layout import fold
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.colors import FuncNorm, ListedColormap
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
COLUMNS = 2
ROWS = 2
"""Rows of one figure: as many as a page takes at full width."""
LETTERS = 7.0
"""Points of the tokens: 32 of them fill the side of a panel."""
TITLE_WIDTH = 44
"""Characters of a title that a panel has room for."""

Panel = tuple[str, NDArray[Any], list[str]]
"""Title, weights and tokens of a map."""


def draw(result: Result, findings: Findings) -> list[Figure]:
    """A map a head, two arms a figure."""
    found: list[Panel] = []
    for arm in findings.arms:
        maps, records = arm.arrays("example", "maps"), arm.last("example")
        there = [record for record in records if "tokens" in record.values]
        if maps is not None and there:
            words, of = [str(word) for word in there[0].values["tokens"]], there[0].values.get("of", "head")
            heads = maps[0, -1, :HEADS]
            found += [(_title(f"{arm.label}, {of} {place}"), one, words) for place, one in enumerate(heads, 1)]
    # One scale for all: what is as dark weighs as much, in any arm.
    bounds = (
        min([0.0, *(float(one.min()) for _, one, _ in found)]),
        max([1.0, *(float(one.max()) for _, one, _ in found)]),
    )
    return [_figure(part, bounds) for part in in_parts(found, ROWS * COLUMNS)]


def _figure(found: Sequence[Panel], bounds: tuple[float, float]) -> Figure:
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    rows = -(-len(found) // COLUMNS)
    figure = Figure(figsize=(WIDTH, (WIDTH / COLUMNS + 0.3) * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flatten().tolist()
    colours, scale = _colours(max(bounds[1], -bounds[0]))
    for axes, (title, weights, words) in zip(grid, found, strict=False):
        axes.imshow(np.ma.masked_equal(weights, 0), cmap=colours, norm=scale, interpolation="nearest")
        places, shown = range(len(words)), [_visible(word) for word in words]
        axes.set_xticks(places, shown, fontsize=LETTERS, rotation=90 if max(map(len, shown)) > 2 else 0)
        axes.set_yticks(places, shown, fontsize=LETTERS)
        axes.tick_params(length=1.5, pad=1.5)
        axes.grid(False)
        axes.set_title(title)
        axes.set_xlabel("key (token)")
        axes.set_ylabel("query (token)")
    for spare in grid[len(found) :]:
        spare.remove()
    key = ScalarMappable(norm=scale, cmap=colours)
    label = "weight (steps of its square root)"
    bar = figure.colorbar(key, ax=grid[: len(found)], location="bottom", shrink=0.6, aspect=40, label=label)
    bar.ax.set_xlim(*bounds)
    low, high = (np.sign(bound) * abs(bound) ** 0.5 for bound in bounds)
    ticks = [step * abs(step) for step in np.linspace(low, high, 6)] if low < 0 else high**2 * np.linspace(0, 1, 6) ** 2
    bar.set_ticks(list(ticks), labels=[f"{tick:.2g}" for tick in ticks])
    return figure


def _colours(largest: float) -> tuple[ListedColormap, FuncNorm]:
    """Blue above zero, orange below, as dark as the square root is large: on a linear scale most would look alike."""
    from matplotlib import colormaps
    from matplotlib.colors import FuncNorm, ListedColormap

    above, below = (colormaps[name](np.linspace(PALEST, 1, 256)) for name in (MAP, BELOW_ZERO))
    forward, back = (lambda x: np.sign(x) * np.abs(x) ** 0.5), (lambda x: x * np.abs(x))
    return ListedColormap(np.concatenate([below[::-1], above])), FuncNorm((forward, back), vmin=-largest, vmax=largest)


def _title(words: str) -> str:
    return "\n".join(fold(words, ",[ ", TITLE_WIDTH))


def _visible(word: str) -> str:
    """A token as a label: blanks can be seen, and signs that no font has stand as a box."""
    if word == "BOS":
        return "⊢"
    shown = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    # matplotlib reads a dollar sign as the start of a formula.
    return "".join(shown.get(letter, letter if letter.isprintable() else "□") for letter in word).replace("$", r"\$")
