"""Stick-breaking attention in square blocks of scores, its backward pass in closed form; no matrix of T x S exists.

Forward, from the nearest keys outwards, with exp(-t_ij) the stick that the keys nearer than j leave:

    A_ij = sigmoid(z_ij) / exp(t_ij)     t_ij = sum_{j<l} log(1 + exp(z_il))     o_i = sum_j A_ij v_j

Backward, from the farthest keys inwards, with g_i the gradient of o_i and c_i that of rem_i:

    f_ij = c_i rem_i + sum_{l<j} A_il (g_i.v_l)     dz_ij = sigmoid(-z_ij) A_ij (g_i.v_j) - sigmoid(z_ij) f_ij
    dv_j = sum_i A_ij g_i     dq_i = sum_j dz_ij k_j / sqrt(D)     dk_j = sum_i dz_ij q_i / sqrt(D)

What is kept in between is t at the near edge of each tile, one number a row and tile. All else is formed anew, in
such an order that no sum is the difference of two others: a score so high that its key takes all has a small gradient,
and it is right.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.ops import blocks

# A row of sums needs one entry more than there are keys; so many keep the rows aligned in memory.
GAP = 16


def sticks_in_blocks(q: Tensor, k: Tensor, v: Tensor, *, attend_current: bool = False) -> tuple[Tensor, Tensor]:
    """Stick-breaking attention with O(T) memory; float64 stays float64, all else is computed in float32.

    The walk of a block of queries ends where the stick of each has underflowed: all farther weights are 0. A weight
    takes its share of 2^-64 of the stick (2^-128 in float64) where less is left: far under the rounding of a whole one.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        attend_current: a query sees its own position too.

    Returns:
        Output [B, T, H, Dv] in the dtype of v, and the rest of the stick [B, T, H], float32 or wider.
    """
    rows = blocks.to_rows(q, k, v)
    found = _Blocks.apply(*rows, q.shape[2] // k.shape[2], attend_current)  # type: ignore[no-untyped-call]
    out, remainder = (blocks.from_rows(x, q.shape[0], q.shape[2]) for x in found)
    return out.to(v.dtype), remainder[..., 0]


class _Grid:
    """Blocks, chunks of heads and constants, the same for both passes."""

    def __init__(self, q: Tensor, k: Tensor, group: int, attend_current: bool) -> None:
        self.scale = q.shape[2] ** -0.5
        self.block = blocks.block_size(k.shape[1], longest=128)
        self.blocks = blocks.query_blocks(q.shape[1] // group, k.shape[1], group, self.block)
        self.rows = self.block * group
        self.chunks = list(blocks.head_chunks(len(q), self.rows * self.block))
        distance = blocks.distances(self.block, group, like=q)
        self._hidden = torch.where(distance < (0 if attend_current else 1), -math.inf, 0.0).to(q.dtype)
        kind = torch.finfo(q.dtype)
        self.used_up = -math.log(kind.smallest_normal) - math.log(kind.eps / 2)

    def hidden(self, at: blocks.QueryBlock, tile: int, keys: int) -> Tensor | None:
        """What is added to the scores of the queries' own tile, nearest key first, [rows, keys]; none elsewhere."""
        return self._hidden[at.inside, :keys].flip(1) if tile == at.tile else None

    def tiles(self, x: Tensor) -> list[Tensor]:
        """[heads, S, D] in tiles, the nearest key first in each: torch sums from the first entry on."""
        return [tile.flip(1) for tile in torch.split(x, self.block, 1)]


class _Room:
    """Tiles of a chunk of heads by their shape; they share their memory."""

    def __init__(self, heads: int, grid: _Grid, like: Tensor, *, backward: bool) -> None:
        self._heads = heads
        self._plain = blocks.Room(1 + backward, heads * grid.rows * grid.block, like=like)
        self._wide = blocks.Room(2, heads * grid.rows * (grid.block + GAP), like=like)
        self._tiles: dict[tuple[int, int], _Tile] = {}

    def __call__(self, rows: int, keys: int) -> _Tile:
        if (rows, keys) not in self._tiles:
            plain, wide = self._plain(self._heads, rows, keys), self._wide(self._heads, rows, keys + GAP)
            self._tiles[rows, keys] = _Tile(plain, [x[..., : keys + 1] for x in wide])
        return self._tiles[rows, keys]


