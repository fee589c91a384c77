"""Time over length of every core, and what a whole layer takes beside softmax, from the rows of a benchmark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.report.figures.style import doubling, look, panels, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]


def draw_bench(rows: Sequence[Row], ending: str) -> bytes:
    """The figure as `svg` or `png`; the same rows give the same bytes.

    Args:
        rows: as bench gives them.
        ending: of the file.
    """
    with styled():
        figure, (left, right) = panels(2, columns=2, height=3.2)
        _over_length(left, [row for row in rows if row["pass"] == "forward+backward" and row["dtype"] == "float32"])
        _beside(right, [row for row in rows if row["pass"] == "block" and row["ratio"] is not None])
        return saved(figure, ending)


def _over_length(axes: Axes, rows: Sequence[Row]) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    kept = [row for row in rows if row["backend"] != "reference" and row["median_ms"] is not None]
    ways = {name: {row["backend"] for row in kept if row["name"] == name} for name in {row["name"] for row in kept}}
    for row in kept:
        length = re.search(r"\bT(\d+)\b", row["shape"])
        rows_of_batch = re.search(r"\bB(\d+)\b", row["shape"])
        if length and rows_of_batch:
            tokens = int(length[1]) * int(rows_of_batch[1])
            name = f"{row['name']} {row['backend']}" if len(ways[row["name"]]) > 1 else row["name"]
            lines.setdefault(name, []).append((int(length[1]), row["median_ms"] * 1e3 / tokens))
    for index, (name, points) in enumerate(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), label=name, **look(index))
    axes.set_title("Cores, forward and backward")
    axes.set_xlabel("length (tokens)")
    axes.set_ylabel("µs a token")
    if lines:
        doubling(axes)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend()


def _beside(axes: Axes, rows: Sequence[Row]) -> None:
    words = [f"{row['name']} / {row['against'].split(' ')[0]}{_narrow(row)}" for row in rows]
    axes.barh(words, [row["ratio"] for row in rows], color=[look(index)["color"] for index in range(len(rows))])
    axes.axvline(1.0, color="#888888", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_title("Whole layers, forward and backward")
    axes.set_xlabel("time, as a ratio")


def _narrow(row: Row) -> str:
    # Two bars of one name would be drawn over each other.
    return "" if row["dtype"] == "float32" else f", {row['dtype']}"
