"""Lazy Attention in blocks of queries, with its backward pass in closed form; no matrix of T x S exists.

Forward, for each query i over the keys j <= i, n_i of them, tau_i = tau_h / n_i (or tau_h):

    s_ij = q_i.k_j / sqrt(D) + b[h, i-j]     p_i = softmax_j(s_i)     a_ij = relu(p_ij + tau_i)     o_i = sum_j a_ij v_j

Backward, with g_i the gradient of o_i and [a_ij > 0] the keys that were kept:

    da_ij = [a_ij > 0] g_i.v_j               dv_j   = sum_i a_ij g_i
    ds_ij = p_ij (da_ij - sum_l p_il da_il)  dtau_h = sum_ij da_ij / n_i
    dq_i  = sum_j ds_ij k_j / sqrt(D)        dk_j   = sum_i ds_ij q_i / sqrt(D)      db[h, d] = sum_i ds_i,i-d

Renormalised, o_i is divided by A_i = sum_j a_ij: the same with g_i / A_i in place of g_i, and
da_ij = [a_ij > 0] (g_i.v_j - g_i.o_i) / A_i; a row with A_i = 0 has no gradient.

A block holds every score of its queries, so that the softmax is torch's own, and the backward pass forms the same p to
the bit: no key is kept in one pass and cut in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.ops.masks import at_least_float32, visible, visible_count

# Queries a block, and scores in memory at once: measured on a CPU with 2 MiB of cache a core; a GPU wants few, large
# blocks.
ROWS = 128
SCORES = {"cpu": 1 << 19, "cuda": 1 << 26}


def elastic_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = None,
    tau: Tensor | None = None,
    divide_by_n: bool = True,
    renormalise: bool = False,
) -> Tensor:
    """Lazy Attention with O(T) memory; float64 stays float64, all else is computed in float32.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; positions applied; queries are the last T of S positions.
        bias: added to the score at distance i - j, [H, W]; distances past the table get 0. None is no bias.
        tau: threshold [H], added to the weights after the softmax. None is no threshold.
        divide_by_n: tau is divided by the number of keys the query sees.
        renormalise: rows are divided by their sum; a row without mass stays 0.

    Returns:
        [B, T, H, Dv], in the dtype of v.
    """
    wide = [at_least_float32(x) for x in (q, k, v)]
    tables = [None if x is None else x.to(wide[0].dtype) for x in (bias, tau)]
    out: Tensor = _Elastic.apply(*wide, *tables, divide_by_n, renormalise)  # type: ignore[no-untyped-call]
    return out.to(v.dtype)


class _Elastic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, tau: Tensor | None,
                divide_by_n: bool, renormalise: bool) -> Tensor:
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        mass = q.new_empty(*q.shape[:3], 1) if renormalise else None
        ctx.plan = plan = _Plan(q, k, tau, divide_by_n)
        for part in plan.parts:
            core = _Core(plan, part, q, k, bias, tau)
            o, total = core.forward(part.keys(v), renormalise)
            part.queries_of(out).copy_(o.view_as(part.queries_of(out)))
            if mass is not None:
                part.queries_of(mass).copy_(total.view_as(part.queries_of(mass)))
        ctx.save_for_backward(q, k, v, bias, tau, out if renormalise else None, mass)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, tau, out, mass = ctx.saved_tensors
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        dbias, dtau = (None if x is None else torch.zeros_like(x) for x in (bias, tau))
        for part in ctx.plan.parts:
            core = _Core(ctx.plan, part, q, k, bias, tau)
            rows, shift = part.queries(g), None
            if mass is not None:
                rows = rows / part.queries(mass)
                shift = (rows * part.queries(out)).sum(-1, keepdim=True)
            own = core.backward(rows, part.keys(v), shift, dbias, dtau)
            part.queries_of(dq).copy_(own[0].view_as(part.queries_of(dq)))
            part.add_keys(dk, own[1])
            part.add_keys(dv, own[2])
        return dq, dk, dv, dbias, dtau, None, None


class _Part(NamedTuple):
    """Rows of the batch and query heads that are computed at a time: C = rows x heads."""

    rows: slice
    heads: slice
    group: int

    def queries_of(self, x: Tensor) -> Tensor:
        """The part of a tensor [B, T, H, D], a view [rows, heads, T, D]."""
        return x[self.rows, :, self.heads].transpose(1, 2)

    def queries(self, x: Tensor) -> Tensor:
        """The part of a tensor [B, T, H, D], contiguous [C, T, D]."""
        return self.queries_of(x).reshape(-1, x.shape[1], x.shape[3]).contiguous()

    def keys(self, x: Tensor) -> Tensor:
        """What this part's heads see of [B, S, G, D], contiguous [C, S, D]."""
        if self.group == 1:
            return self.queries(x)
        return x[self.rows][:, :, self._serving(x)].transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])

    def add_keys(self, x: Tensor, found: Tensor) -> None:
        """Add gradients [C, S, D] to those of the keys [B, S, G, D]."""
        found = found.view(-1, self.heads.stop - self.heads.start, *found.shape[1:]).transpose(1, 2)
        if self.group == 1:
            x[self.rows, :, self.heads] = found
        else:
            x[self.rows].index_add_(2, self._serving(x), found)

    def _serving(self, x: Tensor) -> Tensor:
        return torch.arange(self.heads.start, self.heads.stop, device=x.device) // self.group


