"""Layers with one planted fault each, by what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.spec import Backend, MixerSpec, size
from variants import softmax

SPECS: dict[str, MixerSpec] = {}
WINDOW = 70


@dataclass(frozen=True, kw_only=True)
class Config:
    """One field, so that the config claim has something to read back."""

    window: int | None = size(None, least=1)


class Layer(ops.ScoreLayer):
    """Softmax attention without positions: the sound layer that the faults are planted in."""

    def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core, rope=False)
        self.layer_index = layer_index

    def arguments(self, keys: int) -> dict[str, Any]:
        return {"window": self.window}


SOUND = MixerSpec(
    name="sound",
    Config=Config,
    Layer=Layer,
    reference=softmax.reference,
    backends=(Backend(name="fast", run=ops.sdpa),),
    checks_past=lambda config: config.window or 0,
)


def fault(name: str, **changes: Any) -> Callable[[Any], Any]:
    """Register a layer class, or a core, under what is wrong with it."""

    def register(broken: Any) -> Any:
        part = {"Layer": broken} if isinstance(broken, type) else {"backends": (Backend(name="fast", run=broken),)}
        SPECS[name] = dataclasses.replace(SOUND, **{**part, **changes})
        return broken

    return register


class Around(Layer):
    """Its output is altered by `alter`, in forward alone or, where it can be, in step too."""

    def alter(self, y: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        return self.alter(super().forward(x, shared), x)


def altered(name: str) -> Callable[[Callable[[Any, Tensor, Tensor], Any]], Any]:
    """Register a layer whose output y for x is what the function makes of it."""

    def register(alter: Callable[[Any, Tensor, Tensor], Any]) -> Any:
        fault(name)(type("Altered", (Around,), {"alter": alter}))
        return alter

    return register


@altered("peeks at the next token")
def _peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1))


@altered("peeks only beyond 64 tokens")
def _late_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    late = torch.arange(x.shape[1], device=x.device)[:, None] >= 64
    return y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1)) * late


@altered("masks its chunks of 48 one too far")
def _chunk_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    last = torch.arange(x.shape[1], device=x.device)[:, None] % 48 == 47
    return y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1)) * last


@altered("peeks at one position without gradient")
def _single_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    here = torch.arange(x.shape[1], device=x.device)[:, None] == 101
    return y + 0.1 * F.pad(x.detach()[:, 1:], (0, 0, 0, 1)) * here


@altered("peeks only beyond 256 tokens")
def _far_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    late = torch.arange(x.shape[1], device=x.device)[:, None] >= 256
    return y + 0.1 * F.pad(x[:, 1:], (0, 0, 0, 1)) * late


@altered("peeks while it trains")
def _training_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return _peek(self, y, x) if self.training else y


@altered("takes a statistic of the future without gradient")
def _detached_peek(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y * (1 + x.detach().abs().amax(1, keepdim=True))


@altered("ignores its input")
def _constant(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y.detach() * 0 + self.o.weight.sum() + 0 * x.sum()


@altered("takes the mean of the batch")
def _batch(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y + 0.1 * x.mean(0, keepdim=True)


@altered("mixes the rows of more than two")
def _many_rows(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return torch.cat([y[:2], y[2:] + 0.1 * x[:1]])


@altered("normalises over the batch while it trains")
def _batch_norm(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y / y.std((0, 1)) if self.training else y


@altered("raises while it trains")
def _raises_in_training(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    if self.training:
        raise RuntimeError("no kernel for training")
    return y


@altered("drops out in eval mode")
def _dropout(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return F.dropout(y, 0.1)


@altered("returns one position for all")
def _broadcastable(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y[:, :1]


@altered("raises at length 7")
def _raises(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    if x.shape[1] == 7:
        raise RuntimeError("seven is not supported")
    return y


@altered("divides by zero in the first row")
def _infinite(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y / torch.arange(x.shape[1], device=x.device)[:, None].clamp(max=1)


@altered("always returns float64")
def _double(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y.double()


@altered("keeps a table on the CPU")
def _on_cpu(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y * torch.ones(x.shape[1], 1)


@altered("views its input's memory")
def _views(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    return y + 0 * x.view(-1).view(x.shape)


@altered("writes into its input")
def _in_place(self: Layer, y: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        x[:, -1] = 0
    return y


@fault("has a parameter that is never trained")
class _Untrained(Layer):
    def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core)
        self.gain = nn.Parameter(torch.ones(()))

    def finish(self, out: Tensor, v: Tensor) -> Tensor:
        return out * self.gain.detach()


@fault("cuts its table from the longest it made")
class _Stale(Around):
    table: Tensor | None = None

    def alter(self, y: Tensor, x: Tensor) -> Tensor:
        length = x.shape[1]
        if self.table is None or len(self.table) < length:
            self.table = torch.linspace(1.0, 2.0, length, device=x.device)
        return y * self.table[:length, None]


@fault("forgets its window in step", checks_past=lambda config: WINDOW)
class _NoWindow(Layer):
    def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core)
        self.window = None

    def inputs(self, x: Tensor, shared: dict[str, Any]) -> dict[str, Any]:
        return {**super().inputs(x, shared), "window": WINDOW}


@fault("drifts in decode")
class _Drift(Layer):
    def step(self, x: Tensor, state: Any, shared: dict[str, Any]) -> Any:
        y, state = super().step(x, state, shared)
        return y, state._replace(v=state.v * 1.0005)


@fault("leaks through what a layer hands the next")
class _DeepLeak(Layer):
    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        y = super().forward(x, shared)
        y = y + shared.get("mean", 0.0)
        shared["mean"] = 0.1 * x.mean(1, keepdim=True)
        return y


@fault("peeks in its second layer alone")
class _SecondLayer(Around):
    def alter(self, y: Tensor, x: Tensor) -> Tensor:
        return _peek(self, y, x) if self.layer_index == 1 else y


@fault("says other inputs than it uses")
class _OtherInputs(Layer):
    def inputs(self, x: Tensor, shared: dict[str, Any]) -> dict[str, Any]:
        arguments = super().inputs(x, shared)
        return {**arguments, "k": arguments["k"] * 1.5}

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        q, k, v = self.project(x)
        return self.mix(q, k, v, v, self.arguments(x.shape[1]))
