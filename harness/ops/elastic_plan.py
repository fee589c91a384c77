"""How Lazy Attention is cut into parts and blocks, and what it adds to the scores of a block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.ops.masks import visible, visible_count

# Scores in memory at once: measured on a CPU with 2 MiB of cache a core. A GPU wants few, large blocks.
SCORES = {"cpu": 1 << 20, "cuda": 1 << 26}
MANY = 8192
TILE = 256
"""Fewest keys of a tile of sums."""
LOOK, SHORT = 64, 256
"""Keys that are looked at together, and the fewest that are skipped."""
KEPT = {"cpu": 1 << 24, "cuda": 0}
"""Softmax weights that a call keeps for its backward pass at most: 64 MiB in float32, whatever the length."""

CONTIGUOUS = torch.contiguous_format
Runs = list[tuple[slice, bool]]


def block_rows(queries: int, keys: int, device: str) -> int:
    """Queries a block: few where the mask cuts off much of each block, many where gradients of all keys pass by."""
    most = 1024 if device == "cuda" else 128 if 1024 < keys <= MANY else 64
    return min(most, queries)


class Part(NamedTuple):
    """Rows of the batch and query heads that are computed at a time.

    Args:
        rows: of the batch.
        heads: query heads; all of them where there is more than one row.
        stacks: the same as C indices into [B x H].
        group: query heads that share a key head.
    """

    rows: slice
    heads: slice
    stacks: slice
    group: int

    def queries(self, x: Tensor) -> Tensor:
        """The part of a tensor [B, T, H, D], contiguous [C, T, D]."""
        # Contiguous: a matrix product reads rows that lie H x D numbers apart a tenth more slowly.
        return x[self.rows, :, self.heads].transpose(1, 2).reshape(-1, x.shape[1], x.shape[3]).contiguous()

    def keys(self, x: Tensor) -> Tensor:
        """What the heads of the part see of [B, S, G, D], contiguous [C, S, D]."""
        if self.group == 1:
            return self.queries(x)
        return x[self.rows][:, :, self._serving(x)].transpose(1, 2).reshape(-1, x.shape[1], x.shape[3]).contiguous()

    def add_keys(self, x: Tensor, found: KeySums) -> None:
        """Add gradients [C, S, D] to those of the keys [B, G, S, D]; without groups no other part has any for them."""
        if self.group == 1:
            torch.cat(found.whole(), 1, out=x.flatten(0, 1)[self.stacks])
        else:
            by_head = torch.cat(found.whole(), 1)
            by_head = by_head.view(-1, self.heads.stop - self.heads.start, *by_head.shape[1:])
            x[self.rows].index_add_(1, self._serving(x), by_head)

    def _serving(self, x: Tensor) -> Tensor:
        return torch.arange(self.heads.start, self.heads.stop, device=x.device) // self.group


class Block(NamedTuple):
    """Queries and the keys that the last of them sees."""

    rows: slice
    keys: int


class Plan:
    """How the work is cut, and what all parts share.

    Args:
        q: [B, T, H, D].
        k: [B, S, G, D].
    """

    def __init__(self, q: Tensor, k: Tensor) -> None:
        batch, queries, heads, width = q.shape
        self.keys, self.stacks, self.scale = k.shape[1], batch * heads, float(width**-0.5)
        self.rows = block_rows(queries, self.keys, q.device.type)
        # torch gives each thread its own heads where there are enough; beyond MANY keys memory comes first.
        fewest = torch.get_num_threads() if q.device.type == "cpu" and self.keys <= MANY else 1
        at_once = max(fewest, SCORES[q.device.type] // (self.rows * self.keys))
        self.parts = list(_parts(batch, heads, at_once, heads // k.shape[2]))
        self.most = max(part.stacks.stop - part.stacks.start for part in self.parts)
        # The short block comes first: it sees the fewest keys.
        stops = range(queries % self.rows or self.rows, queries + 1, self.rows)
        self.blocks = [Block(slice(max(stop - self.rows, 0), stop), self.keys - queries + stop) for stop in stops]
        self.hidden = ~visible(self.rows, self.rows, device=q.device)
        self.count = visible_count(queries, self.keys, device=q.device).to(q.dtype)[:, None]  # [T, 1]

    def gradient_of(self, x: Tensor) -> Tensor:
        """Room for the gradient of x [B, T, H, D]: [B, H, T, D], that parts write or, where heads share, add to."""
        shape = x.transpose(1, 2).shape
        return x.new_empty(shape) if shape[0] * shape[1] == self.stacks else x.new_zeros(shape)

    def buffers(self, like: Tensor, number: int) -> list[Tensor]:
        """Room for the scores of the largest block, a line of numbers each."""
        return [like.new_empty(self.most * self.rows * self.keys) for _ in range(number)]

    def tile(self, bias: Tensor | None, like: Tensor) -> Tensor:
        """What is added to the scores of a block's last keys: bias by distance, -inf for what is hidden.

        Args:
            bias: of the part's heads [heads, W].
            like: gives dtype and device.

        Returns:
            [heads or 1, rows, width]; entry (i, j) has the distance width - rows + i - j.
        """
        reach = 0 if bias is None else min(bias.shape[1], self.keys)
        line = like.new_zeros(1 if bias is None else len(bias), self.keys + self.rows - 1)
        if bias is not None:
            line[:, self.keys - reach : self.keys] = bias[:, :reach].flip(1)
        line[:, self.keys :] = float("-inf")
        width = min(self.keys, reach + self.rows)
        # A flipped view keeps its strides, and reading against the grain takes ten times as long.
        return line[:, self.keys - width :].unfold(1, width, 1).flip(1).contiguous()


class Sum:
    """A sum of matrix products, kept contiguous: torch would otherwise multiply one head at a time.

    Args:
        room: [C, N, D], contiguous; what is in it does not matter.
    """

    def __init__(self, room: Tensor) -> None:
        self._sum, self._fresh = room, True

    def add(self, a: Tensor, b: Tensor, *, alpha: float = 1.0) -> None:
        """Add alpha a b: a [C, N, K], b [C, K, D]."""
        self._sum.baddbmm_(a, b, beta=0 if self._fresh else 1, alpha=alpha)
        self._fresh = False

    def add_some(self, keys: slice, a: Tensor, b: Tensor, *, alpha: float = 1.0) -> None:
        """Add alpha a b to some of the N: a [C, keys, K], b [C, K, D]."""
        if keys == slice(0, self._sum.shape[1]):
            self.add(a, b, alpha=alpha)
        else:
            self.whole()[:, keys].add_(torch.bmm(a, b), alpha=alpha)

    def whole(self) -> Tensor:
        """The sum, 0 where nothing was added."""
        if self._fresh:
            self._sum.zero_()
            self._fresh = False
        return self._sum


class KeySums:
    """Sums for each key, in tiles of keys, each of them contiguous: a block meets few of them in part.

    Args:
        like: [C, S, D].
    """

    def __init__(self, like: Tensor) -> None:
        self._size = max(TILE, like.shape[1] // 4)
        self._tiles = [Sum(torch.empty_like(x, memory_format=CONTIGUOUS)) for x in torch.split(like, self._size, 1)]

    def add(self, keys: slice, weights: Tensor, x: Tensor, *, alpha: float = 1.0) -> None:
        """Add alpha sum_i weights_ij x_i to some keys: weights [C, rows, keys], x [C, rows, D]."""
        size = self._size
        for index in range(keys.start // size, math.ceil(keys.stop / size)):
            first, last = max(keys.start, index * size), min(keys.stop, (index + 1) * size)
            own = slice(first - index * size, last - index * size)
            self._tiles[index].add_some(own, weights[..., first - keys.start : last - keys.start].mT, x, alpha=alpha)

    def whole(self) -> list[Tensor]:
        """The sums [C, S, D], in pieces of keys."""
        return [tile.whole() for tile in self._tiles]


def runs_of(weights: Tensor) -> Runs:
    """The keys of weights [C, rows, keys] in runs, with whether any weight of theirs is not 0, as NaN is not."""
    keys = weights.shape[2]
    flags = F.pad(weights.sum((0, 1)), (0, -keys % LOOK)).view(-1, LOOK).ne(0).any(1).tolist()
    runs: Runs = []
    for alive, group in itertools.groupby(range(len(flags)), flags.__getitem__):
        tiles = list(group)
        run = slice(tiles[0] * LOOK, min((tiles[-1] + 1) * LOOK, keys))
        # A short gap between two runs costs more calls than it saves arithmetic.
        alive = alive or (run.stop - run.start < SHORT)
        if runs and runs[-1][1] == alive:
            run = slice(runs.pop()[0].start, run.stop)
        runs.append((run, alive))
    return runs


def add_diagonals(dbias: Tensor, dtile: Tensor) -> None:
    """Add the sums over equal distances of what `Plan.tile` made its tile from.

    Args:
        dbias: [heads, W].
        dtile: [heads, rows, width].
    """
    heads, rows, width = dtile.shape
    # Zeros to the left of each row: what slides past a row's end lands there, so that the slid rows add up.
    skew = dtile.new_zeros(heads, rows + 1, rows + width)
    skew[:, :rows, rows:] = dtile
    slid = skew.flatten(1)[:, : rows * (rows + width + 1)].view(heads, rows, -1).sum(1)
    reach = min(width, dbias.shape[1])
    dbias[:, :reach] += slid[:, 1 : width + 1].flip(1)[:, :reach]


def _parts(batch: int, heads: int, at_once: int, group: int) -> Iterator[Part]:
    rows, size = max(1, at_once // heads), min(heads, at_once)
    for row in range(0, batch, rows):
        last = min(row + rows, batch)
        for head in range(0, heads, size):
            end = min(head + size, heads)
            yield Part(slice(row, last), slice(head, end), slice(row * heads + head, (last - 1) * heads + end), group)
