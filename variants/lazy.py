"""Lazy Attention: softmax with a learned bias over distance, whose small weights are cut to zero (Elastic-Softmax).

    s_ij = R_i q_i . R_j k_j / sqrt(D) + b[h, i-j]        b = 0 past the table; keys there stay visible
    a_ij = relu(softmax_j(s_ij) + tau_h / n_i)            n_i = keys that query i sees; not renormalised
    o_i  = sum_{j<=i} a_ij v_j

At tau = -1 a key survives only where it gets more than an equal share. The first token is then exactly 0, on the
kink of the ReLU, and near-uniform scores leave the layer almost silent.

Source: arXiv 2601.00919 and its authors' code (additive sign of tau). Time O(T^2 D), state O(T D).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.ops import costs
from harness.spec import Backend, Cost, Dims, MixerSpec, Reason, choice, knob, size, switch


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields of `lazy`.

    Args:
        bias: the learned table over distance, one for each head.
        elastic: the threshold after the softmax.
        rope: rotary positions.
        bias_length: entries of the table, W.
        bias_std: standard deviation of the table's start.
        tau_start: threshold at the start; 0 is softmax, -1 cuts all that is under an equal share.
        tau: learned for each head, or fixed at its start.
        divide_by_n: tau is divided by the number of visible keys.
        renormalise: rows are divided by their sum after the cut.
        output_norm: each head's output is divided by its root mean square.
        rope_base: base of the rotary angles.
        kv_heads: key and value heads; none is one for each query head.
    """

    bias: bool = switch(True, off=False, removes="the learned bias over distance")
    elastic: bool = switch(True, off=False, removes="the threshold after the softmax")
    rope: bool = switch(True, off=False, removes="rotary positions")
    bias_length: int = size(512, least=1)
    bias_std: float = size(0.0, least=0)
    tau_start: float = knob(-1.0, low=-1.5, high=0.5)
    tau: str = choice("learned", "fixed")
    divide_by_n: bool = choice(True, False)
    renormalise: bool = choice(False, True)
    output_norm: bool = choice(False, True)
    rope_base: float = size(10_000.0, above=1)
    kv_heads: int | None = size(None, least=1)

    def __post_init__(self) -> None:
        if self.elastic and not self.divide_by_n and self.tau_start <= -1:
            raise ValueError(
                f"tau_start={self.tau_start:g} with divide_by_n=off cuts every weight, and no gradient "
                "brings one back; take tau_start above -1, such as -0.01"
            )


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = None,
    tau: Tensor | None = None,
    divide_by_n: bool = True,
    renormalise: bool = False,
) -> Tensor:
    """Lazy Attention term by term; float64 stays float64, all else is computed in float32.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        bias: added to the score at distance i - j, [H, W]; distances past the table get 0. None is no bias.
        tau: threshold [H], added to the weights after the softmax. None is no threshold.
        divide_by_n: tau is divided by the number of keys the query sees.
        renormalise: rows are divided by their sum; a row without mass stays 0.

    Returns:
        [B, T, H, Dv], in the dtype of v.

    Source: arXiv 2601.00919, equations of section 3.
    """
    scores = ops.scores(q, k)  # [B, H, T, S]
    if bias is not None:
        scores = scores + ops.distance_bias(bias, q.shape[1], k.shape[1])
    seen = ops.visible(q.shape[1], k.shape[1], device=q.device)
    weights = ops.softmax_weights(scores, seen)
    if tau is not None:
        weights = elastic(weights, tau, seen, divide_by_n=divide_by_n, renormalise=renormalise)
    values = ops.repeat_heads(v, q.shape[2]).to(weights.dtype)
    return torch.einsum("bhts,bshd->bthd", weights, values).to(v.dtype)


