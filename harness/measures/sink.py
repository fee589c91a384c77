"""Attention sink: how many heads put much of their weight on one key, whatever the query.

    alpha_k = 1 / (T - k + 1) * sum_{i=k..T} A_ik
    Sink_k  = share of (sequence, layer, head) with alpha_k > epsilon        epsilon = 0.3, T = 64

Two readings: raw weights, and the proxy |A_ij| / (sum_j |A_ij| + 1e-8) for weights that need not sum to one: of them
the raw reading falls with the mass alone. The largest over k is taken over the first half of the keys: later
ones are seen by so few queries that a head looking at itself would count.

Source: arXiv 2410.10781, sections 3 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.measures.block import Block
from harness.measures.finding import Array, Finding, mean

NAME = "sink"
VERSION = 2

LENGTH = 64
SEQUENCES = 100
EPSILON = 0.3
EPSILONS = (0.1, 0.2, 0.3, 0.5)
SHOWN_KEYS = 10
BINS = 50

PROXY_FLOOR = 1e-8
"""Added to the mass of a row before it divides: a dead row stays 0 instead of 0 / 0."""


def reduce(block: Block) -> dict[str, Tensor]:
    """Statistics of each sequence and head.

    Returns:
        `alpha` and `alpha_proxy` [B, H, T]; `first_weight` and `first_share` [B, H], mean weight on the first key
        over the queries after it, raw and proxy; `first_weight_<group>` for each group of queries.
    """
    queries = block.visible.flip(0)  # that see key k: T ... 1
    size = block.weights.abs()
    # A product with the rows' divisors: the map of shares itself is never needed.
    divisor = 1 / (size.sum(-1) + PROXY_FLOOR)  # [B, H, T]
    found = {
        "alpha": block.weights.sum(-2) / queries,
        "alpha_proxy": (divisor[..., None, :] @ size)[..., 0, :] / queries,
        "first_weight": block.weights[..., 1:, 0].mean(-1),
        "first_share": (size[..., 0] * divisor)[..., 1:].mean(-1),
    }
    for name, members in block.groups.items():
        chosen = members[:, None, 1:].to(block.weights.dtype)
        # A sequence without such a query gives 0 / 0, and is left out of the mean.
        found[f"first_weight_{name}"] = (block.weights[..., 1:, 0] * chosen).sum(-1) / chosen.sum(-1)
    return found


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values and arrays from the statistics [n, L, H, ...] of a probe."""
    alphas = {"": stats["alpha"], "_proxy": stats["alpha_proxy"]}
    keys = stats["alpha"].shape[-1]
    values: dict[str, Any] = {"sequences": len(stats["alpha"]), "length_tokens": keys, "epsilon": EPSILON}
    arrays: dict[str, NDArray[Any]] = {"epsilons": np.array(EPSILONS), "edges": np.linspace(0, 1, BINS + 1)}
    for suffix, alpha in alphas.items():
        by_key = np.stack([100 * (alpha > epsilon).mean((0, 1, 2)) for epsilon in EPSILONS])  # [epsilon, T]
        sink = by_key[EPSILONS.index(EPSILON)]
        early = sink[: max(1, keys // 2)]
        values[f"sink_1{suffix}_percent"] = float(sink[0])
        values[f"sink_first_keys{suffix}_percent"] = sink[:SHOWN_KEYS].tolist()
        values[f"sink_largest{suffix}_percent"] = float(early.max())
        values[f"sink_largest{suffix}_key"] = int(early.argmax()) + 1
        values[f"sink_1{suffix}_by_epsilon_percent"] = by_key[:, 0].tolist()
        values[f"alpha_1{suffix}_mean"] = mean(alpha[..., 0])
        arrays[f"sink_by_key{suffix}"] = by_key
        arrays[f"alpha_by_head{suffix}"] = alpha.mean(0)
        first = alpha[..., 0]
        arrays[f"alpha_1_counts{suffix}"] = np.histogram(first, arrays["edges"])[0]
        # Signed weights have means beyond the histogram; they must not pass for 0 or 1.
        values[f"alpha_1{suffix}_below_0_percent"] = 100 * float((first < 0).mean())
        values[f"alpha_1{suffix}_above_1_percent"] = 100 * float((first > 1).mean())
    values["first_token_mass_percent"] = 100 * mean(stats["first_share"])
    groups = {name: stat for name, stat in stats.items() if name.startswith("first_weight")}
    values |= {f"{name}_mean": mean(stat) for name, stat in groups.items()}
    return Finding(values, arrays)
