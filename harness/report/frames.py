"""The numbers of a table without any form: flat, a line an arm, and as a data frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.records import ReferenceRow
from harness.report.rows import Result, Row
from harness.statistics import Interval

if TYPE_CHECKING:
    import pandas

_TEXT, _WHOLE, _REAL = "string", "Int64", "Float64"


def types_of(metric: str) -> dict[str, str]:
    """Columns of the flat table in their order, each with its pandas type."""
    bounds = ("mean", "low", "high")
    return {
        "arm": _TEXT,
        "kind": _TEXT,
        "variant": _TEXT,
        "parameters": _WHOLE,
        "seeds": _WHOLE,
        "n": _WHOLE,
        "failed": _WHOLE,
        "missing": _WHOLE,
        **{f"{metric}_{bound}": _REAL for bound in bounds},
        **{f"val_bits_per_byte_{bound}": _REAL for bound in bounds},
        **{f"difference_{bound}": _REAL for bound in bounds},
        "p": _REAL,
        "resolvable": _REAL,
        "verdict": _TEXT,
        "same_as": _TEXT,
        "step_ms": _REAL,
        "peak_memory_bytes": _WHOLE,
        "backend": _TEXT,
        "stale": _WHOLE,
        "records": _TEXT,
    }


def flat(row: Row, metric: str) -> dict[str, Any]:
    """One arm as plain values; None where there is none, infinite bounds included.

    Args:
        row: of a table.
        metric: the table's primary metric, which names the columns of the value.
    """
    values: dict[str, Any] = {
        "arm": row.label,
        "kind": "arm",
        "variant": row.variant,
        "parameters": row.parameters,
        "seeds": len(row.seeds),
        "n": row.n,
        "failed": row.failed,
        "missing": row.missing,
        **_bounds("val_bits_per_byte", row.bits_per_byte),
        **_bounds(metric, row.value),
        **_bounds("difference", row.difference),
        "p": row.p,
        "resolvable": row.resolvable,
        "verdict": row.verdict,
        "same_as": row.same_as,
        "step_ms": row.step_ms,
        "peak_memory_bytes": row.peak_memory_bytes,
        "backend": row.backend,
        "stale": row.stale,
        "records": " ".join(row.record_ids),
    }
    return {name: number(values[name]) for name in types_of(metric)}


def flat_reference(row: ReferenceRow, metric: str) -> dict[str, Any]:
    """One trivial row in the columns of `flat`; those that mean nothing for it hold None."""
    values = {
        "arm": row["name"],
        "kind": "reference",
        "val_loss_nats_mean": row["nats_per_token"],
        "val_bits_per_byte_mean": row["bits_per_byte"],
    }
    return {name: number(values.get(name)) for name in types_of(metric)}


def frame(result: Result) -> pandas.DataFrame:
    """The table as a data frame, a row an arm, raw numbers with units in the names of their columns.

    Returns:
        Nullable types: `string`, `Int64`, `Float64`; an infinite bound and what does not exist are missing.
    """
    import pandas

    metric = result.experiment.metric
    lines = [flat(row, metric) for row in result.arms]
    plain = pandas.DataFrame(lines, columns=list(types_of(metric)), dtype=object)
    found: pandas.DataFrame = plain.astype(types_of(metric))
    return found


def number(value: Any) -> Any:
    """The value, None for a number that is not finite: JSON and CSV have no other word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bounds(name: str, interval: Interval | None) -> Mapping[str, float | None]:
    bounds = (interval.mean, interval.low, interval.high) if interval else (None, None, None)
    return dict(zip((f"{name}_mean", f"{name}_low", f"{name}_high"), bounds, strict=True))
