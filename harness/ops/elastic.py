"""Lazy Attention in blocks of queries, with its backward pass in closed form; no matrix of T x S exists.

Forward, for each query i over the keys j <= i, n_i of them, with t_i = tau_h / n_i (or tau_h):

    s_ij = q_i.k_j / sqrt(D) + b[h, i-j]    p_i = softmax_j(s_i)    a_ij = relu(p_ij + t_i)    o_i = sum_j a_ij v_j

Backward, with g_i the gradient of o_i and [a_ij > 0] the keys that were kept:

    da_ij = [a_ij > 0] g_i.v_j               dv_j   = sum_i a_ij g_i
    ds_ij = p_ij (da_ij - delta_i)           delta_i = sum_j p_ij da_ij = g_i.o_i - t_i sum_j da_ij
    dq_i  = sum_j ds_ij k_j / sqrt(D)        dk_j   = sum_i ds_ij q_i / sqrt(D)
    dtau_h = sum_ij da_ij / n_i              db[h, d] = sum_i ds_i,i-d

Renormalised, o_i is divided by A_i = sum_j a_ij: then g_i / A_i stands for g_i, da_ij = [a_ij > 0] (g_i.v_j - g_i.o_i),
and delta_i = -t_i sum_j da_ij; a row with A_i = 0 has no gradient.

A block holds every score of its queries, so that the softmax is torch's own. Few weights p are kept for the backward
pass, which forms many anew, the same to the bit: no key is kept in one pass and cut in the other. Keys that every query
of a block cuts leave it nothing but ds_ij = -p_ij delta_i: they need neither values nor gradients of their weights.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.ops.elastic_plan import KEPT, Block, KeySums, Part, Plan, Runs, Sum, add_diagonals, runs_of
from harness.ops.masks import at_least_float32

LONG = 1024
"""Fewest keys of a block where it pays to look for those that are cut."""


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
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        tau: Tensor | None,
        divide_by_n: bool,
        renormalise: bool,
    ) -> Tensor:
        ctx.plan = plan = Plan(q, k)
        ctx.divide_by_n = divide_by_n
        out = q.new_empty(plan.stacks, q.shape[1], v.shape[3])
        mass = q.new_empty(plan.stacks, q.shape[1], 1) if renormalise else None
        room = plan.buffers(q, 1)
        ctx.runs, kept = [], []
        left = KEPT[q.device.type] if any(ctx.needs_input_grad) else 0
        for part in plan.parts:
            core = _Core(plan, part, (q, k, v), bias, tau, divide_by_n)
            own = core.room_to_keep(left)
            left -= sum(x.numel() for x in own)
            kept += own
            ctx.runs.append(core.forward(room, own, out[part.stacks], None if mass is None else mass[part.stacks]))
            del core  # Before the next one copies its queries and keys: at many keys a part is most of the memory.
        ctx.save_for_backward(q, k, v, bias, tau, out, mass, *kept)
        return out.view(q.shape[0], -1, *out.shape[1:]).transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, tau, out, mass, *kept = ctx.saved_tensors
        plan: Plan = ctx.plan
        dq, dk, dv = (plan.gradient_of(x) for x in (q, k, v))
        dbias, dtau = (None if x is None else torch.zeros_like(x) for x in (bias, tau))
        room = plan.buffers(q, 3)
        for part, runs in zip(plan.parts, ctx.runs, strict=True):
            core = _Core(plan, part, (q, k, v), bias, tau, ctx.divide_by_n)
            weights, kept = kept[: len(runs)], kept[len(runs) :]
            own = out[part.stacks], None if mass is None else mass[part.stacks]
            core.backward(room, weights, runs, part.queries(g), *own, dq.flatten(0, 1)[part.stacks])
            part.add_keys(dk, core.dk)
            part.add_keys(dv, core.dv)
            if dbias is not None:
                add_diagonals(dbias[part.heads], core.dtile)
            if dtau is not None:
                dtau[part.heads] += core.dtau
            del core
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), dbias, dtau, None, None


class _Core:
    """The arithmetic of one part."""

    def __init__(
        self,
        plan: Plan,
        part: Part,
        qkv: tuple[Tensor, ...],
        bias: Tensor | None,
        tau: Tensor | None,
        divide_by_n: bool,
    ) -> None:
        self.plan, self.heads = plan, part.heads.stop - part.heads.start
        self.q, self.k, self.v = part.queries(qkv[0]), part.keys(qkv[1]), part.keys(qkv[2])
        self.tile = plan.tile(None if bias is None else bias[part.heads], self.q)
        self.table = bias is not None
        self.share = 1 / plan.count if divide_by_n else torch.ones_like(plan.count)  # [T, 1]
        self.cut: Tensor | None = None
        if tau is not None:
            self.cut = (tau[part.heads, None, None] * self.share).repeat(len(self.q) // self.heads, 1, 1)  # [C, T, 1]
        # With a positive threshold a hidden key, of weight 0, would get tau / n.
        self.leaks = tau is not None and bool((tau > 0).any())

    def room_to_keep(self, most: int) -> list[Tensor]:
        """Room for the softmax weights of each block, where all of them are that many numbers at most; else nothing."""
        shapes = [(len(self.q), block.rows.stop - block.rows.start, block.keys) for block in self.plan.blocks]
        return [self.q.new_empty(shape) for shape in shapes] if sum(map(math.prod, shapes)) <= most else []

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(-1, self.heads, *x.shape[1:])

    def _weights(self, block: Block, p: Tensor) -> None:
        """Softmax weights of a block, written into p [C, rows, keys]."""
        q, k, scale = self.q[:, block.rows], self.k[:, : block.keys], self.plan.scale
        width = min(self.tile.shape[2], block.keys)
        p.baddbmm_(q, k.mT, beta=0, alpha=scale)
        self._by_head(p)[..., block.keys - width :] += self.tile[:, -p.shape[1] :, -width:]
        torch.softmax(p, -1, out=p)

    def _kept(self, block: Block, p: Tensor, keys: slice, a: Tensor) -> Tensor:
        """relu(p + t) for some keys of a block, written into a, which may be p."""
        if self.cut is None:
            return p[..., keys]
        a = a[..., keys]
        _add_relu(p[..., keys], self.cut[:, block.rows], a)
        own = block.keys - p.shape[1]  # where the mask begins
        if self.leaks and keys.stop > own:
            hidden = self.plan.hidden[-p.shape[1] :, -p.shape[1] :]
            first = max(keys.start, own)
            a[..., first - keys.start :].masked_fill_(hidden[:, first - own : keys.stop - own], 0.0)
        return a

    def forward(self, room: list[Tensor], keep: list[Tensor], out: Tensor, mass: Tensor | None) -> list[Runs]:
        """Outputs, written into out [C, T, Dv], divided by the rows' sums where mass [C, T, 1] is there for them.

        Args:
            room: buffers of a block.
            keep: room for the softmax weights of each block, or nothing.
            out, mass: as above.

        Returns:
            The keys of each block in runs, with whether any query keeps one of them.
        """
        found, mixed = [], []
        look = self.cut is not None and self.q.device.type == "cpu"
        for index, block in enumerate(self.plan.blocks):
            rows, (a,) = block.rows, _tiles(room, len(self.q), block)
            whole = slice(0, block.keys)
            p = keep[index] if keep else a
            self._weights(block, p)
            ghost = None if self.cut is None else (p[..., :1] + self.cut[:, rows]) * 0
            a = self._kept(block, p, whole, a)
            runs = runs_of(a) if look and block.keys >= LONG else [(whole, True)]
            # Blocks of one head are alike: where one has nothing to skip, the next is not searched.
            look = look and (block.keys < LONG or len(runs) > 1)
            found.append(runs)
            mixed.append(Sum(self.q.new_empty(len(a), a.shape[1], self.v.shape[2])))
            for keys, _ in filter(_alive, runs):
                mixed[-1].add(a[..., keys], self.v[:, keys])
            if ghost is not None:
                mixed[-1].whole().add_(ghost)  # A row of NaN stays one: torch's fused sum and ReLU may make it 0.
            if mass is not None:
                torch.sum(a, -1, keepdim=True, out=mass[:, rows])
        torch.cat([block.whole() for block in mixed], 1, out=out)
        if mass is not None:
            out /= mass.masked_fill_(mass == 0, 1.0)
        return found

    def backward(
        self,
        room: list[Tensor],
        kept: list[Tensor],
        found: list[Runs],
        g: Tensor,
        out: Tensor,
        mass: Tensor | None,
        dq: Tensor,
    ) -> None:
        """Gradients of the part: written into dq [C, T, D], and left in dk, dv, dtau and dtile.

        Args:
            room: buffers of a block.
            kept: softmax weights of each block, or nothing: then they are formed once more.
            found: what forward returned.
            g: gradient of the outputs [C, T, Dv].
            out, mass: what forward wrote.
            dq: [C, T, D].
        """
        self.dk, self.dv, self.dtile = KeySums(self.k), KeySums(self.v), torch.zeros_like(self.tile)
        g = g if mass is None else g / mass
        delta = (g * out).sum(-1, keepdim=True)
        total = torch.zeros_like(delta)  # sum_j da_ij
        grads = []
        # The last block sees all keys: what it finds for them is written, not added.
        for index, block in reversed(list(enumerate(self.plan.blocks))):
            runs, rows, (da, a, p) = found[index], block.rows, _tiles(room, len(self.q), block)
            if kept:
                p = kept[index]
            else:
                self._weights(block, p)
            for keys, _ in filter(_alive, runs):
                weights, grad = self._kept(block, p, keys, a), da[..., keys]
                self.dv.add(keys, weights, g[:, rows])
                torch.bmm(g[:, rows], self.v[:, keys].mT, out=grad)
                if mass is not None:
                    grad -= delta[:, rows]
                if self.cut is not None:
                    torch.ops.aten.threshold_backward.grad_input(grad, weights, 0, grad_input=grad)
                    total[:, rows] += grad.sum(-1, keepdim=True)
            shift = delta[:, rows] if mass is None else torch.zeros_like(delta[:, rows])
            if self.cut is not None:
                shift = shift - self.cut[:, rows] * total[:, rows]
            grads.append(self._to_scores(block, runs, p, da, shift))
        torch.cat(grads[::-1], 1, out=dq)
        self.dtau = self._by_head((total * self.share).squeeze(-1)).sum((0, 2))

    def _to_scores(self, block: Block, runs: Runs, p: Tensor, da: Tensor, delta: Tensor) -> Tensor:
        """From the weights' gradients da [C, rows, keys] to those of the scores, and on to keys, table and queries."""
        q, scale = self.q[:, block.rows], self.plan.scale
        dq = Sum(torch.empty_like(q, memory_format=torch.contiguous_format))
        for keys, alive in runs:
            ds = p[..., keys]
            if alive:
                ds = da[..., keys].sub_(delta).mul_(ds)
                dq.add(ds, self.k[:, keys], alpha=scale)
                self.dk.add(keys, ds, q, alpha=scale)
            else:
                dq.whole().addcmul_(delta, torch.bmm(ds, self.k[:, keys]), value=-scale)
                self.dk.add(keys, ds, q * delta, alpha=-scale)
            width = min(self.tile.shape[2], block.keys)
            first = max(keys.start, block.keys - width)
            if self.table and first < keys.stop:
                near = ds[..., first - keys.start :]
                near = self._by_head(near if alive else near * -delta)
                columns = slice(self.tile.shape[2] - block.keys + first, self.tile.shape[2] - block.keys + keys.stop)
                self.dtile[:, -q.shape[1] :, columns] += near[0] if len(near) == 1 else near.sum(0)
        return dq.whole()


def _add_relu(x: Tensor, y: Tensor, out: Tensor) -> None:
    """relu(x + y) into out, in one pass over the scores where torch has one."""
    if x.device.type == "cpu":
        torch.ops.aten._add_relu.out(x, y, out=out)
    else:
        torch.add(x, y, out=out).relu_()


def _tiles(room: list[Tensor], stacks: int, block: Block) -> list[Tensor]:
    shape = (stacks, block.rows.stop - block.rows.start, block.keys)
    return [x[: shape[0] * shape[1] * shape[2]].view(shape) for x in room]


def _alive(piece: tuple[slice, bool]) -> bool:
    return piece[1]
