"""What a claim says of a mixer, and how two tensors are held against each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Shares of the largest entry, the same for every mixer; bfloat16 has its own in the mixer's specification.
LAYER = 1e-5  # two passes of one layer in float32: rows apart, a changed future, other strides
STEP = 1e-4  # token by token against all at once in float32
OUTPUT = 2e-5  # a backend in float32 against the reference in float64
GRADIENT = 1e-4  # its gradients
SLOPE = 2e-3  # a gradient against finite differences, as a share of its norm
SLOPE_WIDE = 1e-3  # where the layer computes in float64, in part at least
# An entry is judged by the largest of its own head, but not by one that is this much smaller than another head's.
SMALL_HEAD = 1e-2

AXES = {4: ("row", "position", "head", "channel"), 3: ("row", "position", "channel")}


@dataclass(frozen=True)
class Finding:
    """What became of one claim.

    Args:
        name: the claim, a key of `CLAIMS`.
        backend: the backend it was tried through; empty where the claim has nothing to do with backends.
        passed: None where it could not be tried: `detail` says why.
        detail: the first position, head or argument that breaks it, with both values.
    """

    name: str
    backend: str
    passed: bool | None
    detail: str = ""


class Broken(Exception):
    """The claim does not hold; the message says where."""


class Absent(Exception):
    """The claim cannot be tried on this mixer; the message says why."""


def axes_of(x: Tensor, heads: int) -> tuple[str, ...]:
    """Names for the axes of a core's argument: a table whose first axis has the size of the heads is one a head."""
    if x.dim() in AXES:
        return AXES[x.dim()]
    first = "head" if x.dim() and x.shape[0] == heads else "entry"
    return (first, *("entry" for _ in range(x.dim() - 1)))


def compare(got: Any, want: Tensor, *, share: float, axes: tuple[str, ...], what: str, least: float = 0.0) -> None:
    """Hold one tensor against another, head by head.

    Args:
        got: what was computed.
        want: what it should be.
        share: error allowed, as a share of the largest entry wanted, of each head where there are heads.
        axes: a name for each axis.
        what: what the tensors are.
        least: the largest entry counts as at least this.

    Raises:
        Broken: another shape, or an entry further off (or not a number); names the first position and head.
    """
    if not isinstance(got, Tensor) or got.shape != want.shape:
        raise Broken(f"{what} is {described(got)} instead of {described(want)}")
    got, want = got.detach().double(), want.detach().double()
    if not want.numel():
        return
    largest = want.abs().amax(dim=[i for i, axis in enumerate(axes) if axis != "head"], keepdim=True)
    largest = largest.clamp(min=max(least, SMALL_HEAD * float(want.abs().max())))
    wrong = ~((got - want).abs() <= share * largest)
    if wrong.any():
        at = first(wrong, axes)
        raise Broken(
            f"{what} at {where(at, axes)} is {float(got[at]):.6g}, expected {float(want[at]):.6g} "
            f"(allowed error {share * float(largest.expand_as(want)[at]):.1g})"
        )


def first(wrong: Tensor, axes: tuple[str, ...]) -> tuple[int, ...]:
    """Index of the first true entry: lowest position, then head, then the rest."""
    order = sorted(
        range(len(axes)), key=lambda i: ("position", "head").index(axes[i]) if axes[i] in ("position", "head") else 2
    )
    found = wrong.permute(order).nonzero()[0].tolist()
    return tuple(found[order.index(i)] for i in range(len(axes)))


def where(at: tuple[int, ...], axes: tuple[str, ...]) -> str:
    """An index in words: `position 64, head 1, row 0, channel 3`."""
    named = sorted(
        zip(axes, at, strict=True),
        key=lambda pair: ("position", "head").index(pair[0]) if pair[0] in ("position", "head") else 2,
    )
    return ", ".join(f"{axis} {index}" for axis, index in named) or "its only entry"


def described(x: Any) -> str:
    """Shape of a tensor, or the type of what is none."""
    return f"{list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def strided(x: Tensor, layout: str) -> Tensor:
    """The same values in memory that is not contiguous.

    Args:
        x: any tensor.
        layout: `swapped axes` puts the third axis (heads) before the second; `gaps` puts a NaN after each entry.
    """
    if layout == "swapped axes":
        second, third = (1, 2) if x.dim() > 2 else (0, x.dim() - 1)
        return x.transpose(second, third).contiguous().transpose(second, third) if x.dim() > 1 else strided(x, "gaps")
    return torch.stack([x, torch.full_like(x, math.nan)], dim=-1)[..., 0]
