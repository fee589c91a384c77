"""Causal attention in square blocks of scores: the layout and the order that fast cores share.

A row is one query of one head. The heads that share a key head lie together, position by position, so that grouped
heads need no copy of their keys. Blocks lie on one grid of absolute positions: the block of queries i meets the key
tiles 0 to i, and the causal mask touches the last of these alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from harness.ops.masks import at_least_float32

# Scores of a buffer that each thread works on: a few buffers of 512 KiB stay in the cache of a core.
SCORES = 1 << 17


class QueryBlock(NamedTuple):
    """Queries whose own positions share a key tile.

    Args:
        rows: their rows among all.
        tile: the tile of their own positions, the last they see.
        inside: their rows among those of a whole block: the first and the last block may be a part of one.
    """

    rows: slice
    tile: int
    inside: slice


def block_size(keys: int, *, longest: int) -> int:
    """Positions a block.

    Small blocks compute fewer scores above the diagonal, large ones come nearer to the peak of the matrix product.

    Args:
        keys: S.
        longest: for 2,048 keys and more; beyond 64 such blocks it is a 64th of the keys, so that a number kept
            for each row and tile is O(S) in all.
    """
    if keys <= 512:
        return min(keys, 64)
    return 128 if keys < 2048 else max(longest, 32 * math.ceil(keys / 2048))


def query_blocks(queries: int, keys: int, group: int, block: int) -> list[QueryBlock]:
    """The blocks of queries, first to last.

    Args:
        queries: T; the queries are the last T of the S positions.
        keys: S.
        group: rows a position, H / G.
        block: positions a block.
    """
    first = keys - queries
    found = []
    for tile in range(first // block, math.ceil(keys / block)):
        start, stop = max(first, tile * block), min(keys, (tile + 1) * block)
        found.append(
            QueryBlock(
                rows=slice((start - first) * group, (stop - first) * group),
                tile=tile,
                inside=slice((start - tile * block) * group, (stop - tile * block) * group),
            )
        )
    return found


def head_chunks(heads: int, scores: int) -> Iterator[slice]:
    """Key heads to work on at the same time: equal chunks, of one head at least for each thread.

    Args:
        heads: key heads of all batch rows, B G.
        scores: scores of one key head in a block, all of its rows.
    """
    # torch gives each thread its own heads where there are enough: their blocks then stay in its cache.
    most = max(1, SCORES // scores) * torch.get_num_threads()
    size = math.ceil(heads / math.ceil(heads / most))
    yield from (slice(start, min(start + size, heads)) for start in range(0, heads, size))


def to_rows(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries as rows beside the keys they see, contiguous, in float32 or wider.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv].

    Returns:
        [B G, T H/G, D], [B G, S, D], [B G, S, Dv].
    """
    grouped = at_least_float32(q).reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    rows = grouped.transpose(1, 2)  # [B, G, T, H/G, D]
    k, v = at_least_float32(k).transpose(1, 2), at_least_float32(v).transpose(1, 2)
    return rows.flatten(2, 3).flatten(0, 1).contiguous(), k.flatten(0, 1).contiguous(), v.flatten(0, 1).contiguous()


def from_rows(rows: Tensor, batch: int, heads: int) -> Tensor:
    """Rows [B G, T H/G, Dv] back to [B, T, H, Dv]."""
    groups = rows.shape[0] // batch
    return rows.view(batch, groups, -1, heads // groups, rows.shape[2]).transpose(1, 2).flatten(2, 3)


def distances(block: int, group: int, *, like: Tensor) -> Tensor:
    """i - j within a block's own tile, negative for keys to come: [block H/G, block], dtype and device of `like`."""
    position = torch.arange(block, dtype=like.dtype, device=like.device)
    return (position[:, None] - position).repeat_interleave(group, dim=0)


class Room:
    """Buffers of one size, handed out in the shape of the tile at hand."""

    def __init__(self, count: int, entries: int, *, like: Tensor) -> None:
        self._buffers = [like.new_empty(entries) for _ in range(count)]
        self._views: dict[tuple[int, int, int], list[Tensor]] = {}

    def __call__(self, heads: int, rows: int, keys: int) -> list[Tensor]:
        """The buffers as contiguous [heads, rows, keys], their entries whatever they were."""
        shape = (heads, rows, keys)
        if shape not in self._views:
            self._views[shape] = [buffer[: heads * rows * keys].view(shape) for buffer in self._buffers]
        return self._views[shape]
