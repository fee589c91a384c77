"""What is timed: a case, cases that are timed in turn, and the row that comes of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Make = Callable[[], Callable[[], Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something to time.

    Args:
        name: what is computed: a variant, a loop, a package.
        shape: of the inputs, as `B1 H8 T4096 D64`.
        dtype: of the inputs.
        part: `forward`, `forward+backward`, `block`, `step` or `decode`; a row calls it `pass`.
        backend: that computes it.
        make: builds the inputs and returns what is timed.
        flops: of one call, None where no formula is given.
        timed: False where the peak of memory is all that is wanted.
        most_rounds: times it is called at most, where no bar is about it; None for as often as all.
    """

    name: str
    shape: str
    dtype: str
    part: str
    backend: str
    make: Make
    flops: float | None = None
    timed: bool = True
    most_rounds: int | None = None

    @property
    def label(self) -> str:
        """Name and backend, where they differ."""
        return self.name if self.backend in ("", self.name) else f"{self.name} {self.backend}"


@dataclass(frozen=True)
class Group:
    """Cases that are timed in turn, one call of each a round.

    Args:
        cases: in their order.
        pairs: index of a case and index of the case that it is held against; a row each.
    """

    cases: Sequence[Case]
    pairs: Sequence[tuple[int, int]]


def row(
    case: Case, other: Case, *, times: dict[int, Any], keys: tuple[int, int], memory: int | None, peak: float | None
) -> dict[str, Any]:
    """A row of the result.

    Args:
        case, other: what was timed, and what it is held against.
        times: low quartile, median, high quartile in ms by index of a case.
        keys: indices of the two cases.
        memory: bytes at the peak beyond what `make` built.
        peak: FLOP/s of a matrix product here, in the case's dtype.
    """
    own, theirs = times.get(keys[0]), times.get(keys[1])
    share = None
    if own is not None and case.flops is not None and peak:
        share = round(case.flops / (own[1] * 1e-3) / peak, 4)
    return {
        "name": case.name,
        "shape": case.shape,
        "dtype": case.dtype,
        "pass": case.part,
        "backend": case.backend,
        "median_ms": None if own is None else round(own[1], 4),
        "quartiles_ms": None if own is None else [round(own[0], 4), round(own[2], 4)],
        "ratio": None if own is None or theirs is None else round(own[1] / theirs[1], 4),
        "against": other.label if other.shape == case.shape else f"{other.label}, {other.shape}",
        "peak_memory_bytes": memory,
        "share_of_peak": share,
    }
