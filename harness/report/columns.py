"""The columns of the table, once: what each shows, in which form, and what goes first where room is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.formats import chance, count, fixed, intervals, mebibytes
from harness.report.rows import Result, Row
from harness.report.sizes import unmatched
from harness.statistics import Interval

STALE = "†"
"""Stands behind the name of an arm whose records were made by other code."""

DIGITS = 4
"""Decimals of a loss: one more than the margin of the verdicts has."""

_METRICS = {
    "val_loss_nats": ("loss", "nats/token"),
    "trigger_loss_nats": ("trigger loss", "nats/token"),
    "val_bits_per_byte": ("loss", "bits/byte"),
}

ALL_BYTES = {"trigger_loss_nats": "per byte, all targets"}
"""Unit of the bits where they cover more targets than the metric beside them."""


@dataclass(frozen=True)
class Column:
    """One column with its cells.

    Args:
        title, unit: its head.
        rank: columns of a high rank are the first to go where room is short; 0 always stays.
        cells: of the arms, then of the trivial rows; numbers are padded so that their points stand below each other.
        breaks: characters behind which a cell may go on in a further line; none for numbers.
        tight: more of them, used only where loss and difference would find no room otherwise.
        numeric: numbers stand at the right.
    """

    title: str
    unit: str
    rank: int
    cells: tuple[str, ...]
    breaks: str = ""
    tight: str = ""
    numeric: bool = True

    @property
    def head(self) -> str:
        """Title and unit in one line."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def metric_name(metric: str) -> tuple[str, str]:
    """Title and unit of the primary metric."""
    return _METRICS.get(metric, (metric, ""))


def columns(result: Result) -> list[Column]:
    """The columns of a table in their order."""
    rows, trivial = result.arms, len(result.references)
    blank = ("",) * trivial
    title, unit = metric_name(result.experiment.metric)
    # Where seeds failed, how many is worth more than p.
    failures = 3 if any(row.failed for row in rows) else 6
    apart = unmatched(result.experiment)
    names = tuple(row.label + f" {STALE}" * bool(row.stale) + " (unmatched)" * (row.label in apart) for row in rows)
    names += tuple(row["name"] for row in result.references)

    def numbers(title: str, unit: str, rank: int, cells: Sequence[str]) -> Column:
        return Column(title, unit, rank, (*cells, *blank))

    return [
        Column("arm", "", 0, names, breaks=", ", tight="[", numeric=False),
        numbers("parameters", "", 4, [count(row.parameters) for row in rows]),
        Column(title, unit, 2, tuple(intervals(_losses(result), DIGITS))),
        Column("bits", ALL_BYTES.get(result.experiment.metric, "per byte"), 8, tuple(_bits(result))),
        numbers("difference", unit, 1, intervals([row.difference for row in rows], DIGITS, sign=True)),
        numbers("p", "", 5, [chance(row.p) for row in rows]),
        Column("verdict", "", 0, (*(row.verdict for row in rows), *blank), tight=" ", numeric=False),
        numbers("step", "ms", 9, [fixed(row.step_ms, 1) for row in rows]),
        numbers("memory", "MiB", 10, [mebibytes(row.peak_memory_bytes) for row in rows]),
        Column("backend", "", 11, (*(row.backend for row in rows), *blank), numeric=False),
        numbers("failed", "seeds", failures, [_failed(row) for row in rows]),
    ]


def _losses(result: Result) -> list[Interval | None]:
    trivial = [
        Interval(row["nats_per_token"], -math.inf, math.inf) if result.experiment.metric == "val_loss_nats" else None
        for row in result.references
    ]
    return [*(row.value for row in result.arms), *trivial]


def _bits(result: Result) -> list[str]:
    means = [row.bits_per_byte.mean if row.bits_per_byte else None for row in result.arms]
    return [fixed(mean, DIGITS) for mean in (*means, *(row["bits_per_byte"] for row in result.references))]


def _failed(row: Row) -> str:
    return f"{row.failed} of {len(row.seeds) - row.missing}"
