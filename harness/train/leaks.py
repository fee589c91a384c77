"""Does a trained model cheat? Real text with other tokens from a position on tells, a position for each row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from harness.data import Evaluation
from harness.errors import RunFailed
from harness.model import seed_everything
from harness.train.evaluate import ROWS, precision

TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}
"""Logits may move by that share of the largest one: a kernel may round a row otherwise, and no more."""
CUTS = {"evaluation": 256, "training": 64}
"""Positions to change tokens from, in each mode of the model; every position of a sequence that has no more."""


@torch.no_grad()
def refuse_leaks(model: nn.Module, data: Evaluation, *, device: str, dtype: str) -> None:
    """Fail a run whose logits at a position depend on later tokens, or on other rows of the batch.

    Its loss would be a wrong number, and often the best one of the table. A pass has as many rows as a score has, so
    that a mixer cannot tell one from the other. Every pass starts from one random state,
    so that dropout is the same in all. Where the same tokens give other logits even so, nothing can be told: in
    evaluation mode that fails the run too, training mode goes untried.

    Args:
        model: tokens [B, T] to logits [B, T, V].
        data: a token set; its first rows are used.
        device, dtype: where, and in what precision.

    Raises:
        RunFailed: it leaks; names the first position.
    """
    tokens = torch.from_numpy(data.inputs[np.arange(ROWS) % len(data.inputs)]).to(device)

    def logits(of: Tensor) -> Tensor:
        seed_everything("leaks")
        with precision(device, dtype):
            found: Tensor = model(of)
        return found.float()

    with _undisturbed(model):
        for mode, cuts in CUTS.items():
            model.train(mode == "training")
            plain = logits(tokens)
            allowed = TOLERANCE[dtype] * float(plain.abs().max())
            shift = np.random.default_rng(0).integers(1, max(2, plain.shape[-1]), size=tokens.shape)
            others = (tokens + torch.from_numpy(shift).to(device)) % plain.shape[-1]
            reason = _across(logits, tokens, others, plain, allowed) or _ahead(
                logits, tokens, others, plain, allowed, cuts
            )
            if reason is None:
                continue
            if _first_moved(plain, logits(tokens), allowed) is None:
                raise RunFailed("leaks", f"{reason}, in {mode} mode")
            if mode == "evaluation":
                raise RunFailed("leaks", "the same tokens give other logits from call to call")


def _across(
    logits: Callable[[Tensor], Tensor], tokens: Tensor, others: Tensor, plain: Tensor, allowed: float
) -> str | None:
    row = torch.arange(ROWS, device=tokens.device)
    # Neighbours fall apart by the first, the first and the last row by both.
    for kept in (row % 2 == 0, row % 2 == 1, row < ROWS // 2, row >= ROWS // 2):
        moved = logits(torch.where(kept[:, None], tokens, others))
        position = _first_moved(plain[kept], moved[kept], allowed)
        if position is not None:
            return f"rows of a batch see each other: logits at position {position} depend on another row"
    return None


def _ahead(
    logits: Callable[[Tensor], Tensor], tokens: Tensor, others: Tensor, plain: Tensor, allowed: float, most: int
) -> str | None:
    length = tokens.shape[1]
    cuts = np.sort(np.random.default_rng(2).permutation(np.arange(1, length))[:most])
    later = torch.arange(length, device=tokens.device)
    for start in range(0, len(cuts), ROWS):
        # A last pass is filled up with rows whose every token stays: each pass has the shape of the plain one.
        chosen = [*cuts[start : start + ROWS].tolist(), *[length] * ROWS][:ROWS]
        cut = torch.tensor(chosen, device=tokens.device)[:, None]
        moved = logits(torch.where(later < cut, tokens, others))
        for row, end in enumerate(chosen):
            position = _first_moved(plain[row : row + 1, :end], moved[row : row + 1, :end], allowed)
            if position is not None:
                return f"it sees the future: logits at position {position} depend on tokens from {end} on"
    return None


def _first_moved(before: Tensor, after: Tensor, allowed: float) -> int | None:
    moved = (before - after).abs().amax((0, -1)) > allowed
    return int(moved.nonzero()[0]) if bool(moved.any()) else None


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Put the model's mode and buffers, and every stream of random numbers, back as they were."""
    training = model.training
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    streams = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        for name, buffer in model.named_buffers():
            if name in buffers and buffers[name].shape == buffer.shape:
                buffer.copy_(buffers[name])
        model.train(training)
