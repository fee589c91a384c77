"""Sparsity: weights that are exactly 0, and what a plain softmax would have had to spare.

Only causal pairs count. A zero beside it says little: a flat row is mostly below its own mean. So three numbers stand
together: exact zeros; the share of plain-softmax weights under 1/n for the same scores (n visible keys); and what the
latter is for Gaussian scores of the same spread s, Phi(s/2). A kernel can only skip blocks that are zero throughout:
the share of 32 x 32 and 64 x 64 blocks, among those with a causal pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.measures.block import Block
from harness.measures.finding import Array, Finding, by_layer, mean

NAME = "sparsity"
VERSION = 1

SIZES = (32, 64)
_PHI = NormalDist().cdf


def reduce(block: Block) -> dict[str, Tensor]:
    """Statistics of each sequence and head, [B, H].

    Returns:
        `zeros`, share of causal pairs; `blocks_32`, `blocks_64`, share of blocks; where there is a plain softmax
        `below`, its share of weights under 1/n, and `spread`, s.
    """
    causal = block.causal
    pairs = causal.sum()
    found = {"zeros": ((block.weights == 0) & causal).sum((-1, -2)) / pairs}
    for size in SIZES:
        found[f"blocks_{size}"] = _zero_blocks(block.weights, size)
    if block.plain is not None:
        uniform = 1 / block.visible[:, None]
        found["below"] = ((block.plain < uniform) & causal).sum((-1, -2)) / pairs
        found["spread"] = _spread(block)
    return found


def _zero_blocks(weights: Tensor, size: int) -> Tensor:
    short = -weights.shape[-1] % size
    largest = F.max_pool2d(F.pad(weights.abs(), (0, short, 0, short)), size)  # [B, H, T / size, T / size]
    count = largest.shape[-1]
    inside = torch.ones(count, count, dtype=torch.bool, device=weights.device).tril()
    return ((largest == 0) & inside).sum((-1, -2)) / inside.sum()


def _spread(block: Block) -> Tensor:
    """Standard deviation of a row's scores over its visible keys, root mean square over the rows: [B, H]."""
    if block.plain is None:
        raise ValueError("no plain softmax")
    causal, n = block.causal, block.visible[1:]
    # A softmax weight is its score but for a constant of the row.
    scores = block.plain.clamp_min(torch.finfo(block.plain.dtype).tiny).log().masked_fill(~causal, 0.0)[..., 1:, :]
    centre = scores.sum(-1) / n
    squares = ((scores - centre[..., None]).masked_fill(~causal[1:], 0.0) ** 2).sum(-1) / (n - 1)
    return squares.mean(-1).sqrt()


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values and arrays from the statistics [n, L, H] of a probe."""
    zeros = stats["zeros"]
    values: dict[str, Any] = {
        "sequences": len(zeros),
        "zeros_percent": 100 * mean(zeros),
        "zeros_by_layer_percent": [100 * share for share in by_layer(zeros)],
    }
    values |= {f"zero_blocks_{size}_percent": 100 * mean(stats[f"blocks_{size}"]) for size in SIZES}
    arrays = {"zeros": zeros.mean(0)}
    if "below" in stats:
        spread = mean(stats["spread"])
        values |= {
            "plain_softmax_below_uniform_percent": 100 * mean(stats["below"]),
            "plain_softmax_below_uniform_by_layer_percent": [100 * share for share in by_layer(stats["below"])],
            "score_spread": spread,
            "below_uniform_if_gaussian_percent": 100 * flat_zero_share(spread) if spread > 0 else math.nan,
        }
        arrays |= {"below": stats["below"].mean(0), "spread": stats["spread"].mean(0)}
    else:
        values["plain_softmax"] = "not defined: the weights are made from no softmax"
    return Finding(values, arrays)


def flat_zero_share(s: float, tau: float = -1.0) -> float:
    """Share of exact zeros of Elastic-Softmax over many keys with Gaussian scores: 1 - Phi(d2), see `mass`.

    At tau = -1 this is Phi(s/2), and also the share of plain-softmax weights under 1/n.

    Args:
        s: standard deviation of the scores, above 0.
        tau: threshold, below 0.
    """
    return 1 - _PHI((s * s / 2 - math.log(-tau)) / s - s)
