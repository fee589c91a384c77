"""Focus: over how many keys a row is spread, and how far back they lie.

    p_ij = |A_ij| / sum_j |A_ij|
    normalised entropy = -sum_j p_ij ln p_ij / ln n_i  (n_i >= 2 visible keys)
    effective keys     = exp(entropy)
    distance           = sum_j p_ij (i - j)

Rows that need not sum to one are divided by their mass first (a proxy); dead rows have no p and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from harness.measures.block import Block
from harness.measures.finding import Array, Finding, by_layer, mean

NAME = "focus"
VERSION = 1


def reduce(block: Block) -> dict[str, Tensor]:
    """Means over the live rows after the first, [B, H]; nan where no row lives.

    Returns:
        `entropy` (normalised), `keys`, `distance` (tokens), and `live`, the share of rows that count.
    """
    mass = block.mass
    alive = mass > 0
    shares = block.weights.abs() / mass.masked_fill(~alive, 1.0)[..., None]
    entropy = torch.special.entr(shares).sum(-1)  # [B, H, T]
    position = block.visible - 1
    distance = position - (shares * position).sum(-1)
    alive = alive[..., 1:]
    rows = alive.sum(-1)

    def over_rows(values: Tensor) -> Tensor:
        return (values[..., 1:] * alive).sum(-1) / rows

    normalised = entropy / block.visible.log().clamp_min(torch.finfo(entropy.dtype).tiny)
    return {
        "entropy": over_rows(normalised),
        "keys": over_rows(entropy.exp()),
        "distance": over_rows(distance),
        "live": rows / alive.shape[-1],
    }


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values and arrays from the statistics [n, L, H] of a probe."""
    values = {
        "sequences": len(stats["entropy"]),
        "normalised_entropy_mean": mean(stats["entropy"]),
        "effective_keys_mean": mean(stats["keys"]),
        "distance_tokens_mean": mean(stats["distance"]),
        "rows_counted_percent": 100 * mean(stats["live"]),
        "normalised_entropy_by_layer": by_layer(stats["entropy"]),
        "effective_keys_by_layer": by_layer(stats["keys"]),
        "distance_tokens_by_layer": by_layer(stats["distance"]),
    }
    return Finding(values, {name: _over_sequences(stats[name]) for name in ("entropy", "keys", "distance")})


def _over_sequences(values: Array) -> Array:
    there = torch.from_numpy(values)
    found: Array = there.nanmean(0).numpy()
    return found
