"""Stick-breaking attention: walking back from the query, each key breaks its share off what is left of a stick.

    A_ij  = sigmoid(z_ij) prod_{j<l<i} (1 - sigmoid(z_il)),    z_ij = q_i . k_j / sqrt(D),    j < i
    o_i   = sum_j A_ij v_j
    rem_i = 1 - sum_j A_ij = prod_{l<i} (1 - sigmoid(z_il))

The nearest strong key wins, so the order of the keys is their position: no other positions are needed. A query does not
see itself unless `attend_current`; the first row is then 0 and keeps the whole stick.

The three public implementations part over what is left of the stick, hence the policy `remainder`:

    dropped     o_i as above                                                     the package fla
    value       o_i + rem_i v_i: the query's own value takes the rest            the tests of the authors
    head_bias   norm_h(o_i + rem_i c_h): a learned vector a head, starting at 0, then a norm a head    IBM's lm-engine

Source: arXiv 2410.17980, equations 1 to 4. Time O(T^2 D), state O(T D).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness import ops
from harness.ops import costs, kernels
from harness.ops.stick_blocks import sticks_in_blocks
from harness.spec import Backend, Cost, Dims, MixerSpec, Reason, choice, size


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields of `stick_breaking`.

    Args:
        positions: none, or rotary on top of the order that is there already.
        remainder: what becomes of the rest of the stick; the policies are in the file's docstring.
        attend_current: a query breaks off a share for its own position first.
        rope_base: base of the rotary angles; larger turns slower.
        kv_heads: key and value heads, shared by groups of query heads; none is one for each.
    """

    positions: str = choice("none", "rope")
    remainder: str = choice("dropped", "value", "head_bias")
    attend_current: bool = choice(False, True)
    rope_base: float = size(10_000.0, above=1)
    kv_heads: int | None = size(None, least=1)


def reference(q: Tensor, k: Tensor, v: Tensor, *, attend_current: bool = False) -> tuple[Tensor, Tensor]:
    """Stick-breaking attention in log space; float64 stays float64, all else is computed in float32.

        log A_ij = log sigmoid(z_ij) + sum_{j<l<i} log sigmoid(-z_il)

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        attend_current: a query sees its own position too.

    Returns:
        Output [B, T, H, Dv] in the dtype of v, and the rest of the stick [B, T, H], float32 or wider, in [0, 1].

    Source: arXiv 2410.17980, equations 1 to 4.
    """
    scores = ops.scores(q, k)  # [B, H, T, S]
    seen = ops.visible(q.shape[1], k.shape[1], device=q.device)
    if not attend_current:
        seen = seen.tril(k.shape[1] - q.shape[1] - 1)
    # A hidden key breaks nothing off: 0 in the sum and -inf in the last exponent alone, for -inf - -inf has no value.
    kept = F.logsigmoid(-scores).masked_fill(~seen, 0.0)
    left = kept.flip(-1).cumsum(-1).flip(-1)  # log of the stick after key j broke its share off
    before = F.pad(left[..., 1:], (0, 1))
    weights = (F.logsigmoid(scores) + before).masked_fill(~seen, float("-inf")).exp()
    values = ops.repeat_heads(v, q.shape[2]).to(weights.dtype)
    out = torch.einsum("bhts,bshd->bthd", weights, values).to(v.dtype)
    return out, left[..., 0].exp().transpose(1, 2)


def blocked(q: Tensor, k: Tensor, v: Tensor, *, attend_current: bool = False) -> tuple[Tensor, Tensor]:
    """The same in blocks of scores (`ops.stick_blocks`); a single query has none and goes through `reference`."""
    if q.shape[1] == 1:
        return reference(q, k, v, attend_current=attend_current)
    return sticks_in_blocks(q, k, v, attend_current=attend_current)


