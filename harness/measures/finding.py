"""What a measure gives, and the reason where it cannot give it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
"""Statistics of a probe: its first axis runs over sequences, the second over layers."""


@dataclass(frozen=True, eq=False)
class Finding:
    """Values and arrays of one measure in one run.

    Args:
        values: name with unit to a number, a list of numbers or a text.
        arrays: name to what is too large for the record, any shape.
    """

    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


class NotDefinedError(Exception):
    """A measure means nothing for this mixer or model; the message says why."""


def not_defined(reason: str) -> Finding:
    """The finding of a measure that is not defined here."""
    return Finding({"not_defined": reason})


def failed(error: BaseException) -> Finding:
    """The finding of a measure that broke off: not defined for now, and taken again when it is next asked for."""
    lines = str(error).strip().splitlines()
    return Finding(
        {"not_defined": f"it failed: {type(error).__name__}: {lines[0] if lines else 'no message'}", "failed": True}
    )


def require_finite(what: str, *tensors: Tensor) -> None:
    """Refuse to measure what is no number any more.

    Args:
        what: they are, for the reason.
        tensors: of any shape.

    Raises:
        NotDefinedError: one of them is not finite.
    """
    if not all(bool(tensor.isfinite().all()) for tensor in tensors):
        raise NotDefinedError(f"not finite: {what}")


def mean(values: Any) -> float:
    """Mean of what is a number, nan where nothing is."""
    found = np.asarray(values, dtype=np.float64)
    there = np.isfinite(found)
    return float(found[there].mean()) if there.any() else float("nan")


def by_layer(values: Array) -> list[float]:
    """Mean over everything but the layers of [n, L, ...]."""
    return [mean(values[:, layer]) for layer in range(values.shape[1])]