class _Tile:
    """Numbers of each score, [heads, rows, keys]: share, log(1 + exp(z)), t, weight, and backward the gradient.

    Where sums are taken, what comes in from the tile before stands in front, and what goes on comes out at the end.
    All views are made once: for small tiles a view costs as much as the arithmetic.
    """

    def __init__(self, plain: list[Tensor], wide: list[Tensor]) -> None:
        (self.shares, *gradients), (self.terms, self.sums) = plain, wide
        self.edge, self.lost = self.terms[..., :1], self.terms[..., 1:]
        self.taken, self.beyond = self.sums[..., :-1], self.sums[..., -1:]
        self.longest = math.log(2) * (128 if self.shares.dtype == torch.float64 else 64)
        self.weights = self.taken if gradients else self.shares
        if gradients:
            keys = self.shares.shape[2]
            self.dscores = gradients[0]
            # Row: a key that is summed. Column: a key that it is farther than; the last one is the sum of all.
            self.farther = self.shares.new_ones(keys, keys + 1).tril(-1)
            self.farther[:, -1] = 1.0
            self.dscore_rows, self.sum_rows = self.dscores.flatten(0, 1), self.sums.flatten(0, 1)

    def break_off(self, queries: Tensor, keys: Tensor, scale: float, hidden: Tensor | None, edge: Tensor) -> Tensor:
        """Form shares, log(1 + exp(z)) and weights; in the forward pass the weights take the place of the shares.

        Args:
            queries: [heads, rows, D].
            keys: [heads, D, keys].
            scale: of the scores.
            hidden: added to the scores, [rows, keys].
            edge: t at the near edge, [heads, rows, 1].

        Returns:
            t at the far edge, [heads, rows, 1].
        """
        self.shares.baddbmm_(queries, keys, beta=0, alpha=scale)
        if hidden is not None:
            self.shares += hidden
        self.edge.copy_(edge)
        # A share of a score beyond the reach is 0 or 1 to any precision kept, and exp is slow where it underflows.
        reach = 1.3 * self.longest
        torch.clamp(self.shares, -reach, reach, out=self.lost).exp_().log1p_()
        torch.cumsum(self.terms, -1, out=self.sums)
        far = self.beyond.clone()
        # Subnormal numbers take a hundred times as long in a matrix product.
        torch.div(self.shares.sigmoid_(), self.taken.clamp_max_(self.longest).exp_(), out=self.weights)
        return far

    def pull(self, values: Tensor, dout: Tensor, edge: Tensor) -> Tensor:
        """Form the gradients of the scores; all else but the shares is overwritten.

        Args:
            values: [heads, Dv, keys].
            dout: gradient of the output, [heads, rows, Dv].
            edge: f at the far edge, [heads, rows, 1].

        Returns:
            f at the near edge, [heads, rows, 1].
        """
        torch.bmm(dout, values, out=self.dscores).mul_(self.weights)
        # A cumulative sum from the last key on: torch has none, and a matrix product is as fast as two flips.
        torch.addmm(edge.view(-1, 1), self.dscore_rows, self.farther, out=self.sum_rows)
        near = self.beyond.clone()
        # exp(-lost) = sigmoid(-z), exact where 1 - sigmoid(z) has lost its digits.
        self.dscores.mul_(self.lost.neg_().exp_()).addcmul_(self.shares, self.taken, value=-1)
        return near


class _Blocks(torch.autograd.Function):
    """Rows and keys as `blocks.to_rows` makes them; results [B G, T H/G, Dv] and [B G, T H/G, 1]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: int, attend_current: bool) -> tuple[Tensor, Tensor]:
        grid = _Grid(q, k, group, attend_current)
        out, remainder = q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(*q.shape[:2], 1)
        ctx.edges = []
        for some in grid.chunks:
            count = some.stop - some.start
            room = _Room(count, grid, q, backward=False)
            keys, values = grid.tiles(k[some]), grid.tiles(v[some])
            for at in grid.blocks:
                queries = q[some, at.rows]
                # Sums are kept contiguous: torch would otherwise multiply one head at a time.
                mixed = q.new_zeros(count, queries.shape[1], v.shape[2])
                edges = [q.new_zeros(count, queries.shape[1], 1)]
                for index in range(at.tile, -1, -1):
                    width = keys[index].shape[1]
                    tile, hidden = room(queries.shape[1], width), grid.hidden(at, index, width)
                    edges.append(tile.break_off(queries, keys[index].mT, grid.scale, hidden, edges[-1]))
                    mixed.baddbmm_(tile.weights, values[index])
                    if index and edges[-1].min() > grid.used_up:
                        break
                out[some, at.rows], remainder[some, at.rows] = mixed, edges.pop().neg_().exp_()
                ctx.edges.append(edges)
        ctx.save_for_backward(q, k, v, remainder)
        ctx.rest = group, attend_current
        return out, remainder

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dremainder: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, remainder = ctx.saved_tensors
        grid = _Grid(q, k, *ctx.rest)
        dout, edges_of, left = dout.contiguous(), iter(ctx.edges), dremainder * remainder
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for some in grid.chunks:
            count = some.stop - some.start
            room = _Room(count, grid, q, backward=True)
            keys, values = grid.tiles(k[some]), grid.tiles(v[some])
            dkeys, dvalues = ([torch.zeros_like(x) for x in parts] for parts in (keys, values))
            for at in grid.blocks:
                queries, drows, edge = q[some, at.rows], dout[some, at.rows], left[some, at.rows].contiguous()
                dqueries, edges = q.new_zeros(queries.shape), next(edges_of)
                for index in range(at.tile + 1 - len(edges), at.tile + 1):
                    width = keys[index].shape[1]
                    tile, hidden = room(queries.shape[1], width), grid.hidden(at, index, width)
                    tile.break_off(queries, keys[index].mT, grid.scale, hidden, edges[at.tile - index])
                    dvalues[index].baddbmm_(tile.weights.mT, drows)
                    edge = tile.pull(values[index].mT, drows, edge)
                    dqueries.baddbmm_(tile.dscores, keys[index], alpha=grid.scale)
                    dkeys[index].baddbmm_(tile.dscores.mT, queries, alpha=grid.scale)
                dq[some, at.rows] = dqueries
            for whole, parts in ((dk, dkeys), (dv, dvalues)):
                torch.cat([x.flip(1) for x in parts], 1, out=whole[some])
        return dq, dk, dv, None, None
