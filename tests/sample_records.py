"""Records and child processes that the tests of the records share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config import RunConfig
from harness.records import (
    ExperimentFile,
    MeasurementRecord,
    Record,
    ReferenceRecord,
    RunRecord,
    TimingRecord,
)

ROOT = Path(__file__).resolve().parent.parent


def run_record(**changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "id": RunConfig(variant="softmax", mixer={"rope": True}).id,
        "status": "ok",
        "config": RunConfig(variant="softmax", mixer={"rope": True}).to_dict(),
        "backend": "sdpa",
        "parameters": 12,
        "metrics": {"val_loss_nats": 1.25},
        "curve": [{"step": 1, "loss": 2.0}],
        "environment": {"cores": 2},
        "commit": None,
        "dirty": None,
        "code_hash": "c0de",
        "started": "2025-01-01T00:00:00+00:00",
        "seconds": 0.5,
    }
    return RunRecord(**(values | changes))


def timing_record(**changes: Any) -> TimingRecord:
    arm = {"step_ms": 2.5, "quartiles_ms": [2.0, 3.0], "peak_memory_bytes": None}
    values: dict[str, Any] = {
        "key": "arms1-m1",
        "machine": "m1",
        "environment": {},
        "arms": {"softmax": arm},
        "started": "2025-01-01T00:00:00+00:00",
        "seconds": 3.0,
    }
    return TimingRecord(**(values | changes))


def reference_record(**changes: Any) -> ReferenceRecord:
    row = {"name": "uniform", "nats_per_token": 5.5, "bits_per_byte": 8.0}
    return ReferenceRecord(**({"fingerprint": "ffee", "length": 128, "tokens": 512, "rows": [row]} | changes))


def measurement_record(**changes: Any) -> MeasurementRecord:
    values: dict[str, Any] = {
        "run": "00aa",
        "measure": "sink",
        "version": 1,
        "step": 7,
        "values": {"sink_share": 0.5},
    }
    return MeasurementRecord(**(values | changes))


def experiment_file(**changes: Any) -> ExperimentFile:
    arm = {
        "label": "softmax",
        "variant": "softmax",
        "config": {},
        "backend": "sdpa",
        "same_as": None,
        "equal_function": None,
        "ids": ["00aa"],
        "timing": "softmax",
    }
    values: dict[str, Any] = {
        "name": "compare",
        "key": "ab12",
        "question": "?",
        "expectation": "",
        "metric": "val_loss_nats",
        "baseline": "softmax",
        "seeds": [0],
        "settings": {"preset": "quick"},
        "arms": [arm],
        "corpus": {"name": "kjv", "sha256": "ffee", "description": "", "tokenizer": "bytes"},
    }
    return ExperimentFile(**(values | changes))


def one_of_each() -> list[Record]:
    return [run_record(), timing_record(), reference_record(), measurement_record(), experiment_file()]


def child(script: str, *arguments: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Another process that runs a script with the harness and this folder to import from."""
    paths = f"import sys; sys.path[:0] = {[str(ROOT), str(Path(__file__).parent)]!r}\n"
    command = [*before, sys.executable, "-c", paths + script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a child prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str = "go") -> None:
    """A line for a child that waits for one."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> list[str]:
    """What else a child prints, after its input has ended; it must have gone well."""
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return rest.split()