class _Block(NamedTuple):
    """Queries start … stop, and the number of keys that the last of them sees."""

    start: int
    stop: int
    keys: int

    @property
    def own(self) -> slice:
        """The keys among which the mask of these queries lies."""
        return slice(self.keys - (self.stop - self.start), self.keys)


class _Plan:
    """How the work is cut, and what all parts share."""

    def __init__(self, q: Tensor, k: Tensor, tau: Tensor | None, divide_by_n: bool) -> None:
        batch, queries, heads, width = q.shape
        keys = k.shape[1]
        self.scale, self.keys = float(width**-0.5), keys
        self.rows = min(ROWS, queries)
        at_once = max(1, SCORES[q.device.type] // (self.rows * keys))
        self.parts = list(_parts(batch, heads, at_once, heads // k.shape[2]))
        # The short block comes first: it sees the fewest keys.
        starts = range(queries % self.rows - self.rows if queries % self.rows else 0, queries, self.rows)
        self.blocks = [_Block(max(start, 0), start + self.rows, keys - queries + start + self.rows) for start in starts]
        self.hidden = ~visible(self.rows, self.rows, device=q.device)
        count = visible_count(queries, keys, device=q.device).to(q.dtype)
        self.share = 1 / count if divide_by_n else torch.ones_like(count)
        # With a positive threshold a hidden key, of weight 0, would get tau / n.
        self.leaks = tau is not None and bool((tau > 0).any())


def _parts(batch: int, heads: int, at_once: int, group: int) -> Iterator[_Part]:
    rows, size = max(1, at_once // heads), min(heads, at_once)
    for row in range(0, batch, rows):
        for head in range(0, heads, size):
            yield _Part(slice(row, min(row + rows, batch)), slice(head, min(head + size, heads)), group)


class _Core:
    """The arithmetic of one part."""

    def __init__(self, plan: _Plan, part: _Part, q: Tensor, k: Tensor, bias: Tensor | None, tau: Tensor | None) -> None:
        self.plan, self.heads = plan, part.heads
        self.q, self.k = part.queries(q) * plan.scale, part.keys(k)
        self.tile = self._tile(None if bias is None else bias[part.heads])
        self.cut = None if tau is None else tau[part.heads, None, None] * plan.share[:, None]  # [heads, T, 1]
        self.room = [q.new_empty(len(self.q) * plan.rows * plan.keys) for _ in range(3)]

    def _tile(self, bias: Tensor | None) -> Tensor:
        """What is added to the scores of a block's last keys: bias by distance, -inf for what is hidden.

        Returns:
            [heads or 1, rows, width]; entry (i, j) has the distance width - rows + i - j.
        """
        rows, keys = self.plan.rows, self.plan.keys
        line = self.q.new_zeros(1 if bias is None else len(bias), keys + rows - 1)
        reach = 0
        if bias is not None:
            reach = min(bias.shape[1], keys)
            line[:, keys - reach : keys] = bias[:, :reach].flip(1)
        line[:, keys:] = float("-inf")
        width = min(keys, reach + rows)
        return line[:, keys - width :].unfold(1, width, 1).flip(1)

    def buffers(self, block: _Block) -> list[Tensor]:
        """Room for the scores of a block, [C, queries, keys] each."""
        shape = (len(self.q), block.stop - block.start, block.keys)
        return [x[: shape[0] * shape[1] * shape[2]].view(shape) for x in self.room]

    def by_head(self, x: Tensor) -> Tensor:
        """[C, …] as [rows of the batch, heads, …]."""
        return x.view(-1, self.heads.stop - self.heads.start, *x.shape[1:])

    def weights(self, block: _Block, p: Tensor) -> Tensor:
        """Softmax weights of a block, written into p [C, queries, keys]."""
        q, k = self.q[:, block.start : block.stop], self.k[:, : block.keys].mT
        far = max(0, block.keys - self.tile.shape[2])
        tile = self.tile[:, self.plan.rows - p.shape[1] :, max(0, self.tile.shape[2] - block.keys) :]
        self.by_head(p)[..., far:].copy_(tile)
        if far:
            torch.bmm(q, k[..., :far], out=p[..., :far])
        p[..., far:].baddbmm_(q, k[..., far:])
        torch.softmax(p, -1, out=p)
        return p

    def kept(self, block: _Block, p: Tensor, a: Tensor) -> Tensor:
        """relu(p + tau / n), written into a, which may be p."""
        if self.cut is None:
            return p
        torch.add(self.by_head(p), self.cut[:, block.start : block.stop], out=self.by_head(a))
        a.relu_()
        if self.plan.leaks:
            rows = p.shape[1]
            a[..., block.own].masked_fill_(self.plan.hidden[:rows, :rows], 0.0)
        return a

    def forward(self, v: Tensor, renormalise: bool) -> tuple[Tensor, Tensor]:
        """Outputs [C, T, Dv], and the rows' sums [C, T, 1] where they are divided by them."""
        o, mass = v.new_empty(*self.q.shape[:2], v.shape[2]), v.new_ones(*self.q.shape[:2], 1)
        for block in self.plan.blocks:
            p = self.buffers(block)[0]
            a = self.kept(block, self.weights(block, p), p)
            torch.bmm(a, v[:, : block.keys], out=o[:, block.start : block.stop])
            if renormalise:
                total = a.sum(-1, keepdim=True)
                mass[:, block.start : block.stop] = total.masked_fill(total == 0, 1.0)
        return o.div_(mass) if renormalise else o, mass

    def backward(self, g: Tensor, v: Tensor, shift: Tensor | None, dbias: Tensor | None,
                 dtau: Tensor | None) -> list[Tensor]:
        """Gradients of q [C, T, D], k [C, S, D] and v [C, S, Dv]; those of the tables are added to what is there.

        Args:
            g: gradient of the outputs [C, T, Dv].
            v: [C, S, Dv].
            shift: what the sum of a row takes from the gradient of its weights [C, T, 1], where rows are divided by it.
            dbias, dtau: [H, W], [H].
        """
        dq, dk, dv = torch.empty_like(self.q), torch.zeros_like(self.k), torch.zeros_like(v)
        for block in self.plan.blocks:
            p, da, a = self.buffers(block)
            rows, keys = slice(block.start, block.stop), slice(0, block.keys)
            a = self.kept(block, self.weights(block, p), a)
            dv[:, keys].baddbmm_(a.mT, g[:, rows])
            torch.bmm(g[:, rows], v[:, keys].mT, out=da)
            if shift is not None:
                da -= shift[:, rows]
            if self.cut is not None:
                torch.ops.aten.threshold_backward.grad_input(da, a, 0, grad_input=da)
            if dtau is not None:
                per_row = self.by_head(da.sum(-1)) * self.plan.share[rows]
                dtau[self.heads] += per_row.sum((0, 2))
            ds = torch.ops.aten._softmax_backward_data.out(da, p, -1, p.dtype, grad_input=da)
            torch.bmm(ds, self.k[:, keys], out=dq[:, rows])
            dk[:, keys].baddbmm_(ds.mT, self.q[:, rows])
            if dbias is not None:
                self._add_diagonals(dbias[self.heads], ds)
        return [dq.mul_(self.plan.scale), dk, dv]

    def _add_diagonals(self, dbias: Tensor, ds: Tensor) -> None:
        """Add the sums of ds [C, queries, keys] over equal distances to dbias [heads, W]."""
        rows, keys = ds.shape[1:]
        width = min(keys, dbias.shape[1] + rows)
        # Zeros to the left of each row: what slides past a row's end lands there, so the shifted rows add up.
        skew = ds.new_zeros(len(dbias), rows + 1, rows + width)
        torch.sum(self.by_head(ds)[..., keys - width :], 0, out=skew[:, :rows, rows:])
        slid = skew.flatten(1)[:, : rows * (rows + width + 1)].view(len(dbias), rows, -1).sum(1)
        reach = min(width, dbias.shape[1])
        dbias[:, :reach] += slid[:, 1 : width + 1].flip(1)[:, :reach]
