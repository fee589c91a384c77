"""Figures of an experiment, a file each; each exports NAME, TITLE, CAPTION, NEEDS and `draw`."""

from __future__ import annotations

from typing import Any

from harness.report.figures import (
    alpha,
    bias,
    collapse,
    curves,
    forest,
    layers,
    lengths,
    maps,
    paths,
    position,
    sink,
)

FIGURES: tuple[Any, ...] = (curves, forest, sink, alpha, maps, layers, position, collapse, bias, paths, lengths)
"""In the order of the page."""

__all__ = ["FIGURES"]
