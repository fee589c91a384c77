"""Times of several functions in turn, so that a slow moment of the machine hits all of them, and the machine's peak."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

Key = TypeVar("Key")
ENOUGH_MS = 5.0
# A call of this length has no cold start to speak of: its first one counts.
LONG_MS = 5000.0
# One call warms up what takes this long; a second one would buy nothing.
SLOW_MS = 500.0
SIDE = 2048


def quartiles(times: list[float]) -> tuple[float, float, float]:
    """Low quartile, median and high quartile of two times or more."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, middle, high


def interleaved(
    functions: Mapping[Key, Callable[[], Any]], *, rounds: Mapping[Key, int], device: str
) -> dict[Key, Any]:
    """Call each function once a round, after one or two calls that do not count unless a call takes seconds.

    Args:
        functions: what is timed; a short one is called several times a round.
        rounds: of each function, at least 2; one with fewer than the others leaves after its last.
        device: `cpu` or `cuda`; a GPU is waited for.

    Returns:
        Low quartile, median and high quartile of a call, in ms.
    """
    calls: dict[Key, int] = {}
    times: dict[Key, list[float]] = {key: [] for key in functions}
    for key, function in functions.items():
        first = _timed(function, 1, device)
        calls[key] = 1
        if first >= LONG_MS:
            times[key].append(first)
        elif first < SLOW_MS:
            # A clock's own jitter is lost in five milliseconds.
            calls[key] = max(1, min(100, int(ENOUGH_MS / max(_timed(function, 1, device), 1e-3))))
    for turn in range(max(rounds.values(), default=0)):
        for key, function in functions.items():
            if len(times[key]) <= turn < rounds[key]:
                times[key].append(_timed(function, calls[key], device))
    return {key: quartiles(values) for key, values in times.items()}


def _timed(function: Callable[[], Any], calls: int, device: str) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3 / calls


def peak_flops(dtype: str, device: str) -> float:
    """FLOP/s of a square matrix product in a dtype: the best of 9, for it is a limit and no habit."""
    kind: torch.dtype = getattr(torch, dtype)
    side = SIDE * (4 if device == "cuda" else 1)
    a, b = (torch.randn(side, side, device=device).to(kind) for _ in range(2))
    out = torch.empty_like(a)
    best = min(_timed(lambda: torch.mm(a, b, out=out), 1, device) for _ in range(9))
    return 2 * side**3 / (best * 1e-3)
