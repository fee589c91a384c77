"""Collapse: how far the tokens of a sequence grow alike, depth by depth.

    relative residual = |X - 1 x_mean^T| / |X|                          (Frobenius)
    effective rank    = exp(-sum p_k ln p_k),   p_k = s_k / sum s       (s singular values of X)
    token cosine      = mean over pairs of tokens of cos(x_i, x_j); once as it is, once after the mean of all tokens
                        of the probe was taken from each

X [T, M] is the residual stream of one sequence before the first layer and after each.

Source: arXiv 2103.03404, section 2 (residual).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.measures.finding import Array, Finding, by_layer, require_finite
from harness.measures.inside import Inside

NAME = "collapse"
VERSION = 1


def reduce(inside: Inside) -> dict[str, Tensor]:
    """Statistics of each sequence and depth, [B, L + 1]: `residual`, `rank`, `cosine`, `cosine_centred`.

    Raises:
        NotDefinedError: the stream is not finite.
    """
    require_finite("the residual stream", *inside.residual)
    found: dict[str, list[Tensor]] = {"residual": [], "rank": [], "cosine": [], "cosine_centred": []}
    for x in inside.residual:
        wide = x.double()
        away = wide - wide.mean(1, keepdim=True)
        found["residual"].append(away.flatten(1).norm(dim=1) / wide.flatten(1).norm(dim=1))
        singular = torch.linalg.svdvals(wide)
        shares = singular / singular.sum(-1, keepdim=True)
        found["rank"].append(torch.special.entr(shares).sum(-1).exp())
        found["cosine"].append(token_cosine(wide))
        found["cosine_centred"].append(token_cosine(wide - wide.mean((0, 1))))
    return {name: torch.stack(values, dim=1) for name, values in found.items()}


def token_cosine(x: Tensor) -> Tensor:
    """Mean cosine over the pairs of different tokens: [B, T, M] to [B]."""
    unit = F.normalize(x, dim=-1)
    tokens = x.shape[1]
    # The squared sum of unit vectors holds each pair twice and each token with itself once.
    return (unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))) / (tokens * (tokens - 1))


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values by depth, from before the first layer to after the last, from the statistics [n, L + 1]."""
    values = {
        "sequences": len(stats["residual"]),
        "relative_residual_by_depth": by_layer(stats["residual"]),
        "effective_rank_by_depth": by_layer(stats["rank"]),
        "token_cosine_by_depth": by_layer(stats["cosine"]),
        "token_cosine_centred_by_depth": by_layer(stats["cosine_centred"]),
    }
    last = {name.removesuffix("_by_depth"): steps[-1] for name, steps in values.items() if isinstance(steps, list)}
    return Finding(values | last)
