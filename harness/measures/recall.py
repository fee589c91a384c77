"""Recall: the loss on tokens that repeat an earlier pair of neighbours, and on the rest.

A target is recalled where the pair (input, target) has stood before in the same sequence: what follows could be looked
up. All other targets have to be predicted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.config import RunConfig
from harness.data import IGNORED, Evaluation, Source
from harness.measures.finding import Finding, NotDefinedError
from harness.model import Decoder
from harness.train.evaluate import token_losses

NAME = "recall"
VERSION = 1


def repeats(data: Evaluation) -> NDArray[np.bool_]:
    """Which targets end a pair that has stood before in their row: [n, T]."""
    base = 1 + max(int(data.inputs.max()), int(data.targets.max()))
    # An ignored target takes part in no pair: each gets a number of its own, below every pair's.
    alone = -1 - np.arange(data.targets.shape[1])
    pairs = np.where(data.targets == IGNORED, alone, data.inputs * base + data.targets)
    found = np.ones(pairs.shape, dtype=bool)
    for row, first in zip(pairs, found, strict=True):
        first[np.unique(row, return_index=True)[1]] = False
    return found


def measure(model: Decoder, run: RunConfig, source: Source) -> Finding:
    """Both losses over the report split's evaluation.

    Raises:
        NotDefinedError: a loss is not finite.
    """
    data = source.evaluation("report", length=run.data.length, tokens=run.data.report_tokens)
    losses = token_losses(model, data, device=run.train.device, dtype=run.train.dtype)
    scored, again = data.targets != IGNORED, repeats(data)
    if not np.isfinite(losses[scored]).all():
        raise NotDefinedError("not finite: losses on the report split")
    recalled, new = losses[scored & again], losses[scored & ~again]
    return Finding(
        {
            "length_tokens": run.data.length,
            "recall_loss_nats": float(recalled.mean()) if recalled.size else float("nan"),
            "other_loss_nats": float(new.mean()) if new.size else float("nan"),
            "recall_tokens_percent": 100 * float((scored & again).sum() / scored.sum()),
        }
    )
