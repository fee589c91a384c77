"""Cases of the cores: every variant and backend, forward and backward, beside softmax through torch's fused kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.bench.case import Case, Group
from harness.bench.layers import Shape, core_arguments, core_flops, forward, usable, variants, with_backward
from harness.spec import Backend, MixerSpec

PASSES: dict[str, tuple[float, Callable[..., Callable[[], Any]]]] = {
    "forward": (1.0, forward),
    "forward+backward": (3.0, with_backward),
}
BASELINE = ("softmax", "sdpa")
LENGTHS = (256, 1024, 4096)
VERY_LONG = 16_384
# No bar is about a definition; the slowest takes forty times its backend.
REFERENCE_ROUNDS = 3
# A table as training leaves it where near keys matter most: it falls off within this many tokens from this height.
HEIGHT, REACH = 12.0, 64.0


def shape_of(length: int) -> Shape:
    """The shape that a length is timed at: about as many tokens each, wider heads for longer sequences."""
    heads, width = (4, 32) if length <= 256 else (8, 64)
    return Shape(rows=max(1, 2048 // length), heads=heads, length=length, width=width)


def groups(lengths: Sequence[int], dtypes: Sequence[str], device: str) -> list[Group]:
    """A group for each length, dtype and pass; and one for memory at a length too long to be timed.

    Args:
        lengths: tokens; none is `LENGTHS`, and the very long one.
        dtypes: of the inputs.
        device: `cpu` or `cuda`.
    """
    found = []
    for length in dict.fromkeys(lengths or LENGTHS):
        shape = shape_of(length)
        for dtype in dtypes:
            found += [_group(shape, dtype, part, device) for part in PASSES]
    if not lengths and device == "cpu":
        found.append(_memory(shape_of(VERY_LONG), device))
    return found


def _group(shape: Shape, dtype: str, part: str, device: str) -> Group:
    cases = [
        _case(spec, backend, shape, dtype, part, device)
        for spec in variants().values()
        for backend in usable(spec, shape, dtype, device)
    ]
    if part == "forward+backward" and shape.length >= max(LENGTHS) and dtype == "float32":
        cases.append(_sparse(shape, device))
    baseline = [(case.name, case.backend) for case in cases].index(BASELINE)
    return Group(cases, [(index, baseline) for index in range(len(cases))])


def _case(spec: MixerSpec, backend: Backend, shape: Shape, dtype: str, part: str, device: str) -> Case:
    factor, wrap = PASSES[part]
    flops = core_flops(spec, shape)
    return Case(
        name=spec.name,
        shape=str(shape),
        dtype=dtype,
        part=part,
        backend=backend.name,
        make=lambda: wrap(backend.run, core_arguments(spec, shape, dtype, device)),
        flops=None if flops is None else factor * flops,
        most_rounds=REFERENCE_ROUNDS if backend.name == "reference" else None,
    )


def _memory(shape: Shape, device: str) -> Group:
    spec = variants()["lazy"]
    case = _case(spec, spec.backend("blocked"), shape, "float32", "forward+backward", device)
    return Group([Case(**{**vars(case), "timed": False})], [(0, 0)])


def _sparse(shape: Shape, device: str) -> Case:
    spec = variants()["lazy"]
    share = zero_blocks(shape, device)
    return Case(
        name=f"lazy, {share:.0%} of its 64 x 64 blocks zero",
        shape=str(shape),
        dtype="float32",
        part="forward+backward",
        backend="blocked",
        make=lambda: with_backward(spec.backend("blocked").run, trained(shape, device)),
    )


def trained(shape: Shape, device: str) -> dict[str, Any]:
    """Arguments of lazy's core with a table that prefers near keys, and its threshold at -1."""
    arguments = core_arguments(variants()["lazy"], shape, "float32", device)
    table: Tensor = arguments["bias"]
    with torch.no_grad():
        table.copy_(HEIGHT * torch.exp(-torch.arange(table.shape[1], device=table.device) / REACH))
    return arguments


@functools.cache
def zero_blocks(shape: Shape, device: str, side: int = 64) -> float:
    """Share of the causal blocks of weights whose every entry is zero, over two heads of one row."""
    shape = Shape(rows=1, heads=2, length=shape.length, width=shape.width)
    arguments, keys = trained(shape, device), shape.length
    zero, seen = 0, 0
    spec = variants()["lazy"]
    identity = torch.eye(side, device=device)
    with torch.no_grad():
        for start in range(0, keys, side):
            # The map is the core with one value channel a key: here the keys of one block, for all queries.
            values = torch.zeros(1, keys, shape.heads, side, device=device)
            values[0, start : start + side] = identity[: keys - start, None]
            weights = spec.backend("blocked").run(**{**arguments, "v": values})  # [1, T, H, side]
            alive = weights[0, start:].unfold(0, side, side).ne(0).any(-1).any(-1)
            zero, seen = zero + int((~alive).sum()), seen + alive.numel()
    return zero / seen
