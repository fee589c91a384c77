"""A result beside an earlier one: ratios, which two machines may share, and never times, which they do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError

KEYS = ("name", "shape", "dtype", "pass", "backend", "against")


def load(path: Path) -> dict[str, Any]:
    """A result that `--json` printed.

    Raises:
        UsageError: the file holds none.
    """
    try:
        found = json.loads(path.read_text())
        rows = found["rows"]
        complete = all(key in row for row in rows for key in (*KEYS, "ratio"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--against {path}: no result of bench ({type(error).__name__}: {error})") from error
    if not complete:
        raise UsageError(f"--against {path}: its rows lack one of {', '.join((*KEYS, 'ratio'))}")
    return dict(found)


def against(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows that both results have, with the ratio of then, of now, and now over then, the largest change first."""
    earlier = {_key(row): row["ratio"] for row in then["rows"]}
    found = []
    for row in now["rows"]:
        before, after = earlier.get(_key(row)), row["ratio"]
        # A row that is held against itself says nothing.
        if before and after and not before == after == 1.0:
            words = {key: row[key] for key in KEYS}
            found.append({**words, "then": before, "now": after, "change": round(after / before, 4)})
    return sorted(found, key=lambda row: abs(row["change"] - 1), reverse=True)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in KEYS)
