"""Softmax attention of packages that need a GPU, behind the signature of `sdpa`: q, k, v [B, T, H, D], window.

Each call names its arguments: their order differs from version to version. None takes a table over distance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from harness.ops.masks import repeat_heads
from harness.spec import Reason


def flash_attn(q: Tensor, k: Tensor, v: Tensor, *, bias: None = None, window: int | None = None) -> Tensor:
    """FlashAttention 2, the package flash-attn: bfloat16, heads of at most 256 channels, grouped heads as they are."""
    # Imported here and nowhere else: a broken package greys out its own backend only.
    from flash_attn import flash_attn_func

    out: Tensor = flash_attn_func(q, k, v, causal=True, window_size=_sides(window, unbounded=-1))
    return out


def flash_attn_3(q: Tensor, k: Tensor, v: Tensor, *, bias: None = None, window: int | None = None) -> Tensor:
    """FlashAttention 3, built from flash-attn's folder for Hopper: bfloat16, at most 256 channels, a multiple of 8."""
    from flash_attn_interface import flash_attn_func

    out: Tensor = flash_attn_func(q, k, v, causal=True, window_size=_sides(window, unbounded=-1))
    return out


def flash_attn_4(q: Tensor, k: Tensor, v: Tensor, *, bias: None = None, window: int | None = None) -> Tensor:
    """FlashAttention 4, the package flash-attn-4: bfloat16, 8 to 128 channels, a multiple of 8."""
    from flash_attn.cute import flash_attn_func

    out: Tensor = flash_attn_func(q, k, v, causal=True, window_size=_sides(window, unbounded=None))[0]
    return out


def xformers(q: Tensor, k: Tensor, v: Tensor, *, bias: None = None, window: None = None) -> Tensor:
    """Memory-efficient attention of the package xformers: float32 too, a multiple of 8 channels, no window."""
    from xformers import ops
    from xformers.ops.fmha.attn_bias import LowerTriangularFromBottomRightMask

    k, v = repeat_heads(k, q.shape[2]), repeat_heads(v, q.shape[2])
    out: Tensor = ops.memory_efficient_attention(q, k, v, attn_bias=LowerTriangularFromBottomRightMask())
    return out


def _sides(window: int | None, *, unbounded: int | None) -> tuple[int | None, int | None]:
    """Keys seen to the left and right of a query's own."""
    return (unbounded, unbounded) if window is None else (window - 1, 0)


def probe(run: Callable[..., Tensor]) -> Callable[[str], Reason]:
    """A function that says why a kernel cannot run on a device kind, or None: a tiny real call decides, once."""

    @functools.cache
    def asked(device: str) -> Reason:
        try:
            x = torch.ones(1, 8, 1, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
            torch.autograd.grad(run(x, x, x).sum(), x)
        # A package built for another machine fails in any way it likes; each of them means "not here".
        except Exception as error:
            return failure(error)
        return None

    return asked


def failure(error: Exception) -> str:
    """An error of a package in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no reason'}"


def channels(width: int, *, most: int, multiple: int = 1) -> Reason:
    """Why a kernel cannot take heads of a width, or None.

    Args:
        width: D.
        most: the widest it takes.
        multiple: of which the width must be one.
    """
    if width > most:
        return f"takes heads of at most {most} channels, not {width}"
    return f"takes heads whose channels are a multiple of {multiple}, not {width}" if width % multiple else None
