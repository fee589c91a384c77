"""The command line as a user runs it, on a text small enough for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TINY = [
    "--set", "model.num_layers=1", "--set", "model.model_dim=16", "--set", "model.num_heads=2",
    "--set", "model.mlp_dim=16", "--set", "train.steps=4", "--set", "train.batch_size=2", "--set", "data.length=16",
    "--set", "data.report_tokens=64", "--set", "data.curve_tokens=32", "--set", "data.curve_points=2",
]  # fmt: skip
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "140", "NO_COLOR": "1"}


def text(folder: Path) -> Path:
    """A corpus of its own: sentences of numbers."""
    file = folder / "text.txt"
    if not file.exists():
        file.write_text("".join(f"{n} sheep and {n * n % 97} goats stand on hill {n % 7}.\n" for n in range(2000)))
    return file


def arguments(verb: str, *names: str, out: Path, extra: tuple[str, ...] = ()) -> list[str]:
    """The whole command line of a tiny experiment."""
    return [sys.executable, "run.py", verb, *names, "--data", str(text(out.parent)), "--out", str(out), *TINY, *extra]


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """`run.py` with any words."""
    command = [sys.executable, "run.py", *words]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, **more)


def experiment(verb: str, *names: str, out: Path, extra: tuple[str, ...] = (), **more: Any) -> Any:
    """`run.py compare` or `ablate` at the size of a test."""
    return run(*arguments(verb, *names, out=out, extra=extra)[2:], **more)


def payload(done: subprocess.CompletedProcess[str]) -> Any:
    """What `--json` printed."""
    return json.loads(done.stdout)


def records(out: Path) -> dict[str, Any]:
    """Every run record of a results folder by file name, less what differs from one training to the next."""
    found = {}
    for file in sorted((out / "runs").glob("*.json")):
        content = json.loads(file.read_text())
        # The corpus is known by its fingerprint: the folder it lay in is a test's own.
        content["config"]["data"].pop("corpus")
        found[file.name] = {key: content[key] for key in ("id", "status", "metrics", "curve", "config")}
    return found
