"""Cores and gradients with one planted fault each, beside the layers of `planted`."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.contract.examine import DIMS
from harness.spec import Backend, Cost, MixerSpec
from tests.planted import SOUND, SPECS, Config, fault
from variants import lazy, softmax


def _no_state(dims: Any, config: Any, length: int) -> Cost:
    return dataclasses.replace(softmax.cost(dims, softmax.Config(positions="none"), length), state_bytes=0)


class _WrongHead(torch.autograd.Function):
    """The identity; its gradient is 1.01 times too large for one head."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, head: int) -> Tensor:
        ctx.head = head
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * _only(ctx.head, g, 1.01), None


def _only(head: int, x: Tensor, factor: float) -> Tensor:
    """A factor for one head of x [..., H, D], 1 for the others."""
    return 1 + (factor - 1) * (torch.arange(x.shape[-2], device=x.device) == head).to(x)[:, None]


class _Contiguous(torch.autograd.Function):
    """The identity; its gradient is read as if it lay in one piece."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        whole = g if g.is_contiguous() or 0 in g.stride() else g.as_strided(g.shape, torch.empty(g.shape).stride())
        return torch.nan_to_num(whole)


def _wrong_head(head: int) -> None:
    @fault(f"has a wrong gradient for head {head} of k")
    def backward(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
        return ops.sdpa(q, _WrongHead.apply(k, head), v, window=window)

    @fault(f"has a wrong head {head}")
    def forward(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
        y = ops.sdpa(q, k, v, window=window)
        return y * _only(head, y, 1.001)


HEADS = range(DIMS.num_heads)
for _head in HEADS:
    _wrong_head(_head)


@fault("misreads an output gradient that is not contiguous")
def _misread(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    return _Contiguous.apply(ops.sdpa(q, k, v, window=window).contiguous())


@fault("is one in a thousand off")
def _off(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    return ops.sdpa(q, k, v, window=window) * 1.001


@fault("is off past 100 keys")
def _off_late(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    late = torch.arange(k.shape[1] - q.shape[1], k.shape[1], device=q.device)[:, None, None] >= 100
    return ops.sdpa(q, k, v, window=window) * (1 + 1e-3 * late)


@fault("drops the gradient of v")
def _detached(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    return ops.sdpa(q, k, v.detach(), window=window)


def _rounded_threshold(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor, tau: Tensor, **other: Any) -> Tensor:
    scores = ops.scores(q, k) + ops.distance_bias(bias, q.shape[1], k.shape[1])
    seen = ops.visible(q.shape[1], k.shape[1])
    weights = ops.softmax_weights(scores, seen).to(v.dtype)
    offset = tau[:, None, None].to(v.dtype) / seen.sum(-1, keepdim=True).to(v.dtype)
    kept = F.relu(weights + offset).masked_fill(~seen, 0.0)
    return torch.einsum("bhts,bshd->bthd", kept, v)


SPECS["forms the threshold in bfloat16"] = dataclasses.replace(
    lazy.SPEC, backends=(Backend(name="fast", run=_rounded_threshold),)
)
SPECS["rounds float64 in its reference"] = dataclasses.replace(
    SOUND, reference=lambda q, k, v, *, window=None: softmax.reference(q.float(), k.float(), v.float(), window=window)
)


class _Own(nn.Module):
    """A user's file with Config, Layer.forward and SPEC alone, whose own backward pass is wrong for one head."""

    head = 0

    def __init__(self, dims: Any, config: Any, *, layer_index: int, core: Any) -> None:
        super().__init__()
        self.heads, self.mix = dims.num_heads, nn.Linear(dims.model_dim, dims.model_dim)

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        past = x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return _WrongHead.apply(self.mix(past).unflatten(-1, (self.heads, -1)), self.head).flatten(-2)


MINIMAL = MixerSpec(name="minimal", Config=Config, Layer=_Own)
for _head in HEADS:
    _layer = type("Own", (_Own,), {"head": _head})
    SPECS[f"has a wrong gradient for head {_head} and no reference"] = dataclasses.replace(MINIMAL, Layer=_layer)
SPECS["says that it keeps no state"] = dataclasses.replace(SOUND, cost=_no_state)
