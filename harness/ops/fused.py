"""Fused softmax attention of other packages behind one signature: q, k, v [B, T, H, D], bias [H, W], window."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.ops.masks import repeat_heads, visible
from harness.ops.positions import distance_bias
from harness.spec import Reason


def sdpa(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, window: int | None = None) -> Tensor:
    """torch's fused attention; it takes the causal shortcut where nothing but causality masks.

    Args:
        q, k, v: [B, T, H, D], [B, S, G, D], [B, S, G, Dv]; queries are the last T of S positions.
        bias: table over distance [H, W].
        window: keys seen at most.

    Returns:
        [B, T, H, Dv].
    """
    queries, keys = q.shape[1], k.shape[1]
    k, v = repeat_heads(k, q.shape[2]), repeat_heads(v, q.shape[2])
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if bias is None and window is None and queries == keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    seen = visible(queries, keys, window=window, device=q.device)
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)
    mask = distance_bias(bias, queries, keys).masked_fill(~seen, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype)[None]).transpose(1, 2)


def _kernel(package: str) -> Any:
    # Imported here and nowhere else: a broken package greys out its own backend only.
    if package == "flash_attn":
        from flash_attn import flash_attn_func

        return flash_attn_func
    import xformers.ops

    return xformers.ops


def flash_attn(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, window: int | None = None) -> Tensor:
    """FlashAttention 2 of its authors' package; signature and shapes of `sdpa`, without a bias."""
    if bias is not None:
        raise NotImplementedError("flash_attn takes no table over distance")
    side = (-1, -1) if window is None else (window - 1, 0)
    out: Tensor = _kernel("flash_attn")(q, k, v, causal=True, window_size=side)
    return out


def xformers(q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, window: int | None = None) -> Tensor:
    """xformers' memory-efficient attention; signature and shapes of `sdpa`, without bias or window."""
    if bias is not None or window is not None:
        raise NotImplementedError("xformers is called for plain causal attention only")
    ops = _kernel("xformers")
    k, v = repeat_heads(k, q.shape[2]), repeat_heads(v, q.shape[2])
    mask = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask()
    out: Tensor = ops.memory_efficient_attention(q, k, v, attn_bias=mask)
    return out


@functools.cache
def flash_attn_probe(device: str) -> Reason:
    """Why flash-attn cannot run on this device kind, or None: a tiny real call decides."""
    return _probe(flash_attn, device)


@functools.cache
def xformers_probe(device: str) -> Reason:
    """Why xformers cannot run on this device kind, or None: a tiny real call decides."""
    return _probe(xformers, device)


def _probe(run: Any, device: str) -> Reason:
    try:
        x = torch.zeros(1, 8, 1, 16, device=device, dtype=torch.bfloat16)
        run(x, x, x)
    # A package built for another machine fails in any way it likes; each of them means "not here".
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
    return None