def elastic(weights: Tensor, tau: Tensor, seen: Tensor, *, divide_by_n: bool, renormalise: bool) -> Tensor:
    """relu(p + tau / n) over the visible keys: Elastic-Softmax.

    Args:
        weights: softmax weights p [B, H, T, S], float32 or wider.
        tau: [H].
        seen: visible keys [T, S].
        divide_by_n, renormalise: as in `reference`.

    Returns:
        [B, H, T, S]; rows sum to less than 1 where tau < 0.
    """
    offset = tau.to(weights.dtype)[:, None, None]
    if divide_by_n:
        offset = offset / seen.sum(-1, keepdim=True).to(weights.dtype)
    # The mask comes again after the offset: with tau > 0 every hidden key would else get tau / n.
    kept = F.relu(weights + offset).masked_fill(~seen, 0.0)
    if not renormalise:
        return kept
    total = kept.sum(-1, keepdim=True)
    return kept / total.masked_fill(total == 0, 1.0)


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = None,
    tau: Tensor | None = None,
    divide_by_n: bool = True,
    renormalise: bool = False,
) -> Tensor:
    if tau is not None:
        raise NotImplementedError("torch's fused attention has no threshold after the softmax")
    return ops.sdpa(q, k, v, bias=bias)


def _plain_softmax(dims: Dims, config: Config) -> Reason:
    if config.elastic:
        return "has no threshold after the softmax (elastic=on)"
    return "has no fused kernel that gives a table its gradient (bias=on)" if config.bias else None


class Layer(ops.ScoreLayer):
    """Projections around Lazy Attention; the table and tau are float32 and outside weight decay."""

    undecayed = ("bias", "tau")

    def __init__(self, dims: Dims, config: Config, *, layer_index: int, core: Callable[..., Any]) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core, rope=config.rope)
        table = nn.Parameter(torch.zeros(dims.num_heads, config.bias_length)) if config.bias else None
        self.register_parameter("bias", table)
        start = torch.full((dims.num_heads,), config.tau_start) if config.elastic else None
        if config.tau == "learned":
            self.register_parameter("tau", None if start is None else nn.Parameter(start))
        else:
            self.register_buffer("tau", start)

    def draw(self, name: str, parameter: Tensor, generator: torch.Generator) -> Tensor | None:
        """Start of the table: normal with `bias_std`."""
        if name != "bias":
            return None
        return torch.randn(parameter.shape, generator=generator) * self.config.bias_std

    def arguments(self, keys: int) -> dict[str, Any]:
        """The table, the threshold and what is done with it."""
        config = self.config
        return {
            "bias": self.bias,
            "tau": self.tau,
            "divide_by_n": config.divide_by_n,
            "renormalise": config.renormalise,
        }

    def scalars(self) -> dict[str, Tensor]:
        """The table [H, W] and tau [H]; the threshold of a query that sees n keys is -tau / n."""
        found = {"bias": self.bias, "tau": self.tau}
        return {name: value for name, value in found.items() if value is not None}

    def finish(self, out: Tensor, v: Tensor) -> Tensor:
        """RMS norm of each head's output, where it is asked for."""
        return F.rms_norm(out, out.shape[-1:], eps=1e-6) if self.config.output_norm else out


def cost(dims: Dims, config: Config, length: int) -> Cost:
    """A softmax of each row; a sum with the table, the threshold and what follows it where they are there."""
    cut = 2 + 2 * config.renormalise if config.elastic else 0
    offset = config.elastic and config.divide_by_n
    normed = 3 * dims.head_dim + 3 if config.output_norm else 0
    learned = config.bias * config.bias_length + (config.elastic and config.tau == "learned")
    return costs.score_cost(
        dims,
        config,
        length,
        pair=costs.SOFTMAX + config.bias + cut,
        query=offset + normed,
        parameters=dims.num_heads * learned,
        rope=config.rope,
    )


SPEC = MixerSpec(
    name="lazy",
    Config=Config,
    Layer=Layer,
    source="arXiv 2601.00919, section 3",
    reference=reference,
    backends=(
        Backend(name="sdpa", run=_sdpa, supports=_plain_softmax),
        Backend(name="blocked", run=ops.elastic_attention),
        Backend(name="reference", run=reference),
    ),
    plain={"tau": None},
    cost=cost,
    state_knob="kv_heads",
    identities={
        "lazy[bias=off,elastic=off]": "softmax",
        "lazy[bias=off,elastic=off,rope=off]": "softmax[positions=none]",
    },
    bf16_output=2e-2,
    bf16_gradient=5e-2,
)
