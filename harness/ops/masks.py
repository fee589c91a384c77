"""Scores, what a query may see of them, and their softmax."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor in float32, or as it is where it is wider."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def visible(queries: int, keys: int, *, window: int | None = None, device: torch.device | str = "cpu") -> Tensor:
    """Which keys each query sees: those up to its own position, at most `window` of them.

    Args:
        queries: T; the queries are the last T of the S positions.
        keys: S.
        window: keys seen at most, the query's own included; none is all.

    Returns:
        Boolean mask [T, S].
    """
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    seen = key <= query
    return seen if window is None else seen & (query - key < window)


def visible_count(queries: int, keys: int, *, device: torch.device | str = "cpu") -> Tensor:
    """n, the number of keys each query sees, in float32 (an integer above 256 would not survive bfloat16): [T]."""
    return torch.arange(keys - queries + 1, keys + 1, device=device, dtype=torch.float32)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values for every query head: head g serves the queries g·H/G … (g+1)·H/G − 1.

    Args:
        x: [B, S, G, D].
        heads: H.

    Returns:
        [B, S, H, D].
    """
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def scores(q: Tensor, k: Tensor) -> Tensor:
    """s_ij = q_i · k_j / sqrt(D), in float32 or wider.

    Args:
        q: [B, T, H, D].
        k: [B, S, G, D].

    Returns:
        [B, H, T, S].
    """
    q, k = at_least_float32(q), at_least_float32(repeat_heads(k, q.shape[2]))
    product: Tensor = torch.einsum("bthd,bshd->bhts", q, k)
    return product * float(q.shape[-1] ** -0.5)


def softmax_weights(scores: Tensor, seen: Tensor) -> Tensor:
    """p_ij = exp(s_ij) / sum over visible l of exp(s_il), and 0 for what is not seen; a row that sees nothing is 0.

    Args:
        scores: [B, H, T, S].
        seen: boolean [T, S].

    Returns:
        [B, H, T, S].
    """
    masked = scores.masked_fill(~seen, float("-inf"))
    # A row of -inf alone would be 0 / 0: its largest score is replaced by 0, so that every exp is 0.
    largest = masked.amax(-1, keepdim=True).detach()
    weights = (masked - largest.masked_fill(largest == float("-inf"), 0.0)).exp()
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
