"""A result beside an earlier one: ratios, which two machines may share, and never times, which they do not."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError

KEYS = ("name", "shape", "dtype", "pass", "backend", "against")


def load(path: Path) -> dict[str, Any]:
    """A result that `--json` printed, every key that a comparison reads checked.

    Raises:
        UsageError: the file holds none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    # Lists in lists by the thousand are beyond the parser.
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--against {path}: no result of bench ({type(error).__name__}: {error})") from error
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f"--against {path}: no result of bench, which has a list of rows; give what --json printed")
    for place, row in enumerate(rows):
        fault = _fault(row)
        if fault:
            raise UsageError(f"--against {path}: row {place} {fault}; give what --json printed")
    return dict(found)


def _fault(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "is no object"
    for key in KEYS:
        if not isinstance(row.get(key), str):
            return f"has no text under {key!r}"
    if "ratio" not in row:
        return "has no 'ratio'"
    ratio = row["ratio"]
    # type(): a truth value is an int too. The last bound: a whole number of JSON may be larger than any float.
    fits = ratio is None or (type(ratio) in (int, float) and 0 <= ratio <= sys.float_info.max)
    return None if fits else "has a 'ratio' that is neither null nor a number of at least 0"


def against(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows that both results have, with the ratio of then, of now, and now over then, the largest change first.

    Half the ratio and twice the ratio are changes of one size.
    """
    earlier = {_key(row): row["ratio"] for row in then["rows"]}
    found = []
    for row in now["rows"]:
        before, after = earlier.get(_key(row)), row["ratio"]
        # A row that is held against itself says nothing.
        if before and after and not before == after == 1.0:
            words = {key: row[key] for key in KEYS}
            found.append({**words, "then": before, "now": after, "change": after / before})
    return sorted(found, key=lambda row: abs(math.log(row["now"]) - math.log(row["then"])), reverse=True)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in KEYS)
