"""Handmade studies: records as training would have written them, with losses that the test chooses."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import environment
from harness.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from harness.fields import resolved
from harness.records import ExperimentFile, ReferenceRecord, RunRecord, Store, TimingRecord

FINGERPRINT = "ab" * 32
BITS_A_NAT = 1 / math.log(2)
MACHINE = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "numpy": "2.4.0",
    "platform": "Linux x86_64",
    "cpu": "Example CPU @ 2.00GHz",
    "cores": 2,
    "memory_bytes": 8 << 30,
    "gpu": None,
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = ModelConfig(num_layers=2, model_dim=64, num_heads=4)
TRAIN = TrainConfig(steps=240, batch_size=8, learning_rate=1e-2, threads=1, device="cpu", backend="sdpa")
DATA = DataConfig(length=128, report_tokens=65_536)

Outcome = float | str | None
"""A loss in nats; `status: reason` for a run that failed; None for one that has not run."""


def run_config(label: str, seed: int, **train: Any) -> RunConfig:
    """The run of an arm at a seed."""
    return RunConfig(
        variant="lazy" if label.startswith("lazy") else "softmax",
        mixer={"label": label},
        model=MODEL,
        train=replace(TRAIN, seed=seed, **train),
        data=DATA,
        fingerprint=FINGERPRINT,
    )


def run_id(label: str, seed: int) -> str:
    """The id of an arm's run."""
    return run_config(label, seed).id


def run_record(label: str, seed: int, outcome: float | str, **changes: Any) -> RunRecord:
    """The record of an arm at a seed that ended with a loss, or failed."""
    run = run_config(label, seed)
    ok = not isinstance(outcome, str)
    status, _, reason = ("ok", "", "") if ok else outcome.partition(": ")
    values: dict[str, Any] = {
        "id": run_id(label, seed),
        "status": status,
        "error": reason or None,
        "config": run.to_dict(),
        "backend": "sdpa",
        "parameters": 115_264 + 4_104 * ("lazy" in label),
        "metrics": {"val_loss_nats": outcome, "val_bits_per_byte": outcome * BITS_A_NAT} if ok else {},
        "curve": [],
        "environment": dict(MACHINE),
        "commit": COMMIT,
        "dirty": False,
        "code_hash": _code_hash(run.variant),
        "started": "2025-01-01T00:00:00+00:00",
        "seconds": 12.5,
    }
    return RunRecord(**(values | changes))


_code_hash = functools.cache(environment.code_hash)


def experiment(arms: Sequence[str], seeds: int, same: Mapping[str, str], **changes: Any) -> ExperimentFile:
    """The index of a study; the first arm is the baseline."""
    values: dict[str, Any] = {
        "name": "parts",
        "key": "0a1b2c3d",
        "question": "Which part lowers the loss?",
        "expectation": "The bias helps a little.",
        "metric": "val_loss_nats",
        "baseline": arms[0],
        "seeds": list(range(seeds)),
        "corpus": {
            "name": "kjv",
            "sha256": FINGERPRINT,
            "tokenizer": "bytes",
            "description": "kjv, bytes; bytes: train 3,900,000, selection 200,000, report 200,000",
        },
        "settings": {
            "preset": "quick",
            "model": resolved(MODEL),
            "train": resolved(TRAIN),
            "data": resolved(DATA),
        },
        "arms": [
            {
                "label": label,
                "variant": run_config(label, 0).variant,
                "config": {"positions": "rope"},
                "backend": "sdpa",
                "same_as": same.get(label),
                "equal_function": None,
                "ids": [run_id(label, seed) for seed in range(seeds)],
                "timing": label,
            }
            for label in arms
        ],
        "timing": "f00d",
    }
    return ExperimentFile(**(values | changes))


def study(
    folder: Path,
    outcomes: Mapping[str, Sequence[Outcome]],
    *,
    same: Mapping[str, str] = {},
    extras: bool = True,
    **changes: Any,
) -> tuple[ExperimentFile, Store]:
    """A store with the runs of a study, its timings and its trivial rows.

    Args:
        folder: results folder.
        outcomes: arm -> one outcome a seed; the first arm is the baseline.
        same: arm -> earlier arm of the same function.
        extras: timings and trivial rows too.
        changes: fields of the experiment's file.
    """
    store = Store(folder)
    for label, cells in outcomes.items():
        for seed, outcome in enumerate(cells):
            if outcome is not None:
                store.write_run(run_record(label, seed, outcome))
    index = experiment(list(outcomes), max(map(len, outcomes.values())), same, **changes)
    store.write_experiment(index)
    if extras:
        arms = {
            label: {"step_ms": 20.0 + 1.25 * n, "quartiles_ms": [19.0, 30.0], "peak_memory_bytes": (40 + n) << 20}
            for n, label in enumerate(outcomes)
        }
        started = "2025-01-01T00:00:00+00:00"
        store.write_timing(
            TimingRecord(key="f00d", machine="cafe", environment=dict(MACHINE), arms=arms, started=started, seconds=9.0)
        )
        trivial = {"uniform": 8.0, "order-0": 4.5, "order-1": 3.6, "xz": 2.4}
        rows = [
            {"name": name, "nats_per_token": bits / BITS_A_NAT, "bits_per_byte": bits} for name, bits in trivial.items()
        ]
        store.write_reference(
            ReferenceRecord(fingerprint=FINGERPRINT, length=DATA.length, tokens=DATA.report_tokens, rows=rows)
        )
    return index, store


PARTS: dict[str, list[Outcome]] = {
    "softmax": [2.051, 2.064, 2.043, 2.058, 2.049],
    "flash": [2.051, 2.064, 2.043, 2.058, 2.049],
    "lazy": [2.121, 2.136, 2.112, 2.129, 2.119],
    "lazy[elastic=off]": [2.013, 2.027, 2.007, 2.019, 2.011],
    "lazy[bias=off]": [2.057, 2.064, 2.041, 2.064, 2.054],
    "lazy[bias=off,elastic=off]": [2.0512, 2.0641, 2.0429, 2.0580, 2.0491],
}
"""A table with every common verdict: same function, worse, better, not resolved, equal."""

SAME = {"flash": "softmax"}
