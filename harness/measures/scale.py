"""Scale: activations that tower over the rest, the first token's norm, keys and values by position.

    largest / median of |x|, kurtosis E[(x - mean)^4] / var^2 (3 for a normal), |x_1| over the mean |x_t| of the rest,
    by depth of the residual stream; |k_t|, |v_t| by position; largest and smallest q.k / sqrt(D) over causal pairs

Source: arXiv 2402.17762 (massive activations), arXiv 2410.10781, section 4 (norms of the sink).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness import ops
from harness.measures.finding import Array, Finding, by_layer, mean, require_finite
from harness.measures.inside import Inside

NAME = "scale"
VERSION = 1


def reduce(inside: Inside) -> dict[str, Tensor]:
    """Statistics of each sequence.

    Returns:
        By depth, [B, L + 1]: `largest`, `median`, `kurtosis`, `first` (norm of the first token over the rest).
        Where the mixer has queries, keys and values: `k_norm`, `v_norm` [B, L, T], and `low`, `high` [B, L], the
        smallest and largest score before position terms that are added.

    Raises:
        NotDefinedError: the stream, queries, keys or values are not finite.
    """
    require_finite("the residual stream", *inside.residual)
    found: dict[str, list[Tensor]] = {"largest": [], "median": [], "kurtosis": [], "first": []}
    for x in inside.residual:
        size = x.abs().flatten(1)
        found["largest"].append(size.amax(1))
        found["median"].append(size.median(1).values)
        centred = x.double().flatten(1)
        centred = centred - centred.mean(1, keepdim=True)
        found["kurtosis"].append(centred.pow(4).mean(1) / centred.square().mean(1).square())
        norms = x.norm(dim=-1)
        found["first"].append(norms[:, 0] / norms[:, 1:].mean(1))
    for inputs in inside.inputs:
        if {"q", "k", "v"} <= set(inputs):
            for name, values in _of_scores(inputs).items():
                found.setdefault(name, []).append(values)
    return {name: torch.stack(values, dim=1) for name, values in found.items()}


def _of_scores(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    require_finite("queries, keys or values", q, k, v)
    scores = ops.scores(q, k)
    seen = ops.visible(q.shape[1], k.shape[1], device=q.device)
    return {
        "k_norm": k.norm(dim=-1).mean(-1),
        "v_norm": v.norm(dim=-1).mean(-1),
        "low": scores.masked_fill(~seen, float("inf")).amin((1, 2, 3)),
        "high": scores.masked_fill(~seen, float("-inf")).amax((1, 2, 3)),
    }


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values and arrays from the statistics of a probe."""
    ratio = _over(stats["largest"], stats["median"])
    values: dict[str, Any] = {
        "sequences": len(ratio),
        "largest_activation": float(stats["largest"].max()),
        "largest_over_median_activation": float(ratio.max()),
        "largest_activation_by_depth": stats["largest"].max(0).tolist(),
        "median_activation_by_depth": by_layer(stats["median"]),
        "kurtosis_by_depth": by_layer(stats["kurtosis"]),
        "first_token_norm_over_rest_by_depth": by_layer(stats["first"]),
    }
    if "k_norm" not in stats:
        values["keys_and_values"] = "not defined: the mixer has no queries, keys and values"
        return Finding(values)
    for name in ("k", "v"):
        norms = stats[f"{name}_norm"]
        over_rest = _over(norms[..., 0], norms[..., 1:].mean(-1))
        values[f"first_{name}_norm_over_rest_by_layer"] = by_layer(over_rest)
        values[f"first_{name}_norm_over_rest"] = mean(over_rest)
    values["largest_score"] = float(stats["high"].max())
    values["score_range"] = float((stats["high"] - stats["low"]).max())
    return Finding(values, {name: stats[name].mean(0) for name in ("k_norm", "v_norm")})


def _over(one: Array, other: Array) -> Array:
    # A layer whose keys are all 0 has no ratio, which is no reason to warn.
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = one / other
    return found
