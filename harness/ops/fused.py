"""torch's fused softmax attention: q, k, v [B, T, H, D], bias [H, W], window."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.ops.masks import repeat_heads, visible
from harness.ops.positions import distance_bias

WIDE_HEAD = 64
"""Width of a head from which a CPU's fused kernel gains from bfloat16; narrower ones are faster in float32."""


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
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[-1] < WIDE_HEAD:
        return sdpa(q.float(), k.float(), v.float(), bias=bias, window=window).to(v.dtype)
    k, v = repeat_heads(k, q.shape[2]), repeat_heads(v, q.shape[2])
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if bias is None and window is None and queries == keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    seen = visible(queries, keys, window=window, device=q.device)
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)
    mask = distance_bias(bias, queries, keys).masked_fill(~seen, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype)[None]).transpose(1, 2)
