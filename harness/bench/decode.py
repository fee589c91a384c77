"""Cases of decoding: one more token after a short and after a long context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.bench.case import Case, Group
from harness.bench.layers import Shape, layer, noise, usable, variants
from harness.spec import MixerSpec

CONTEXTS = (256, 4096)


def groups(device: str) -> list[Group]:
    """A group for each variant that decodes: the longer context beside the shorter one."""
    found = []
    for spec in variants().values():
        if hasattr(spec.Layer, "step"):
            cases = [_case(spec, context, device) for context in CONTEXTS]
            found.append(Group(cases, [(0, 0), (1, 0)]))
    return found


def _case(spec: MixerSpec, context: int, device: str) -> Case:
    shape = Shape(rows=1, heads=4, length=context, width=64)
    backend = usable(spec, shape, "float32", device)[0].name

    def make() -> Callable[[], Any]:
        made: Any = layer(spec, backend, shape.dims, device)
        tokens = noise(1, context, shape.dims.model_dim, device=device)
        state = None
        with torch.no_grad():
            for position in range(context - 1):
                state = made.step(tokens[:, position : position + 1], state, {})[1]
        last = tokens[:, -1:]

        def call() -> Any:
            with torch.no_grad():
                return made.step(last, state, {})

        return call

    return Case(
        name=spec.name,
        shape=f"B1 context {context} M{shape.dims.model_dim}",
        dtype="float32",
        part="decode",
        backend=backend,
        make=make,
    )
