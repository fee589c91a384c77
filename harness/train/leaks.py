"""Does a trained model cheat? Two passes over real text tell, at the price of one batch."""

from __future__ import annotations

import torch
from torch import nn

from harness.data import Evaluation
from harness.errors import RunFailed

TOLERANCE = 1e-3
"""Logits may move by that share of the largest one: a kernel may round a row otherwise, and no more."""


@torch.no_grad()
def refuse_leaks(model: nn.Module, data: Evaluation, *, device: str) -> None:
    """Fail a run whose logits at a position depend on later tokens, or on other rows of the batch.

    Its loss would be a wrong number, and often the best one of the table.

    Args:
        model: tokens [B, T] to logits [B, T, V].
        data: a token set; its first and last row are used.
        device: where the model is.

    Raises:
        RunFailed: it leaks; names the first position.
    """
    training = model.training
    model.eval()
    tokens = torch.from_numpy(data.inputs[[0, -1]]).to(device)
    plain = model(tokens)
    half = tokens.shape[1] // 2
    later = tokens.clone()
    later[:, half:] = later[:, half:].roll(1, dims=1).flip(0)
    other = tokens.clone()
    other[1] = tokens[1].flip(0)
    ahead = _first_moved(plain[:, :half], model(later)[:, :half], plain)
    across = _first_moved(plain[:1], model(other)[:1], plain)
    model.train(training)
    if ahead is not None:
        raise RunFailed("leaks", f"it sees the future: logits at position {ahead} depend on tokens from {half} on")
    if across is not None:
        raise RunFailed("leaks", f"rows of a batch see each other: logits at position {across} depend on another row")


def _first_moved(before: torch.Tensor, after: torch.Tensor, scale: torch.Tensor) -> int | None:
    moved = (before - after).abs().amax(-1).amax(0) > TOLERANCE * float(scale.abs().max())
    return int(moved.nonzero()[0]) if bool(moved.any()) else None
