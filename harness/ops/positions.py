"""Where a token stands: rotary angles, ALiBi slopes, tables over distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rotate(x: Tensor, *, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Rotary position embedding, half-split pairs.

        (x_m, x_{m+D/2})  turned by the angle  t · base^(−2m/D),  m = 0 … D/2 − 1

    Args:
        x: queries or keys [B, T, H, D], D even.
        start: position of the first token.
        base: larger turns slower.

    Returns:
        The turned tensor, in the dtype of x; angles and turns are formed in float32 or wider.

    Source: arXiv 2104.09864.
    """
    half = x.shape[-1] // 2
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    frequency = base ** (-torch.arange(half, device=x.device, dtype=wide) / half)
    position = torch.arange(start, start + x.shape[1], device=x.device, dtype=wide)
    angle = (position[:, None] * frequency)[:, None, :]
    turned: Tensor = _Turn.apply(x, angle.cos(), angle.sin())  # type: ignore[no-untyped-call]
    return turned


class _Turn(torch.autograd.Function):
    """Pairs turned by angles; a gradient is turned back, without the zeros that torch pads a slice's gradient with."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        low, high = x.to(cos.dtype).chunk(2, dim=-1)
        return torch.cat([(low * cos).sub_(high * sin), (high * cos).add_(low * sin)], dim=-1).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        back: Tensor = _Turn.apply(g, cos, -sin)  # type: ignore[no-untyped-call]
        return back, None, None


def alibi_slopes(heads: int) -> Tensor:
    """ALiBi's slope of each head: 2^(−8h/H) for a power of two, else filled up from the next one's odd entries.

    Returns:
        [H], float32.

    Source: arXiv 2108.12409.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power + 1, 2)]
    return torch.tensor(slopes + between[: heads - power])


def distance_bias(table: Tensor, queries: int, keys: int) -> Tensor:
    """A table over distance as a term of the scores: table[h, i − j] for 0 ≤ i − j < W, else 0.

    Args:
        table: [H, W].
        queries: T; the queries are the last T of the S positions.
        keys: S.

    Returns:
        [H, T, S].
    """
    query = torch.arange(keys - queries, keys, device=table.device)[:, None]
    distance = query - torch.arange(keys, device=table.device)[None, :]
    inside = (distance >= 0) & (distance < table.shape[1])
    return table[:, distance.clamp(0, table.shape[1] - 1)] * inside
