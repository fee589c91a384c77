"""Head redundancy: how alike the maps of the heads of one layer are.

    mean over pairs of heads of the cosine between their maps, each taken as one long vector

1 is one map in every head; heads without any weight are left out. Source: arXiv 2406.13770 (there a distance).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from harness.measures.block import Block
from harness.measures.finding import Array, Finding, NotDefinedError, by_layer, mean

NAME = "redundancy"
VERSION = 1


def reduce(block: Block) -> dict[str, Tensor]:
    """Mean cosine over the pairs of heads of each sequence: `cosine` [B]; nan where fewer than two heads live.

    Raises:
        NotDefinedError: the layer has one head.
    """
    heads = block.weights.shape[1]
    if heads < 2:
        raise NotDefinedError("a layer with one head has no pair of heads")
    flat = block.weights.flatten(2)
    norm = flat.norm(dim=-1, keepdim=True)
    unit = flat / norm.masked_fill(norm == 0, 1.0)
    live = (norm[..., 0] > 0).sum(-1)
    cosines = unit @ unit.mT  # [B, H, H]
    off = cosines.sum((-1, -2)) - cosines.diagonal(dim1=-2, dim2=-1).sum(-1)
    return {"cosine": off / (live * (live - 1))}


def summarise(stats: Mapping[str, Array]) -> Finding:
    """Values from the statistics [n, L] of a probe."""
    return Finding(
        {
            "sequences": len(stats["cosine"]),
            "map_cosine_mean": mean(stats["cosine"]),
            "map_cosine_by_layer": by_layer(stats["cosine"]),
        }
    )
