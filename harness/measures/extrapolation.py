"""Length extrapolation: the loss past the training length, by position.

    loss at positions (0, T/4], (T/4, T/2], ... up to 8T in sequences of 8T tokens, T the training length,
    and the mean loss of sequences of T, 2T, 4T and 8T tokens

Nothing is changed for the longer sequences: rotary angles go on, a table over distance ends at its end, tau is divided
by the keys there are, and a bias that was made from the training length keeps that value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.config import RunConfig
from harness.data import IGNORED, Evaluation, Source
from harness.errors import DataError
from harness.measures.finding import Finding, NotDefinedError
from harness.model import Decoder
from harness.train.evaluate import token_losses

NAME = "extrapolation"
VERSION = 1

FACTORS = (1, 2, 4, 8)
SEQUENCES = 16
"""Sequences of the longest length; shorter ones are as many as hold the same number of tokens."""

PAIRS_AT_ONCE = 1 << 21
"""Query-key pairs of one pass: bounds its memory at any length."""


def why_not(run: RunConfig) -> str | None:
    """Why a model cannot be run past its training length, None where it can."""
    if run.model.positions == "learned":
        return f"learned positions end at the training length, {run.data.length} tokens"
    return None


def measure(model: Decoder, run: RunConfig, source: Source) -> Finding:
    """Losses on the report split at each length that the split has tokens for.

    Raises:
        NotDefinedError: the model cannot read more tokens than it was trained on, the split is too small even for
            sequences of that length, or no loss is finite.
    """
    reason = why_not(run)
    if reason is not None:
        raise NotDefinedError(reason)
    trained = run.data.length
    values: dict[str, Any] = {"training_length_tokens": trained, "factors": [], "loss_nats_by_factor": []}
    arrays: dict[str, NDArray[Any]] = {}
    for factor in FACTORS:
        try:
            data = source.evaluation("report", length=factor * trained, tokens=SEQUENCES * FACTORS[-1] * trained)
            losses, scored = _losses(model, run, data), data.targets != IGNORED
            if not np.isfinite(losses[scored]).all():
                raise NotDefinedError("not finite: losses on the report split")
        except (DataError, NotDefinedError) as error:
            why = _too_small(error, trained) if isinstance(error, DataError) else str(error)
            if not values["factors"]:
                raise NotDefinedError(why) from error
            values["not_measured"] = f"{factor} times the training length: {why}"
            break
        values["factors"].append(factor)
        values["loss_nats_by_factor"].append(float(losses[scored].mean()))
        values[f"loss_nats_at_{factor}x"] = values["loss_nats_by_factor"][-1]
        for name, mask in data.groups.items():
            values.setdefault(f"{name}_loss_nats_by_factor", []).append(_mean(losses[mask & scored]))
        ends = _bucket_ends(factor, trained)
        arrays = {"bucket_ends": ends, "loss": _by_bucket(losses, scored, ends)}
        arrays |= {f"{name}_loss": _by_bucket(losses, mask & scored, ends) for name, mask in data.groups.items()}
    return Finding(values, arrays)


def _losses(model: Decoder, run: RunConfig, data: Evaluation) -> NDArray[np.float64]:
    length = data.inputs.shape[1]
    rows = max(1, PAIRS_AT_ONCE // length**2)
    parts = []
    for start in range(0, len(data.inputs), rows):
        part = slice(start, start + rows)
        block = Evaluation(data.inputs[part], data.targets[part], data.target_bytes[part])
        parts.append(token_losses(model, block, device=run.train.device, dtype=run.train.dtype))
    return np.concatenate(parts)


def _bucket_ends(factor: int, trained: int) -> NDArray[np.int64]:
    quarters = np.arange(1, 4 * factor + 1, dtype=np.int64) * trained // 4
    return np.unique(quarters[quarters > 0])


def _by_bucket(losses: NDArray[np.float64], members: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    starts = np.concatenate([[0], ends[:-1]])
    chosen = [(losses[:, low:high], members[:, low:high]) for low, high in zip(starts, ends, strict=True)]
    return np.array([_mean(part[inside]) for part, inside in chosen])


def _mean(losses: NDArray[np.float64]) -> float:
    return float(losses.mean()) if losses.size else float("nan")


def _too_small(error: DataError, trained: int) -> str:
    # What the source advises is about training; a smaller evaluation does not shrink this one.
    said, times = str(error).partition(";")[0], SEQUENCES * FACTORS[-1]
    return (
        f"{said}; needed are {SEQUENCES} x {FACTORS[-1]} x data.length = {times * trained:,} tokens of the report "
        "split: train on a longer text (--data), or on shorter sequences (--set data.length=N)"
    )