def fla(q: Tensor, k: Tensor, v: Tensor, *, attend_current: bool = False) -> tuple[Tensor, Tensor]:
    """The Triton kernel of the package fla-core; queries and keys of one length, D and Dv at most 256.

    It knows no longer prefix of keys: decoding goes through `reference`.
    """
    if q.shape[1] != k.shape[1]:
        return reference(q, k, v, attend_current=attend_current)
    out, remainder = _kernel()(q, k, v, attend_current=attend_current)
    return out, ops.at_least_float32(remainder)


def _kernel() -> Callable[..., tuple[Tensor, Tensor]]:
    # Imported here and nowhere else: without triton and transformers its import fails.
    from fla.ops.stickbreaking_attn import parallel_stickbreaking_attn

    kernel: Callable[..., tuple[Tensor, Tensor]] = parallel_stickbreaking_attn
    return kernel


@functools.cache
def fla_probe(device: str) -> Reason:
    """Why fla-core cannot run on this device kind, or None: a tiny real call decides, forward and backward."""
    try:
        x = torch.ones(1, 8, 1, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
        torch.autograd.grad(fla(x, x, x)[0].sum(), x)
    # A package built for another machine fails in any way it likes; each of them means "not here".
    except Exception as error:
        return kernels.failure(error)
    return None


def _wide_heads(dims: Dims, config: Config) -> Reason:
    return kernels.channels(dims.head_dim, most=256)


class Layer(ops.ScoreLayer):
    """Projections around stick-breaking attention, and what becomes of the rest of the stick."""

    undecayed = ("head_bias",)

    def __init__(self, dims: Dims, config: Config, *, layer_index: int, core: Callable[..., Any]) -> None:
        super().__init__(dims, config, layer_index=layer_index, core=core, rope=config.positions == "rope")
        if config.remainder == "head_bias":
            self.head_bias = nn.Parameter(torch.zeros(dims.num_heads, dims.head_dim))
            self.head_norm = nn.GroupNorm(dims.num_heads, dims.model_dim)

    def arguments(self, keys: int) -> dict[str, Any]:
        """Whether a query sees itself."""
        return {"attend_current": self.config.attend_current}

    def finish(self, out: tuple[Tensor, Tensor], v: Tensor) -> Tensor:
        """The core's output with the rest of the stick put where the policy says."""
        mixed, remainder = out
        if self.config.remainder == "dropped":
            return mixed
        rest = remainder[..., None]
        if self.config.remainder == "value":
            return mixed + (rest * ops.repeat_heads(v, mixed.shape[2])).to(mixed.dtype)
        mixed = mixed + rest * self.head_bias
        normed: Tensor = self.head_norm(mixed.flatten(-2).flatten(0, 1))
        return normed.view_as(mixed).to(v.dtype)


def cost(dims: Dims, config: Config, length: int) -> Cost:
    """Two logarithms of a sigmoid, a running sum and an exp for each score; what the policy does with the rest."""
    width = dims.head_dim
    rest = {"dropped": 0, "value": 2 * width, "head_bias": 9 * width + 4}[config.remainder]
    return costs.score_cost(
        dims,
        config,
        length,
        pair=2 * costs.LOG_SIGMOID + 4,
        query=1 + rest,
        parameters=3 * dims.model_dim * (config.remainder == "head_bias"),
        rope=config.positions == "rope",
        own=config.attend_current,
    )


SPEC = MixerSpec(
    name="stick_breaking",
    Config=Config,
    Layer=Layer,
    source="arXiv 2410.17980, equations 1 to 4",
    reference=reference,
    backends=(
        Backend(
            name="fla",
            run=fla,
            forward=("cuda",),
            backward=("cuda",),
            dtypes=("bfloat16",),
            probe=fla_probe,
            supports=_wide_heads,
        ),
        Backend(name="blocked", run=blocked, forward=("cpu",), backward=("cpu",)),
        Backend(name="reference", run=reference),
    ),
    cost=cost,
    state_knob="kv_heads",
)
