"""The selective scan of a state space model, in blocks of tokens and by the CUDA kernel of Mamba's authors.

h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t,   y_t = C_t . h_t + D u_t       h_t is [E, N] for each row
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from harness.ops import kernels
from harness.ops.masks import at_least_float32
from harness.spec import Reason

# Tokens whose states exist at the same time. One state is kept for each block, so shorter blocks keep more of
# them, and longer ones outgrow the cache; from 4 to 16 tokens time is flat.
BLOCK = 8


def scan_in_blocks(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> Tensor:
    """The scan with the states of one block of tokens in memory; the backward pass computes them anew.

    A token costs one call to torch forward and three backward; all else is done for a block at once. Memory
    beyond inputs, outputs and their gradients is T / BLOCK + 3 BLOCK states; a graph keeps several a token.

    Args:
        u, delta: [B, T, E]; delta > 0.
        A: [E, N].
        B, C: [B, T, N].
        D: [E], or none.

    Returns:
        [B, T, E] in the dtype of u; computed in float32, or in float64 where u is.
    """
    wide = at_least_float32(u)
    rest = (x.to(wide.dtype) for x in (delta, A, B, C))
    y: Tensor = _BlockScan.apply(wide, *rest, None if D is None else D.to(wide.dtype))  # type: ignore[no-untyped-call]
    return y.to(u.dtype)


class _BlockScan(torch.autograd.Function):
    """States of a block are [B, block, N, E]: channels innermost, so that each call runs over long rows."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> Tensor:
        rows, length, _ = u.shape
        rates = A.t().contiguous()  # [N, E]
        written = delta * u
        kept = u.new_empty(-(-length // BLOCK), rows, *rates.shape)  # the state before each block
        kept[0] = 0.0
        y = torch.empty_like(written)
        for index, block, room in _walk(kept, range(len(kept)), length):
            last = room.fill(kept[index], delta[:, block], rates, B[:, block], written[:, block])
            y[:, block] = _over_states(C[:, block], room.state)
            if index + 1 < len(kept):
                kept[index + 1] = last
        ctx.save_for_backward(u, delta, rates, B, C, D, kept)
        return y if D is None else y.addcmul_(u, D)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        u, delta, rates, B, C, D, kept = ctx.saved_tensors
        dy = dy.contiguous()
        written = delta * u
        dB, dC, drates = torch.empty_like(B), torch.empty_like(C), torch.zeros_like(rates)
        ddelta, dwritten = torch.empty_like(written), torch.empty_like(written)
        dlast = torch.zeros_like(kept[0])  # what reaches a block's last state from the tokens after it
        for index, block, room in _walk(kept, reversed(range(len(kept))), u.shape[1]):
            room.fill(kept[index], delta[:, block], rates, B[:, block], written[:, block])
            dlast = room.back(C[:, block], dy[:, block], dlast)
            dC[:, block] = _over_channels(dy[:, block], room.state)
            dB[:, block] = _over_channels(written[:, block], room.dstate)
            dwritten[:, block] = _over_states(B[:, block], room.dstate)
            # decay_t * dstate_t times the state before is the gradient of delta_t A.
            product = room.decay
            product[:, 1:].mul_(room.state[:, :-1])
            product[:, 0].mul_(kept[index])
            ddelta[:, block] = torch.mul(product, rates, out=room.dstate).sum(2)
            drates += product.mul_(delta[:, block].unsqueeze(2)).sum((0, 1))
        ddelta.addcmul_(dwritten, u)
        du = dwritten.mul_(delta)
        if D is None:
            return du, ddelta, drates.t(), dB, dC, None
        return du.addcmul_(dy, D), ddelta, drates.t(), dB, dC, (dy * u).sum((0, 1))


class _Room:
    """Decays, states and the states' gradients of a block [B, block, N, E], and the share of each token."""

    def __init__(self, rows: int, tokens: int, like: Tensor) -> None:
        arrays = [like.new_empty(rows, tokens, *like.shape[-2:]) for _ in range(3)]
        self.decay, self.state, self.dstate = arrays
        # Made once: in a small model a view costs more than the arithmetic of the token it shows.
        self.decays, self.states, self.dstates = (x.unbind(1) for x in arrays)

    def fill(self, before: Tensor, delta: Tensor, rates: Tensor, B: Tensor, written: Tensor) -> Tensor:
        """Decays and states; returns the last state, a view."""
        torch.mul(delta.unsqueeze(2), rates, out=self.decay)
        self.decay.exp_()
        torch.mul(B.unsqueeze(3), written.unsqueeze(2), out=self.state)
        for decay, state in zip(self.decays, self.states, strict=True):
            before = state.addcmul_(decay, before)
        return before

    def back(self, C: Tensor, dy: Tensor, dlast: Tensor) -> Tensor:
        """Gradients of the states; decay_t * dstate_t in place of decay_t; returns the first of these."""
        torch.mul(C.unsqueeze(3), dy.unsqueeze(2), out=self.dstate)
        for decay, dstate in zip(reversed(self.decays), reversed(self.dstates), strict=True):
            dstate.add_(dlast)
            dlast = decay.mul_(dstate)
        return dlast.clone()


def _walk(kept: Tensor, indices: Iterable[int], length: int) -> Iterator[tuple[int, slice, _Room]]:
    """Blocks in the order of their indices, with one room for all of a length."""
    rooms: dict[int, _Room] = {}
    for index in indices:
        block = slice(index * BLOCK, min((index + 1) * BLOCK, length))
        tokens = block.stop - block.start
        if tokens not in rooms:
            rooms[tokens] = _Room(kept.shape[1], tokens, kept)
        yield index, block, rooms[tokens]


def _over_states(weights: Tensor, states: Tensor) -> Tensor:
    """Sum over n of weights [B, block, N] times states [B, block, N, E]: [B, block, E]."""
    return torch.bmm(weights.flatten(0, 1).unsqueeze(1), states.flatten(0, 1)).view(*states.shape[:2], -1)


def _over_channels(weights: Tensor, states: Tensor) -> Tensor:
    """Sum over e of weights [B, block, E] times states [B, block, N, E]: [B, block, N]."""
    # The row stands left: states times a column takes four times as long.
    return torch.bmm(weights.flatten(0, 1).unsqueeze(1), states.flatten(0, 1).mT).view(*states.shape[:2], -1)


def mamba_ssm(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> Tensor:
    """The CUDA kernel of Mamba's authors; arguments of `scan_in_blocks`, N at most 256.

    It wants time last, and one dtype for u, delta, B and C: float32, for a delta in bfloat16 would spoil the
    decays. It sums the gradients of A, B, C, D in no fixed order: their last bits differ from call to call.
    """
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    inputs, steps, written, read = (x.float().transpose(1, 2) for x in (u, delta, B, C))
    y: Tensor = selective_scan_fn(inputs, steps, A.float(), written, read, None if D is None else D.float())
    return y.transpose(1, 2).to(u.dtype)


@functools.cache
def mamba_ssm_probe(device: str) -> Reason:
    """Why mamba-ssm cannot run on this device kind, or None: a tiny real call decides."""
    try:
        x = torch.ones(1, 8, 4, device=device, requires_grad=True)
        y = mamba_ssm(x, x, -torch.ones(4, 2, device=device), x[..., :2], x[..., 2:], x[0, 0])
        torch.autograd.grad(y.sum(), x)
    # A package built for another machine fails in any way it likes; each of them means "not here".
    except Exception as error:
        return kernels.failure(error)
    return None
