"""Searches small enough for a test: a tiny text, a tiny model, and a worker that may be killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import run
from harness.commands import tune as verb
from harness.experiment import Request
from harness.records import Store
from harness.tune.effort import Effort
from harness.tune.results import StudyResult, Trial, TuneResult, VariantResult
from harness.tune.studies import Terms
from tests import cli

SETS = {
    **dict(word.split("=") for word in cli.TINY if "=" in word),
    "train.steps": "10",
    "data.curve_points": "5",
}


def request(out: Path, *arms: str, **sets: str) -> Request:
    """What `tune` asks for; `train__steps="6"` sets a field."""
    more = {name.replace("__", "."): value for name, value in sets.items()}
    corpus = {"data.corpus": str(cli.text(out.parent))}
    return Request(name="tune", arms=arms, sets={**SETS, **corpus, **more}, cache=out / "cache")


def tune(out: Path, *arms: str, effort: Effort, workers: int = 1, notify: Any = None, **terms: Any) -> TuneResult:
    """A search."""
    told = notify or (lambda event: None)
    return verb.tune(request(out, *arms), effort, Terms(**terms), Store(out), workers=workers, notify=told)


def trials(result: TuneResult) -> list[list[tuple[Any, ...]]]:
    """What each study came to, less what a clock decides."""
    return [
        [(t.slot, t.state, dict(t.settings), t.value, dict(t.curve)) for t in study.trials]
        for variant in result.variants
        for study in variant.studies
    ]


def command(*words: str, out: Path, capsys: Any, monkeypatch: Any) -> tuple[int, str, str]:
    """`run.py` in this process, tiny sizes and a text included; exit code, stdout, stderr."""
    sizes = [part for name, value in SETS.items() for part in ("--set", f"{name}={value}")]
    data = () if "--data" in words else ("--data", str(cli.text(out.parent)))
    monkeypatch.setattr(sys, "argv", ["run.py", *words[:1], *data, "--out", str(out), *sizes, *words[1:]])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "140")
    code = run.main()
    stdout, stderr = capsys.readouterr()
    return code, stdout, stderr


def study(values: list[float | None], **more: Any) -> StudyResult:
    """A study whose trials ended with these losses; none is a failed trial."""
    ended = tuple(
        Trial(slot=slot, state="failed" if value is None else "done", settings={}, value=value, steps=8, curve={},
              status="diverged" if value is None else "", error="not finite" if value is None else None)
        for slot, value in enumerate(values)
    )  # fmt: skip
    fields: dict[str, Any] = {"name": "a", "trials": ended, "asked": len(ended), "steps": 8, "dims": ()}
    return StudyResult(**{**fields, **more})


def result(*variants: VariantResult, effort: Effort | None = None, workers: int = 1) -> TuneResult:
    """A search that found these."""
    return TuneResult(
        effort=effort or Effort(),
        variants=variants,
        corpus="text",
        preset="quick",
        journal="studies/x.journal",
        workers=workers,
    )
