"""Best loss so far by trial, one line an arm."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from harness.records import Store, write_whole
from harness.report.tuning import tuning_csv, tuning_markdown
from harness.tune.results import TuneResult, VariantResult

SIZE = (7.2, 4.2)


def write_tuning(result: TuneResult, store: Store, stem: str) -> list[Path]:
    """Write tables and figure of a search beside the records.

    Args:
        result: what was found.
        store: results folder.
        stem: name of the files.

    Returns:
        The files: Markdown, CSV, SVG, PNG.

    Raises:
        RecordError: one cannot be written.
    """
    pictures = draw(result)
    contents = {
        ".md": tuning_markdown(result, f"{stem}.svg").encode(),
        ".csv": tuning_csv(result).encode(),
        ".svg": pictures["svg"],
        ".png": pictures["png"],
    }
    paths = []
    for ending, content in contents.items():
        paths.append(store.tables / f"{stem}{ending}")
        write_whole(paths[-1], content)
    return paths


def draw(result: TuneResult) -> dict[str, bytes]:
    """The figure as `svg` and `png`; the same result gives the same bytes."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "tune", "svg.fonttype": "none", "font.size": 9}):
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        for variant in result.variants:
            _line(axes, variant, result.effort.in_order)
        axes.set_xlabel("trial (0: the defaults)")
        axes.set_ylabel("best selection loss so far (nats per token)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(frameon=False)
        found = {}
        for kind in ("svg", "png"):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {})
            found[kind] = buffer.getvalue()
    return found


def _line(axes: Any, variant: VariantResult, in_order: bool) -> None:
    points = [(n, value) for n, value in enumerate(variant.curve) if value is not None]
    if not points:
        return
    (line,) = axes.step(*zip(*points, strict=True), where="post", marker="o", markersize=3, label=variant.label)
    spans = [(n, span) for n, span in enumerate(variant.span) if span is not None]
    if len(variant.studies) > 1 and spans:
        places, bounds = zip(*spans, strict=True)
        low, high = zip(*bounds, strict=True)
        axes.fill_between(places, low, high, step="post", alpha=0.15, color=line.get_color(), linewidth=0)
    if in_order:
        expected = [(n, value) for n, value in enumerate(variant.expected) if value is not None]
        if expected:
            axes.plot(*zip(*expected, strict=True), linestyle=":", color=line.get_color())
