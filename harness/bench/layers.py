"""A variant's layer and the inputs of its core, at a shape: what cores, blocks and decoding are timed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.cost import layer_cost
from harness.model import initialise
from harness.registry import core_of, shipped
from harness.spec import Backend, Dims, MixerSpec

# Above this length the term-by-term definition needs gigabytes for its weights.
LONGEST_REFERENCE = 1024


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows, heads, tokens and head width of what is timed."""

    rows: int
    heads: int
    length: int
    width: int

    def __str__(self) -> str:
        return f"B{self.rows} H{self.heads} T{self.length} D{self.width}"

    @property
    def dims(self) -> Dims:
        """The model around a layer of this shape."""
        return Dims(model_dim=self.heads * self.width, num_heads=self.heads, num_layers=1, length=self.length)


def usable(spec: MixerSpec, shape: Shape, dtype: str, device: str) -> list[Backend]:
    """Backends of a mixer that take this shape here, in the order of its specification."""
    config = spec.Config()
    return [
        backend
        for backend in spec.backends
        if backend.refuses(device, dtype, dims=shape.dims, config=config) is None
        and (backend.name != "reference" or shape.length <= LONGEST_REFERENCE)
    ]


def layer(spec: MixerSpec, backend: str, dims: Dims, device: str) -> nn.Module:
    """A layer of a mixer at its defaults, with the values that training starts from."""
    built: nn.Module = spec.Layer(dims, spec.Config(), layer_index=0, core=core_of(spec, backend))
    initialise(built, seed=0, std=None)
    return built.to(device)


def noise(*shape: int, device: str) -> Tensor:
    """Standard normal numbers, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def core_arguments(spec: MixerSpec, shape: Shape, dtype: str, device: str) -> dict[str, Any]:
    """What the layer hands its core for random inputs, each tensor a leaf that wants its gradient."""
    x = noise(shape.rows, shape.length, shape.dims.model_dim, device=device)
    made: Any = layer(spec, spec.backends[-1].name, shape.dims, device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
        found = made.inputs(x, {})
    return {
        name: value.detach().clone().requires_grad_() if isinstance(value, Tensor) else value
        for name, value in found.items()
    }


def core_flops(spec: MixerSpec, shape: Shape) -> float | None:
    """FLOPs of a core's forward pass, the projections around it taken off."""
    if spec.cost is None:
        return None
    made = layer(spec, spec.backends[-1].name, shape.dims, "cpu")
    projections = sum(2 * m.weight.numel() for m in made.modules() if isinstance(m, nn.Linear))
    forward = layer_cost(spec, spec.Config(), shape.dims, shape.length).forward
    return shape.rows * shape.length * (forward.total - projections)


def forward(run: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    """A call of a core without a graph."""

    def call() -> Any:
        with torch.no_grad():
            return run(**arguments)

    return call


def with_backward(run: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    """A call of a core and the gradients of all its tensors."""
    leaves = [value for value in arguments.values() if isinstance(value, Tensor)]
    # Every core gives back the shape of its values; the gradient that comes in is no part of what a call makes.
    values = arguments["v" if "v" in arguments else "u"]
    cotangent = noise(*values.shape, device=values.device.type).to(values.dtype)

    def call() -> Any:
        found = run(**arguments)
        out = found if isinstance(found, Tensor) else found[0]
        return torch.autograd.grad(out, leaves, cotangent, allow_unused=True)

    return call


def variants() -> dict[str, MixerSpec]:
    """Shipped variants that have backends, softmax first."""
    found = {name: variant.spec for name, variant in shipped().items() if variant.spec.backends}
    return {"softmax": found.pop("softmax"), **found}
