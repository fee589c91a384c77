"""Sigmoid attention: each visible key is weighed on its own, nothing is normalised.

    a_ij = sigmoid(s_ij + b),    s_ij = R_i q_i . R_j k_j / sqrt(D),    b = -ln(training length)
    o_i  = sum_{j<=i} a_ij v_j

The scalar b stands in for the normaliser: with scores near 0 a full row of T keys sums to about 1. It stays at its
training value when the sequence grows. Early rows see few keys and are small by design.

`row_norm` divides each row by its sum. Published sigmoid attention has no such part, so it is a choice with the default
off and not a switch: a switch is what an ablation takes out. Queries and keys are normalised in the published recipe,
which makes `qk_norm` and `bias` switches.

Source: arXiv 2409.04431, section 3 and appendix on its recipe. Time O(T^2 D), state O(T D).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.ops import costs
from harness.ops.sigmoid_blocks import sigmoid_in_blocks
from harness.spec import Backend, Cost, Dims, MixerSpec, Reason, choice, size, switch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields of `sigmoid`.

    Args:
        bias: -ln(training length) added to every score; off adds 0, and the output grows with the number of keys.
        qk_norm: queries and keys are divided by their root mean square and scaled by a learned vector.
        positions: rotary, a linear penalty on distance, or none.
        row_norm: each row of weights is divided by its sum.
        rope_base: base of the rotary angles; larger turns slower.
        kv_heads: key and value heads, shared by groups of query heads; none is one for each.
    """

    bias: bool = switch(True, off=False, removes="the scalar -ln(training length) added to every score")
    qk_norm: bool = switch(True, off=False, removes="the norm of queries and keys")
    positions: str = choice("rope", "alibi", "none")
    row_norm: bool = choice(False, True)
    rope_base: float = size(10_000.0, above=1)
    kv_heads: int | None = size(None, least=1)


def reference(
    q: Tensor, k: Tensor, v: Tensor, *, bias: float | Tensor, alibi: bool = False, row_norm: bool = False
) -> Tensor:
    """Sigmoid attention term by term; float64 stays float64, all else is computed in float32.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        bias: the scalar b, a number or a tensor without axes.
        alibi: subtract slope_h (i - j) from the scores, the slopes of `ops.alibi_slopes`.
        row_norm: divide each row by its sum.

    Returns:
        [B, T, H, Dv], in the dtype of v.

    Source: arXiv 2409.04431, equation 3.
    """
    scores = ops.scores(q, k)  # [B, H, T, S]
    if alibi:
        distance = torch.arange(k.shape[1], device=q.device)
        slopes = ops.alibi_slopes(q.shape[2]).to(scores)[:, None]
        scores = scores + ops.distance_bias(-slopes * distance, q.shape[1], k.shape[1])
    seen = ops.visible(q.shape[1], k.shape[1], device=q.device)
    if row_norm:
        # a_j / sum a_l = softmax_j(log a): a row whose weights all underflow has shares all the same.
        weights = ops.softmax_weights(F.logsigmoid(scores + bias), seen)
    else:
        # Hidden keys become -inf before the sigmoid: a mask of 0 would be a weight of sigmoid(b).
        weights = torch.sigmoid(scores.masked_fill(~seen, float("-inf")) + bias)
    values = ops.repeat_heads(v, q.shape[2]).to(weights.dtype)
    return torch.einsum("bhts,bshd->bthd", weights, values).to(v.dtype)


def blocked(
    q: Tensor, k: Tensor, v: Tensor, *, bias: float | Tensor, alibi: bool = False, row_norm: bool = False
) -> Tensor:
    """The same in blocks of scores (`ops.sigmoid_blocks`); a single query has none and goes through `reference`.

    Raises:
        NotImplementedError: `row_norm` is asked for: a block does not know the sum of a row.
    """
    if row_norm:
        raise NotImplementedError("blocks of scores have no sum of a row to divide by")
    if q.shape[1] == 1:
        return reference(q, k, v, bias=bias, alibi=alibi)
    return sigmoid_in_blocks(q, k, v, bias=bias, alibi=alibi)


def _no_row_norm(dims: Dims, config: Config) -> Reason:
    return "divides no rows by their sum (row_norm=on)" if config.row_norm else None


class Layer(ops.ScoreLayer):
    """Projections around sigmoid attention, and the norms of queries and keys."""

    def __init__(self, dims: Dims, config: Config, *, layer_index: int, core: Callable[..., Any]) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core, rope=config.positions == "rope")
        # One scale for all heads, as each of them lives in the same D channels.
        self.q_norm = nn.RMSNorm(dims.head_dim, eps=1e-6) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(dims.head_dim, eps=1e-6) if config.qk_norm else nn.Identity()

    def project(self, x: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; the norm comes before the positions, which keep lengths as they are."""
        q, k, v = (linear(x).unflatten(-1, (-1, self.dims.head_dim)) for linear in (self.q, self.k, self.v))
        # In float32 under autocast too: the sum of squares is what the scores hang on.
        q, k = (norm(ops.at_least_float32(x)).to(x.dtype) for norm, x in ((self.q_norm, q), (self.k_norm, k)))
        if self.rope:
            q, k = ops.rotate(q, start=start, base=self.rope_base), ops.rotate(k, start=start, base=self.rope_base)
        return q, k, v

    def arguments(self, keys: int) -> dict[str, Any]:
        """The scalar at its training value, whatever the number of keys, and what is done to scores and rows."""
        config = self.config
        return {
            "bias": -math.log(self.dims.length) if config.bias else 0.0,
            "alibi": config.positions == "alibi",
            "row_norm": config.row_norm,
        }


def cost(dims: Dims, config: Config, length: int) -> Cost:
    """A sum and a sigmoid for each score, or its logarithm and a softmax; a norm for each query and key."""
    weigh = costs.LOG_SIGMOID + costs.SOFTMAX if config.row_norm else costs.SIGMOID
    normed = dims.num_heads + (config.kv_heads or dims.num_heads) if config.qk_norm else 0
    return costs.score_cost(
        dims,
        config,
        length,
        pair=1 + weigh + (config.positions == "alibi"),
        token=normed * costs.norm(dims.head_dim),
        parameters=2 * dims.head_dim * config.qk_norm,
        rope=config.positions == "rope",
    )


SPEC = MixerSpec(
    name="sigmoid",
    Config=Config,
    Layer=Layer,
    source="arXiv 2409.04431, equation 3",
    reference=reference,
    backends=(
        Backend(name="blocked", run=blocked, forward=("cpu",), backward=("cpu",), supports=_no_row_norm),
        Backend(name="reference", run=reference),
    ),
    cost=cost,
    state_knob="kv_heads",
)
