"""Mass: what the weights of a row sum to, where it lies, and which rows and heads are silent.

    m_i = sum_j A_ij        a row is dead where each of its weights is exactly 0, a head where each of its rows is

With tau = -1 and i.i.d. Gaussian scores of standard deviation s a row's mass tends to 2 Phi(s/2) - 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
from torch import Tensor

from harness.measures.block import Block
from harness.measures.finding import Array, Finding, by_layer, mean

NAME = "mass"
VERSION = 1

_PHI = NormalDist().cdf


def reduce(block: Block) -> dict[str, Tensor]:
    """Statistics of each row.

    Returns:
        `mass` (signed), `dead` and `first` (weight on the first key), [B, H, T] each.
    """
    return {
        "mass": block.weights.sum(-1),
        "dead": (block.mass == 0).to(block.weights.dtype),
        "first": block.weights[..., 0],
    }


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values and arrays from the statistics [n, L, H, T] of a probe."""
    mass, dead, first = stats["mass"], stats["dead"], stats["first"]
    values = {
        "sequences": len(mass),
        "length_tokens": mass.shape[-1],
        "row_mass_mean": mean(mass),
        "row_mass_p5": float(np.percentile(mass, 5)),
        "dead_rows_percent": 100 * mean(dead),
        "dead_heads_percent": 100 * float((dead.min((0, 3)) == 1).mean()),
        "mass_on_first_mean": mean(first[..., 1:]),
        "mass_off_first_mean": mean((mass - first)[..., 1:]),
        "row_mass_by_layer": by_layer(mass),
        "dead_rows_by_layer_percent": [100 * share for share in by_layer(dead)],
    }
    arrays = {
        "mass": mass.mean(0),
        "dead": dead.mean(0),
        "first": first.mean(0),
        "mass_p5": np.percentile(mass, 5, axis=(0, 2)),
    }
    return Finding(values, arrays)


def flat_row_mass(s: float, tau: float = -1.0) -> float:
    """Mass of an Elastic-Softmax row over many keys with Gaussian scores.

        Phi(d1) - |tau| Phi(d2),   d1 = (s^2 / 2 - ln|tau|) / s,   d2 = d1 - s

    Args:
        s: standard deviation of the scores, above 0.
        tau: threshold, below 0.
    """
    upper = (s * s / 2 - math.log(-tau)) / s
    return _PHI(upper) + tau * _PHI(upper - s)
