"""Sigmoid attention in square blocks of scores, its backward pass in closed form; no matrix of T x S exists.

    a_ij = sigmoid(q_i.k_j / sqrt(D) + b - slope_h (i - j))      o_i = sum_{j<=i} a_ij v_j
    ds_ij = a_ij (1 - a_ij) (g_i.v_j)      dv_j = sum_i a_ij g_i      db = sum_ij ds_ij      g_i the gradient of o_i
    dq_i = sum_j ds_ij k_j / sqrt(D)       dk_j = sum_i ds_ij q_i / sqrt(D)

Nothing is normalised, so that each block stands alone: forward no more than the output is kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.ops import blocks
from harness.ops.positions import alibi_slopes


def sigmoid_in_blocks(q: Tensor, k: Tensor, v: Tensor, *, bias: float | Tensor, alibi: bool = False) -> Tensor:
    """Sigmoid attention with O(T) memory; float64 stays float64, all else is computed in float32.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        bias: the scalar b, a number or a tensor without axes.
        alibi: subtract slope_h (i - j) from the scores.

    Returns:
        [B, T, H, Dv], in the dtype of v.
    """
    queries, keys, values = blocks.to_rows(q, k, v)
    scalar = torch.as_tensor(bias, dtype=queries.dtype, device=q.device)
    heads, groups = q.shape[2], k.shape[2]
    rows = _Blocks.apply(queries, keys, values, scalar, heads, groups, alibi)  # type: ignore[no-untyped-call]
    return blocks.from_rows(rows, q.shape[0], heads).to(v.dtype)


class _Weights:
    """The weights of a tile, formed in the same way by both passes."""

    def __init__(self, q: Tensor, k: Tensor, bias: Tensor, heads: int, groups: int, alibi: bool) -> None:
        group = heads // groups
        self.scale, self.bias = q.shape[2] ** -0.5, bias
        self.block = blocks.block_size(k.shape[1], longest=256)
        self.blocks = blocks.query_blocks(q.shape[1] // group, k.shape[1], group, self.block)
        self.scores = self.block * group * self.block
        self.chunks = list(blocks.head_chunks(len(q), self.scores))
        self.distance = blocks.distances(self.block, group, like=q)
        # -inf for the keys to come goes in before the sigmoid, as the start of the matrix product.
        self.own = torch.where(self.distance < 0, -math.inf, bias)
        self.slopes: Tensor | None = None
        if alibi:
            slopes = alibi_slopes(heads).to(q).view(groups, group).repeat(1, self.block)
            self.slopes = slopes.repeat(len(q) // groups, 1)[:, :, None]  # [B G, block H/G, 1]

    def fill(
        self, out: Tensor, queries: Tensor, keys: Tensor, heads: slice, at: blocks.QueryBlock, tile: int
    ) -> Tensor:
        """sigmoid(q k / sqrt(D) + b - slope (i - j)) into `out`, [heads, rows, keys]."""
        width = keys.shape[1]
        if self.slopes is not None:
            distance = self.distance[at.inside, :width] + (at.tile - tile) * self.block
            distance.masked_fill_(distance < 0, math.inf)
            torch.addcmul(self.bias, self.slopes[heads, at.inside], distance, value=-1, out=out)
        elif tile == at.tile:
            out.copy_(self.own[at.inside, :width])
        else:
            out.fill_(self.bias)
        return out.baddbmm_(queries, keys.mT, alpha=self.scale).sigmoid_()


class _Blocks(torch.autograd.Function):
    """Rows and keys as `blocks.to_rows` makes them."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, heads: int, groups: int, alibi: bool
    ) -> Tensor:
        weights = _Weights(q, k, bias, heads, groups, alibi)
        out = q.new_empty(*q.shape[:2], v.shape[2])
        for some in weights.chunks:
            count = some.stop - some.start
            room = blocks.Room(1, count * weights.scores, like=q)
            keys, values = (torch.split(x[some], weights.block, 1) for x in (k, v))
            for at in weights.blocks:
                queries = q[some, at.rows]
                # Sums are kept contiguous: torch would otherwise multiply one head at a time.
                mixed = q.new_empty(count, queries.shape[1], v.shape[2])
                for tile in range(at.tile + 1):
                    (a,) = room(count, queries.shape[1], keys[tile].shape[1])
                    weights.fill(a, queries, keys[tile], some, at, tile)
                    mixed.baddbmm_(a, values[tile], beta=min(tile, 1))
                out[some, at.rows] = mixed
        ctx.save_for_backward(q, k, v, bias)
        ctx.rest = heads, groups, alibi
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        weights = _Weights(q, k, bias, *ctx.rest)
        dout, dbias = dout.contiguous(), torch.zeros_like(bias)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for some in weights.chunks:
            count = some.stop - some.start
            room = blocks.Room(2, count * weights.scores, like=q)
            keys, values = (torch.split(x[some], weights.block, 1) for x in (k, v))
            dkeys, dvalues = ([x.new_zeros(x.shape) for x in parts] for parts in (keys, values))
            for at in weights.blocks:
                queries, drows = q[some, at.rows], dout[some, at.rows]
                dqueries = torch.empty_like(queries, memory_format=torch.contiguous_format)
                for tile in range(at.tile + 1):
                    a, ds = room(count, queries.shape[1], keys[tile].shape[1])
                    weights.fill(a, queries, keys[tile], some, at, tile)
                    dvalues[tile].baddbmm_(a.mT, drows)
                    torch.bmm(drows, values[tile].mT, out=ds)
                    torch.ops.aten.sigmoid_backward(ds, a, grad_input=ds)
                    dqueries.baddbmm_(ds, keys[tile], beta=min(tile, 1), alpha=weights.scale)
                    dkeys[tile].baddbmm_(ds.mT, queries, alpha=weights.scale)
                    if ctx.needs_input_grad[3]:
                        dbias += ds.sum()
                dq[some, at.rows] = dqueries
            torch.cat(dkeys, 1, out=dk[some])
            torch.cat(dvalues, 1, out=dv[some])
        return dq, dk, dv, dbias, None, None, None
