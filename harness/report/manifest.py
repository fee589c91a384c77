"""What lies in a results folder, in one file: of each experiment its question, command, runs, tables and verdicts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from harness.records import ExperimentFile, RunRecord, Store, write_whole
from harness.report.build import result
from harness.report.columns import DIGITS
from harness.report.formats import fixed, half, signed
from harness.report.rows import Result, Row

NAME = "manifest.json"


def write_manifest(store: Store) -> Path:
    """Write `manifest.json` into a results folder.

    Returns:
        The file.

    Raises:
        RecordError: a record does not fit its experiment, or the file cannot be written.
    """
    path = store.root / NAME
    write_whole(path, manifest(store).encode())
    return path


def manifest(store: Store) -> str:
    """The same folder gives the same text, byte for byte."""
    entries = {experiment.stem: _entry(experiment, store) for experiment in store.all_experiments()}
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def _entry(experiment: ExperimentFile, store: Store) -> dict[str, Any]:
    table = result(experiment, store, present=False)
    records = [record for row in table.arms for record in row.records if record is not None]
    return {
        "question": experiment.question,
        "expectation": experiment.expectation,
        "metric": experiment.metric,
        "command": experiment.command,
        "verdict": verdict(table),
        "tables": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(store.tables.glob(f"{experiment.stem}.*"))
            if path.suffix in (".md", ".csv")
        },
        "runs": list(dict.fromkeys(record.id for record in records)),
        "hours": round(sum({record.id: record.seconds for record in records}.values()) / 3600, 3),
        "machines": sorted({_machine(record) for record in records}),
        "commits": sorted({str(record.commit) for record in records}),
    }


def verdict(table: Result) -> str:
    """What a table found, in a sentence."""
    if table.floor is not None:
        return "; ".join(table.notes)
    words = [_word(row) for row in table.arms if row.tested]
    return f"against {table.baseline.label}: {', '.join(words)}" if words else "nothing was tested"


def _word(row: Row) -> str:
    if row.difference is None:
        return f"{row.label} {row.verdict}"
    return f"{row.label} {row.verdict} ({signed(row.difference.mean, DIGITS)} ± {fixed(half(row.difference), DIGITS)})"


def _machine(record: RunRecord) -> str:
    where = record.environment
    return f"{where.get('cpu')}, {where.get('cores')} cores, torch {where.get('torch')}"
