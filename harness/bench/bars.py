"""What the project holds its own speed to, and whether a result keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A figure that rows are held to; the worst of them counts.

    Args:
        what: in words.
        most: the largest value allowed.
        value: of a row; None where the bar is not about it.
        unit: of the value.
    """

    what: str
    most: float
    value: Callable[[Row], float | None]
    unit: str = ""


def _ratio(
    name: str,
    part: str,
    *,
    backend: str | None = None,
    shape: str | None = None,
    least: int = 0,
    against: str = "softmax sdpa",
    dtype: str = "float32",
) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        fits = (
            row["name"].startswith(name)
            and row["pass"] == part
            and row["dtype"] == dtype
            and (backend is None or row["backend"] == backend)
            and (shape is None or row["shape"] == shape)
            and (not least or (length(row) or 0) >= least)
            and row["against"].startswith(against)
        )
        return row["ratio"] if fits else None

    return value


def length(row: Row) -> int | None:
    """Tokens of a row's shape."""
    found = re.search(r"\bT(\d+)\b", row["shape"])
    return int(found[1]) if found else None


def _extra_memory(row: Row) -> float | None:
    """MiB beyond inputs, output and gradients."""
    if row["name"] != "lazy" or (length(row) or 0) < 16_384 or row["peak_memory_bytes"] is None:
        return None
    entries = 1
    for size in re.findall(r"[BHTD](\d+)", row["shape"]):
        entries *= int(size)
    # The output and the gradients of q, k and v; those of the table and of tau are too small to count.
    return float((row["peak_memory_bytes"] - 4 * 4 * entries) / MIB)


_PASS = "forward+backward"
BARS = (
    Bar(
        what="lazy, forward + backward, B1 H8 T4096 D64, over fused softmax",
        most=1.15,
        value=_ratio("lazy", _PASS, backend="blocked", shape="B1 H8 T4096 D64"),
    ),
    Bar(
        what="lazy, forward + backward, B2 H8 T1024 D64, over fused softmax",
        most=1.25,
        value=_ratio("lazy", _PASS, backend="blocked", shape="B2 H8 T1024 D64"),
    ),
    Bar(
        what="lazy, forward + backward, B8 H4 T256 D32, over fused softmax",
        most=1.6,
        value=_ratio("lazy", _PASS, backend="blocked", shape="B8 H4 T256 D32"),
    ),
    Bar(
        what="lazy, forward, B1 H8 T4096 D64, over fused softmax",
        most=1.3,
        value=_ratio("lazy", "forward", backend="blocked", shape="B1 H8 T4096 D64"),
    ),
    Bar(
        what="lazy, forward + backward, T4096, nine blocks in ten zero, over fused softmax",
        most=0.9,
        value=_ratio("lazy, ", _PASS),
    ),
    Bar(what="lazy, T16384: memory beyond inputs, output and gradients", most=64, value=_extra_memory, unit="MiB"),
    Bar(
        what="sigmoid, forward + backward, T >= 1024, over fused softmax",
        most=1.1,
        value=_ratio("sigmoid", _PASS, backend="blocked", least=1024),
    ),
    Bar(
        what="stick-breaking, forward + backward, T >= 1024, over fused softmax",
        most=2.0,
        value=_ratio("stick_breaking", _PASS, backend="blocked", least=1024),
    ),
    Bar(
        what="Mamba block, forward + backward, over mambapy",
        most=0.25,
        value=_ratio("mamba", "block", against="mambapy"),
    ),
    Bar(
        what="training step of the harness over a bare loop",
        most=1.03,
        value=_ratio("softmax", "step", against="bare loop"),
    ),
    Bar(
        what="softmax training step over transformers' Llama",
        most=0.85,
        value=_ratio("softmax", "step", against="Llama"),
    ),
    Bar(what="bfloat16 training step over float32", most=0.75, value=_ratio("softmax", "step", dtype="bfloat16")),
    Bar(
        what="quick comparison, 2 workers with a thread each over 1 with two",
        most=0.85,
        value=_ratio("2 workers", "compare", against="1 worker"),
    ),
    Bar(what="Mamba decode step, context 4096 over 256", most=1.1, value=_ratio("mamba", "decode", against="mamba")),
)


def judged(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Each bar that the rows speak of: `what`, `bar`, `unit`, `measured` (the worst row) and `met`."""
    found = []
    rows = list(rows)
    for bar in BARS:
        values = [value for row in rows if (value := bar.value(row)) is not None]
        if bar.what.startswith("Mamba decode"):
            values = values[1:]
        if values:
            worst = max(values)
            found.append(
                {"what": bar.what, "bar": bar.most, "unit": bar.unit, "measured": worst, "met": worst <= bar.most}
            )
    return found
