"""Softmax attention, the baseline.

    o_i = sum_{j<=i} p_ij v_j,    p_i = softmax_j(q_i.k_j / sqrt(D) + position terms)

Source: arXiv 1706.03762, section 3.2.1; rotary positions arXiv 2104.09864, ALiBi arXiv 2108.12409, grouped heads
arXiv 2305.13245. Time O(T^2 D), state O(T D).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness import ops
from harness.ops import costs, kernels
from harness.spec import Backend, Cost, Dims, MixerSpec, Reason, choice, size


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields of `softmax`.

    Args:
        positions: rotary, a linear penalty on distance, or none.
        rope_base: base of the rotary angles; larger turns slower.
        kv_heads: key and value heads, shared by groups of query heads; none is one for each.
        window: keys a query sees at most, its own included; none is all.
    """

    positions: str = choice("rope", "alibi", "none")
    rope_base: float = size(10_000.0, above=1)
    kv_heads: int | None = size(None, least=1)
    window: int | None = size(None, least=1)


def reference(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, window: int | None = None) -> Tensor:
    """Softmax attention term by term; float64 stays float64, all else is computed in float32.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        bias: added to the score at distance i - j, [H, W]; distances past the table get 0.
        window: keys seen at most, the query's own included.

    Returns:
        [B, T, H, Dv], in the dtype of v.
    """
    scores = ops.scores(q, k)  # [B, H, T, S]
    if bias is not None:
        scores = scores + ops.distance_bias(bias, q.shape[1], k.shape[1])
    weights = ops.softmax_weights(scores, ops.visible(q.shape[1], k.shape[1], window=window, device=q.device))
    values = ops.repeat_heads(v, q.shape[2]).to(weights.dtype)
    return torch.einsum("bhts,bshd->bthd", weights, values).to(v.dtype)


def _flash(dims: Dims, config: Config, *, most: int = 256, multiple: int = 1) -> Reason:
    if config.positions == "alibi":
        return "takes no ALiBi table here"
    return kernels.channels(dims.head_dim, most=most, multiple=multiple)


def _xformers(dims: Dims, config: Config) -> Reason:
    return "takes no window here" if config.window else _flash(dims, config, most=sys.maxsize, multiple=8)


def _on_gpu(
    name: str, run: Callable[..., Tensor], supports: Callable[..., Reason], dtypes: tuple[str, ...] = ("bfloat16",)
) -> Backend:
    return Backend(
        name=name,
        run=run,
        forward=("cuda",),
        backward=("cuda",),
        dtypes=dtypes,
        probe=kernels.probe(run),
        supports=supports,
    )


class Layer(ops.ScoreLayer):
    """Projections around softmax attention."""

    def __init__(self, dims: Dims, config: Config, *, layer_index: int, core: Callable[..., Any]) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core, rope=config.positions == "rope")

    def arguments(self, keys: int) -> dict[str, Any]:
        """ALiBi's table over the distances there are, and the window."""
        bias = None
        if self.config.positions == "alibi":
            distance = torch.arange(keys, device=self.q.weight.device)
            bias = -ops.alibi_slopes(self.dims.num_heads).to(distance.device)[:, None] * distance  # [H, S]
        return {"bias": bias, "window": self.window}


def cost(dims: Dims, config: Config, length: int) -> Cost:
    """A softmax of each row; ALiBi adds one number to a score."""
    pair = costs.SOFTMAX + (config.positions == "alibi")
    return costs.score_cost(dims, config, length, pair=pair, rope=config.positions == "rope")


SPEC = MixerSpec(
    name="softmax",
    Config=Config,
    Layer=Layer,
    source="arXiv 1706.03762, section 3.2.1",
    reference=reference,
    plain={},
    backends=(
        _on_gpu("flash_attn_3", kernels.flash_attn_3, functools.partial(_flash, multiple=8)),
        _on_gpu("flash_attn_4", kernels.flash_attn_4, functools.partial(_flash, most=128, multiple=8)),
        _on_gpu("flash_attn", kernels.flash_attn, _flash),
        Backend(name="sdpa", run=ops.sdpa),
        _on_gpu("xformers", kernels.xformers, _xformers, dtypes=("float32", "bfloat16")),
        Backend(name="reference", run=reference),
    ),
    cost=cost,
    state_knob="window",
    aliases={"flash": {"backend": "sdpa"}},
    checks_past=lambda config: config.window or 0,
)
