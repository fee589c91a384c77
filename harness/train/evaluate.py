"""Loss on a fixed token set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from harness.data import IGNORED, Evaluation

ROWS = 32
"""Sequences of one forward pass; fixed, so that a score does not depend on the training batch."""


@dataclass(frozen=True)
class Score:
    """What a model reached on a token set.

    Args:
        nats: mean loss in nats per token.
        bits_per_byte: the same text in bits per byte.
        groups: mean loss in nats per token of each group of the set.
    """

    nats: float
    bits_per_byte: float
    groups: dict[str, float] = field(default_factory=dict)


@contextmanager
def precision(device: str, dtype: str) -> Iterator[None]:
    """Autocast to bfloat16 where a run asks for it."""
    with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
        yield


@torch.no_grad()
def token_losses(model: nn.Module, data: Evaluation, *, device: str, dtype: str) -> np.ndarray[Any, Any]:
    """Loss of every target in nats, float64 [n, T]; 0 where the target is ignored."""
    training = model.training
    model.eval()
    rows = []
    for start in range(0, len(data.inputs), ROWS):
        inputs = torch.from_numpy(data.inputs[start : start + ROWS]).to(device)
        targets = torch.from_numpy(data.targets[start : start + ROWS]).to(device)
        with precision(device, dtype):
            logits = model(inputs)
        losses = F.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
        )
        rows.append(losses.view(targets.shape).double().cpu().numpy())
    model.train(training)
    return np.concatenate(rows)


def evaluate(model: nn.Module, data: Evaluation, *, device: str, dtype: str) -> Score:
    """Mean loss over the targets of a token set that are not ignored.

    Args:
        model: tokens [B, T] to logits [B, T, V].
        data: the token set.
        device, dtype: where and in what precision.

    Returns:
        The score; not finite where a logit is not.
    """
    losses = token_losses(model, data, device=device, dtype=dtype)
    scored = data.targets != IGNORED
    total = float(losses[scored].sum())
    size = float(data.target_bytes[scored].sum())
    groups = {name: float(losses[mask & scored].mean()) for name, mask in data.groups.items()}
    return Score(total / int(scored.sum()), total / math.log(2) / size if size else math.nan, groups)
