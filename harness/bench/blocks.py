"""Cases of the blocks: a variant's whole layer, projections included, and Mamba's block of another package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.bench import peers
from harness.bench.case import Case, Group
from harness.bench.layers import Shape, layer, noise, usable, variants
from harness.cost import layer_cost
from harness.spec import MixerSpec

SHAPE = Shape(rows=8, heads=4, length=512, width=64)


def groups(dtypes: list[str], device: str) -> list[Group]:
    """A group of the layers for each dtype, each beside softmax; one of Mamba beside mambapy."""
    found = []
    for dtype in dtypes:
        cases = [_case(spec, dtype, device) for spec in variants().values() if usable(spec, SHAPE, dtype, device)]
        pairs = [(index, 0) for index in range(len(cases))]
        if dtype == "float32" and peers.missing("mambapy") is None:
            mamba = [case.name for case in cases].index("mamba")
            cases.append(_mambapy(device))
            pairs += [(mamba, len(cases) - 1), (len(cases) - 1, 0)]
        found.append(Group(cases, pairs))
    return found


def _shape() -> str:
    return f"B{SHAPE.rows} T{SHAPE.length} M{SHAPE.dims.model_dim}"


def _case(spec: MixerSpec, dtype: str, device: str) -> Case:
    backend = usable(spec, SHAPE, dtype, device)[0].name
    flops = None
    if spec.cost is not None:
        cost = layer_cost(spec, spec.Config(), SHAPE.dims, SHAPE.length)
        flops = SHAPE.rows * SHAPE.length * cost.training

    def make() -> Callable[[], Any]:
        made = layer(spec, backend, SHAPE.dims, device)
        return _pass(lambda x: made(x, {}), list(made.parameters()), dtype, device)

    return Case(name=spec.name, shape=_shape(), dtype=dtype, part="block", backend=backend, make=make, flops=flops)


def _mambapy(device: str) -> Case:
    def make() -> Callable[[], Any]:
        made = peers.mambapy_block(SHAPE.dims.model_dim, device)
        return _pass(made, list(made.parameters()), "float32", device)

    return Case(name="mambapy", shape=_shape(), dtype="float32", part="block", backend="parallel scan", make=make)


def _pass(run: Callable[[Tensor], Tensor], parameters: list[Tensor], dtype: str, device: str) -> Callable[[], Any]:
    x = noise(SHAPE.rows, SHAPE.length, SHAPE.dims.model_dim, device=device).requires_grad_()

    def call() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            y = run(x)
        return torch.autograd.grad(y.float().square().mean(), [x, *parameters], allow_unused=True)

    return call
