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

A block holds every score of its queries, so that the softmax is torch's own, and the backward pass forms the same p to
the bit: no key is kept in one pass and cut in the other. Keys that every query of a block cuts leave it nothing but
ds_ij = -p_ij delta_i: they need neither values nor gradients of their weights.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.ops.elastic_plan import Block, KeySums, Part, Plan, add_diagonals
from harness.ops.masks import at_least_float32

# Keys that are looked at together, the fewest of a block where looking pays, and the fewest that are skipped.
TILE, LONG, SHORT = 64, 1024, 256
Runs = list[tuple[slice, bool]]


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
        ctx.runs = []
        for part in plan.parts:
            core = _Core(plan, part, (q, k, v), bias, tau, divide_by_n)
            ctx.runs.append(core.forward(room, out[part.stacks], None if mass is None else mass[part.stacks]))
        ctx.save_for_backward(q, k, v, bias, tau, out, mass)
        return out.view(q.shape[0], -1, *out.shape[1:]).transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, tau, out, mass = ctx.saved_tensors
        plan: Plan = ctx.plan
        dq, dk, dv = (x.new_zeros(x.transpose(1, 2).shape) for x in (q, k, v))
        dbias, dtau = (None if x is None else torch.zeros_like(x) for x in (bias, tau))
        room = plan.buffers(q, 3)
        for part, runs in zip(plan.parts, ctx.runs, strict=True):
            core = _Core(plan, part, (q, k, v), bias, tau, ctx.divide_by_n)
            own = out[part.stacks], None if mass is None else mass[part.stacks]
            core.backward(room, runs, part.queries(g), *own, dq.flatten(0, 1)[part.stacks])
            part.add_keys(dk, core.dk.whole())
            part.add_keys(dv, core.dv.whole())
            if dbias is not None:
                add_diagonals(dbias[part.heads], core.dtile)
            if dtau is not None:
                dtau[part.heads] += core.dtau
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

    def forward(self, room: list[Tensor], out: Tensor, mass: Tensor | None) -> list[Runs]:
        """Outputs, written into out [C, T, Dv], divided by the rows' sums where mass [C, T, 1] is there for them.

        Returns:
            The keys of each block in runs, with whether any query keeps one of them.
        """
        found = []
        look = self.cut is not None and self.q.device.type == "cpu"
        for block in self.plan.blocks:
            rows, (p,) = block.rows, _tiles(room, len(self.q), block)
            whole = slice(0, block.keys)
            self._weights(block, p)
            a = self._kept(block, p, whole, p)
            runs = _runs(a) if look and block.keys >= LONG else [(whole, True)]
            # Blocks of one head are alike: where one has nothing to skip, the next is not searched.
            look = look and (block.keys < LONG or len(runs) > 1)
            found.append(runs)
            # Sums are kept contiguous: torch would otherwise multiply one head at a time.
            mixed = self.v.new_zeros(len(p), p.shape[1], self.v.shape[2])
            for keys, _ in filter(_alive, runs):
                mixed.baddbmm_(a[..., keys], self.v[:, keys])
            out[:, rows] = mixed
            if mass is not None:
                torch.sum(a, -1, keepdim=True, out=mass[:, rows])
        if mass is not None:
            out /= mass.masked_fill_(mass == 0, 1.0)
        return found

    def backward(
        self, room: list[Tensor], found: list[Runs], g: Tensor, out: Tensor, mass: Tensor | None, dq: Tensor
    ) -> None:
        """Gradients of the part: added to dq [C, T, D], which is 0, and left in dk, dv, dtau and dtile.

        Args:
            room: buffers of a block.
            found: what forward returned.
            g: gradient of the outputs [C, T, Dv].
            out, mass: what forward wrote.
            dq: [C, T, D].
        """
        self.dk, self.dv, self.dtile = KeySums(self.k), KeySums(self.v), torch.zeros_like(self.tile)
        g = g if mass is None else g / mass
        delta = (g * out).sum(-1, keepdim=True)
        total = torch.zeros_like(delta)  # sum_j da_ij
        for block, runs in zip(self.plan.blocks, found, strict=True):
            rows, (p, da, a) = block.rows, _tiles(room, len(self.q), block)
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
            dq[:, rows] = self._to_scores(block, runs, p, da, shift)
        self.dtau = self._by_head((total * self.share).squeeze(-1)).sum((0, 2))

    def _to_scores(self, block: Block, runs: Runs, p: Tensor, da: Tensor, delta: Tensor) -> Tensor:
        """From the weights' gradients da [C, rows, keys] to those of the scores, and on to keys, table and queries."""
        q, scale = self.q[:, block.rows], self.plan.scale
        dq = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for keys, alive in runs:
            ds = p[..., keys]
            if alive:
                ds = da[..., keys].sub_(delta).mul_(ds)
                dq.baddbmm_(ds, self.k[:, keys], alpha=scale)
                self.dk.add(keys, ds, q, alpha=scale)
            else:
                dq.addcmul_(delta, torch.bmm(ds, self.k[:, keys]), value=-scale)
                self.dk.add(keys, ds, q * delta, alpha=-scale)
            width = min(self.tile.shape[2], block.keys)
            first = max(keys.start, block.keys - width)
            if self.table and first < keys.stop:
                near = ds[..., first - keys.start :]
                near = self._by_head(near if alive else near * -delta)
                columns = slice(self.tile.shape[2] - block.keys + first, self.tile.shape[2] - block.keys + keys.stop)
                self.dtile[:, -q.shape[1] :, columns] += near[0] if len(near) == 1 else near.sum(0)
        return dq


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


def _runs(weights: Tensor) -> Runs:
    """The keys of weights [C, rows, keys] in runs, with whether any weight of theirs is above 0."""
    keys = weights.shape[2]
    flags = F.pad(weights.sum((0, 1)), (0, -keys % TILE)).view(-1, TILE).gt(0).any(1).tolist()
    runs: Runs = []
    for alive, group in itertools.groupby(range(len(flags)), flags.__getitem__):
        tiles = list(group)
        run = slice(tiles[0] * TILE, min((tiles[-1] + 1) * TILE, keys))
        # A short gap between two runs costs more calls than it saves arithmetic.
        alive = alive or (run.stop - run.start < SHORT)
        if runs and runs[-1][1] == alive:
            run = slice(runs.pop()[0].start, run.stop)
        runs.append((run, alive))
    return runs
