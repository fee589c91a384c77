"""Figures of an experiment, a file each: NAME, TITLE, CAPTION, NEEDS, and `draw`, which gives one or several."""

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
    scalars,
    sink,
)

FIGURES: tuple[Any, ...] = (
    curves,
    forest,
    sink,
    alpha,
    maps,
    layers,
    position,
    collapse,
    bias,
    scalars,
    paths,
    lengths,
)
"""In the order of the page."""

__all__ = ["FIGURES"]
