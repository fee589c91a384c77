"""Stick-breaking attention in square blocks of scores, its backward pass in closed form; no matrix of T x S exists.

Forward, from the nearest keys outwards, with r_ij the stick that the keys nearer than j leave:

    A_ij = sigmoid(z_ij) r_ij     log r_ij = - sum_{j<l} log(1 + exp(z_il))     o_i = sum_j A_ij v_j     rem_i = r_i,-1

Backward, from the farthest keys inwards, with g_i the gradient of o_i and c_i that of rem_i:

    f_ij = c_i rem_i + sum_{l<j} A_il (g_i.v_l)     dz_ij = sigmoid(-z_ij) A_ij (g_i.v_j) - sigmoid(z_ij) f_ij
    dv_j = sum_i A_ij g_i     dq_i = sum_j dz_ij k_j / sqrt(D)     dk_j = sum_i dz_ij q_i / sqrt(D)

What is kept in between is log r at the near edge of each tile, one number a row and tile. All else is formed anew, in
such an order that no sum is the difference of two others: a score so high that its key takes all has a small gradient,
and it is right.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.ops import blocks


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
        self.scores = self.block * group * self.block
        self.chunks = list(blocks.head_chunks(len(q), self.scores))
        distance = blocks.distances(self.block, group, like=q)
        self.hidden = torch.where(distance < (0 if attend_current else 1), -math.inf, 0.0).to(q.dtype)
        kind = torch.finfo(q.dtype)
        self.underflow = math.log(kind.smallest_normal) + math.log(kind.eps / 2)


class _Tiles:
    """Tiles of a chunk of heads by their shape; they share their buffers."""

    def __init__(self, heads: int, scores: int, like: Tensor, *, backward: bool) -> None:
        self._room, self._heads = blocks.Room(3 + backward, heads * scores, like=like), heads
        self._tiles: dict[tuple[int, int], _Tile] = {}

    def __call__(self, rows: int, keys: int) -> _Tile:
        if (rows, keys) not in self._tiles:
            self._tiles[rows, keys] = _Tile(*self._room(self._heads, rows, keys))
        return self._tiles[rows, keys]


class _Tile:
    """Numbers of each score, [heads, rows, keys]: share, what it takes from log r, weight, and backward the gradient.

    Sums along the keys are matrix products, of runs of keys and then of the runs' sums: torch's own cumulative sum
    takes one number at a time. All views are made once: for small tiles a view costs as much as the arithmetic.
    """

    def __init__(self, shares: Tensor, lost: Tensor, weights: Tensor, dscores: Tensor | None = None) -> None:
        heads, rows, keys = shares.shape
        run = 32 if keys % 32 == 0 else keys
        self.shares, self.lost, self.weights = shares, lost, weights
        self.least = -math.log(2) * (128 if shares.dtype == torch.float64 else 64)
        # Rows of these are the keys summed, columns the keys whose sum it is; log r falls by what is taken from it.
        self.nearer = -shares.new_ones(run, run).tril(-1)
        self.farther = -self.nearer.T.contiguous()
        self.nearer_runs = shares.new_ones(keys // run, keys // run).tril(-1)
        self.farther_runs = self.nearer_runs.T.contiguous()
        lost_runs, self.runs = lost.view(heads * rows, -1, run), weights.view(heads * rows, -1, run)
        self.lost_rows, self.weight_rows = lost.view(-1, run), weights.view(-1, run)
        self.lost_first, self.run_first, self.run_last = lost_runs[..., 0], self.runs[..., 0], self.runs[..., -1]
        self.far_edge, self.near_edge = (weights[..., :1], lost[..., :1]), weights[..., -1:]
        if dscores is not None:
            self.dscores, self.dscore_rows = dscores, dscores.view(-1, run)
            self.dscore_last, self.dscore_edge = dscores.view(heads * rows, -1, run)[..., -1], dscores[..., -1:]

    def break_off(self, queries: Tensor, keys: Tensor, scale: float, hidden: Tensor | None, edge: Tensor) -> Tensor:
        """Form shares and weights.

        Args:
            queries: [heads, rows, D].
            keys: [heads, D, keys].
            scale: of the scores.
            hidden: added to the scores, [rows, keys].
            edge: log r that comes in from nearer keys, [heads, rows, 1].

        Returns:
            log r that goes on to farther keys, [heads, rows, 1].
        """
        self.shares.baddbmm_(queries, keys, beta=0, alpha=scale)
        if hidden is not None:
            self.shares += hidden
        # A share of a score beyond the reach is 0 or 1 to any precision kept, and exp is slow where it underflows.
        reach = -1.3 * self.least
        torch.clamp(self.shares, -reach, reach, out=self.lost).exp_().log1p_()
        torch.mm(self.lost_rows, self.nearer, out=self.weight_rows)
        whole = self.run_first - self.lost_first
        self.runs += torch.addmm(edge.view(-1, 1), whole, self.nearer_runs).unsqueeze(2)
        beyond = self.far_edge[0] - self.far_edge[1]
        # Subnormal numbers take a hundred times as long in a matrix product.
        self.weights.clamp_min_(self.least).exp_().mul_(self.shares.sigmoid_())
        return beyond

    def pull(self, values: Tensor, dout: Tensor, edge: Tensor) -> Tensor:
        """Form the gradients of the scores; weights and what is taken from log r are overwritten.

        Args:
            values: [heads, Dv, keys].
            dout: gradient of the output, [heads, rows, Dv].
            edge: f that comes in from farther keys, [heads, rows, 1].

        Returns:
            f that goes on to nearer keys, [heads, rows, 1].
        """
        torch.bmm(dout, values, out=self.dscores).mul_(self.weights)
        torch.mm(self.dscore_rows, self.farther, out=self.weight_rows)
        whole = self.run_last + self.dscore_last
        self.runs += torch.addmm(edge.view(-1, 1), whole, self.farther_runs).unsqueeze(2)
        beyond = self.near_edge + self.dscore_edge
        # exp(-lost) = sigmoid(-z), exact where 1 - sigmoid(z) has lost its digits.
        self.dscores.mul_(self.lost.neg_().exp_()).addcmul_(self.shares, self.weights, value=-1)
        return beyond


class _Blocks(torch.autograd.Function):
    """Rows and keys as `blocks.to_rows` makes them; results [B G, T H/G, Dv] and [B G, T H/G, 1]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: int, attend_current: bool) -> tuple[Tensor, Tensor]:
        grid = _Grid(q, k, group, attend_current)
        out, remainder = q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(*q.shape[:2], 1)
        ctx.edges = []
        for some in grid.chunks:
            count = some.stop - some.start
            tiles = _Tiles(count, grid.scores, q, backward=False)
            keys, values = torch.split(k[some].mT, grid.block, 2), torch.split(v[some], grid.block, 1)
            for at in grid.blocks:
                queries = q[some, at.rows]
                # Sums are kept contiguous: torch would otherwise multiply one head at a time.
                mixed = q.new_zeros(count, queries.shape[1], v.shape[2])
                edges = [q.new_zeros(count, queries.shape[1], 1)]
                for index in range(at.tile, -1, -1):
                    tile = tiles(queries.shape[1], keys[index].shape[2])
                    hidden = grid.hidden[at.inside, : keys[index].shape[2]] if index == at.tile else None
                    edges.append(tile.break_off(queries, keys[index], grid.scale, hidden, edges[-1]))
                    mixed.baddbmm_(tile.weights, values[index])
                    if index and edges[-1].max() < grid.underflow:
                        break
                out[some, at.rows], remainder[some, at.rows] = mixed, edges.pop().exp()
                ctx.edges.append(edges)
        ctx.save_for_backward(q, k, v, remainder)
        ctx.rest = group, attend_current
        return out, remainder

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dremainder: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, remainder = ctx.saved_tensors
        grid = _Grid(q, k, *ctx.rest)
        dout, edges_of, left = dout.contiguous(), iter(ctx.edges), dremainder.contiguous() * remainder
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for some in grid.chunks:
            count = some.stop - some.start
            tiles = _Tiles(count, grid.scores, q, backward=True)
            keys, values = (torch.split(x[some], grid.block, 1) for x in (k, v))
            dkeys, dvalues = ([x.new_zeros(x.shape) for x in parts] for parts in (keys, values))
            for at in grid.blocks:
                queries, drows, farther = q[some, at.rows], dout[some, at.rows], left[some, at.rows].contiguous()
                dqueries, edges = q.new_zeros(queries.shape), next(edges_of)
                for index in range(at.tile + 1 - len(edges), at.tile + 1):
                    tile = tiles(queries.shape[1], keys[index].shape[1])
                    hidden = grid.hidden[at.inside, : keys[index].shape[1]] if index == at.tile else None
                    tile.break_off(queries, keys[index].mT, grid.scale, hidden, edges[at.tile - index])
                    dvalues[index].baddbmm_(tile.weights.mT, drows)
                    farther = tile.pull(values[index].mT, drows, farther)
                    dqueries.baddbmm_(tile.dscores, keys[index], alpha=grid.scale)
                    dkeys[index].baddbmm_(tile.dscores.mT, queries, alpha=grid.scale)
                dq[some, at.rows] = dqueries
            torch.cat(dkeys, 1, out=dk[some])
            torch.cat(dvalues, 1, out=dv[some])
        return dq, dk, dv, None, None
