"""What the project holds its own speed to on two cores of a CPU, and whether a result keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
MIB = 2**20
FORWARD, BOTH = "forward", "forward+backward"


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


def length(row: Row) -> int | None:
    """Tokens of a row's shape."""
    found = re.search(r"\bT(\d+)\b", row["shape"])
    return int(found[1]) if found else None


def _ratio(
    what: str,
    most: float,
    name: str,
    part: str,
    *,
    against: str,
    least: int = 0,
    dtype: str = "float32",
    **exactly: str,
) -> Bar:
    """A bar on the ratio of rows: `name` is a pattern of theirs, `against` how what they are held against begins."""

    def value(row: Row) -> float | None:
        fits = (
            re.fullmatch(name, row["name"])
            and row["against"].startswith(against)
            and all(row[key] == word for key, word in {**exactly, "pass": part, "dtype": dtype}.items())
            and (length(row) or 0) >= least
        )
        return row["ratio"] if fits else None

    return Bar(what=what, most=most, value=value)


def _core(what: str, most: float, name: str, part: str = BOTH, *, shape: str = "", least: int = 0) -> Bar:
    words = f"{what}, {part.replace('+', ' + ')}, {shape or f'T >= {least}'}, over fused softmax"
    exactly = {"backend": "blocked", **({"shape": shape} if shape else {})}
    return _ratio(words, most, name, part, against="softmax sdpa", least=least, **exactly)


def _extra_memory(row: Row) -> float | None:
    """MiB beyond inputs, output and gradients."""
    if row["name"] != "lazy" or (length(row) or 0) < 16_384 or row["peak_memory_bytes"] is None:
        return None
    entries = 1
    for size in re.findall(r"[BHTD](\d+)", row["shape"]):
        entries *= int(size)
    # The output and the gradients of q, k and v; those of the table and of tau are too small to count.
    return float((row["peak_memory_bytes"] - 4 * 4 * entries) / MIB)


LONG = "B1 H8 T4096 D64"
BARS = (
    _core("lazy", 1.15, "lazy", shape=LONG),
    _core("lazy", 1.25, "lazy", shape="B2 H8 T1024 D64"),
    _core("lazy", 1.6, "lazy", shape="B8 H4 T256 D32"),
    _core("lazy", 1.3, "lazy", FORWARD, shape=LONG),
    _core("lazy, nine blocks in ten zero", 0.9, "lazy, .*", shape=LONG),
    Bar(what="lazy, T16384: memory beyond inputs, output and gradients", most=64, value=_extra_memory, unit="MiB"),
    _core("sigmoid", 1.1, "sigmoid", least=1024),
    _core("stick-breaking", 2.0, "stick_breaking", least=1024),
    _ratio("Mamba block, forward + backward, over mambapy", 0.25, "mamba", "block", against="mambapy"),
    _ratio("training step of the harness over a bare loop", 1.03, "softmax", "step", against="bare loop"),
    _ratio("softmax training step over transformers' Llama", 0.85, "softmax", "step", against="Llama"),
    _ratio("bfloat16 training step over float32", 0.75, "softmax", "step", against="softmax", dtype="bfloat16"),
    _ratio(
        "quick comparison, 2 workers with a thread each over 1 with two",
        0.85,
        "2 workers.*",
        "compare",
        against="1 worker",
    ),
    _ratio("Mamba decode step, context 4096 over 256", 1.1, "mamba", "decode", against="mamba blocks, B1 context 256"),
)


def judged(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Each bar that the rows speak of: `what`, `bar`, `unit`, `measured` (the worst row) and `met`."""
    found = []
    rows = list(rows)
    for bar in BARS:
        values = [value for row in rows if (value := bar.value(row)) is not None]
        if values:
            worst = max(values)
            found.append(
                {"what": bar.what, "bar": bar.most, "unit": bar.unit, "measured": worst, "met": worst <= bar.most}
            )
    return found
