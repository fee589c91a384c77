"""What parts that variants share cost, for the cost functions of their files."""

from __future__ import annotations

from typing import Any

from harness.spec import Cost, Dims, Work

FLOAT32 = 4
"""Bytes of a number of a state."""

# What is made of several operations on a number.
SIGMOID = 4.0  # 1 / (1 + exp(-x))
SOFTPLUS = 3.0  # log(1 + exp(x))
LOG_SIGMOID = 5.0  # -softplus(-x)
SILU = SIGMOID + 1
SOFTMAX = 5.0  # each score: largest, difference, exp, sum, quotient
SCALE = 1.0  # of a score, by 1 / sqrt(D)


def norm(channels: int) -> float:
    """Operations of a root mean square norm with weights: 4 a channel, and mean, eps and root."""
    return 4.0 * channels + 3


def mean_keys(length: int, window: int | None = None, *, own: bool = True) -> float:
    """Keys that a query sees, mean over a causal sequence.

    Args:
        length: T.
        window: keys seen at most, the query's own included.
        own: whether a query sees its own position.
    """
    most = length if window is None else min(window, length)
    # The first `most` queries see 1, 2, ... keys, all others `most`.
    pairs = most * (most + 1) / 2 + (length - most) * most
    return pairs / length - (not own)


def score_cost(
    dims: Dims,
    config: Any,
    length: int,
    *,
    pair: float,
    query: float = 0.0,
    token: float = 0.0,
    parameters: int = 0,
    rope: bool,
    own: bool = True,
) -> Cost:
    """Cost of a `ScoreLayer`: projections, two products a pair of query and key, a cache of keys and values.

        4 M^2 + 4 M G D  for q, k, v, o;    4 n H D  for n keys;    state 2 S G D

    Args:
        dims, config, length: of the layer; `kv_heads` and `window` are read where the config has them.
        pair: element-wise operations of a score, for each head, beside its scale.
        query: of a query, for each head.
        token: of a token, in the layer.
        parameters: beside those of the four projections.
        rope: queries and keys are turned, 3 operations a channel.
        own: whether a query sees its own position.
    """
    heads, width, dim = dims.num_heads, dims.head_dim, dims.model_dim
    kv_heads: int = getattr(config, "kv_heads", None) or heads
    window: int | None = getattr(config, "window", None)
    projected = 2 * dim * dim + 2 * dim * kv_heads * width

    def work(keys: float) -> Work:
        turned = 3.0 * (heads + kv_heads) * width * rope
        return Work(
            products=2.0 * projected + 4.0 * keys * heads * width,
            elementwise=heads * (keys * (SCALE + pair) + query) + turned + token,
        )

    cached = length if window is None else min(window, length)
    return Cost(
        forward=work(mean_keys(length, window, own=own)),
        decode=work(cached - (not own)),
        state_bytes=FLOAT32 * 2 * cached * kv_heads * width,
        parameters=projected + parameters,
    )
