"""A result as plain lines: the rows, how time grows with length, the bars."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.bench.bars import judged, length

Row = Mapping[str, Any]


def lines(result: Mapping[str, Any], changes: Sequence[Row] | None = None) -> list[str]:
    """What a terminal shows of a result.

    Args:
        result: as `bench` gives it.
        changes: beside an earlier result, as `against` gives them.
    """
    machine, rows = result["machine"], result["rows"]
    peaks = ", ".join(f"{dtype} {flops / 1e9:.0f} GFLOP/s" for dtype, flops in machine["matmul_flops"].items())
    found = [
        f"{machine['gpu'] if machine['device'] == 'cuda' else machine['cpu']}, {machine['threads']} threads, "
        f"torch {machine['torch']}; matrix product: {peaks}; {machine['seconds'] / 60:.1f} minutes in all",
        "",
    ]
    for (part, dtype, shape), group in itertools.groupby(rows, _heading):
        found += [", ".join(word for word in (part, dtype, shape) if word)]
        header = ("", "ms", "quartiles", "ratio", "against", "MiB", "peak")
        found += ["  " + line for line in table(header, [_cells(row, named=not shape) for row in group])] + [""]
    grown = exponents(rows)
    if grown:
        found += ["time grows with length to the power of"]
        found += ["  " + line for line in table(("", "dtype", "pass", "lengths", "power"), grown)] + [""]
    if changes is not None:
        found += [*_changes(changes), ""]
    notes = [f"left out: {name} ({reason})" for name, reason in machine["left_out"].items()]
    notes += [f"wrong: {line}" for line in machine["wrong"]]
    found += [*notes, ""] if notes else []
    # The bars are those of two cores; elsewhere every core stands in one line.
    last = [_bar(bar) for bar in judged(rows)] if machine["device"] == "cpu" else []
    found += table(("bar", "at most", "measured", ""), last) if last else short(rows, machine)
    return found[:-1] if found[-1] == "" else found


def short(rows: Iterable[Row], machine: Mapping[str, Any]) -> list[str]:
    """Every core in a line: forward and backward over fused softmax at each length, and whether its numbers are right.

    Args:
        rows, machine: of a result.
    """
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        if row["pass"] == "forward+backward" and row["ratio"] is not None:
            key = (row["name"], row["backend"], row["dtype"])
            found.setdefault(key, {})[length(row) or 0] = row["ratio"]
    if not found:
        return []
    lengths = sorted({tokens for ratios in found.values() for tokens in ratios})
    header = ("forward + backward, over softmax sdpa", "dtype", *(f"T{tokens}" for tokens in lengths), "")
    cells = [
        (
            f"{name} ({backend})",
            dtype,
            *(f"{ratios[tokens]:.2f}" if tokens in ratios else "—" for tokens in lengths),
            _checked(f"{name.split(',')[0]} {backend}", machine),
        )
        for (name, backend, dtype), ratios in found.items()
    ]
    return table(header, cells)


def _checked(name: str, machine: Mapping[str, Any]) -> str:
    if any(line.startswith(f"{name},") for line in machine["wrong"]):
        return "wrong"
    return "right" if name in machine["right"] else "not checked"


def exponents(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """How the time of a token's share grows between the shortest and the longest length, where heads are the same."""
    timed: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        tokens = length(row)
        if row["pass"] in ("forward", "forward+backward") and tokens and row["median_ms"]:
            sizes = {word[0]: int(word[1:]) for word in row["shape"].split()}
            key = (f"{row['name']} {row['backend']}", row["dtype"], row["pass"], f"H{sizes['H']} D{sizes['D']}")
            timed.setdefault(key, {})[tokens] = row["median_ms"] / sizes["B"]
    found: list[tuple[str, ...]] = []
    for (name, dtype, part, heads), times in timed.items():
        if len(times) > 1:
            short, long = min(times), max(times)
            power = math.log(times[long] / times[short]) / math.log(long / short)
            found.append((name, dtype, part, f"{short} to {long}, {heads}", f"{power:.2f}"))
    return found


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    right = [all(_numeric(row[column]) for row in cells[1:]) for column in range(len(header))]
    padded = (
        [cell.rjust(width) if r else cell.ljust(width) for cell, width, r in zip(row, widths, right, strict=True)]
        for row in cells
    )
    return ["  ".join(row).rstrip() for row in padded]


def _numeric(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "—"


def _heading(row: Row) -> tuple[str, str, str]:
    # A context is a part of what is compared there, not of the heading.
    return row["pass"], row["dtype"] if row["pass"] != "step" else "", row["shape"] if row["pass"] != "decode" else ""


def _cells(row: Row, *, named: bool) -> tuple[str, ...]:
    name = row["name"] if row["backend"] in ("", row["name"]) else f"{row['name']} ({row['backend']})"
    if named:
        name = f"{name}, {row['shape']}"
    if row["pass"] == "step" and row["dtype"] != "float32":
        name = f"{name}, {row['dtype']}"
    timed = row["median_ms"] is not None
    memory = row["peak_memory_bytes"]
    return (
        name,
        _number(row["median_ms"]) if timed else "—",
        "–".join(_number(x) for x in row["quartiles_ms"]) if timed else "—",
        "—" if row["ratio"] is None else f"{row['ratio']:.2f}",
        row["against"],
        "—" if memory is None else f"{memory / 2**20:.1f}",
        "—" if row["share_of_peak"] is None else f"{row['share_of_peak']:.0%}",
    )


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _bar(bar: Mapping[str, Any]) -> tuple[str, ...]:
    unit = f" {bar['unit']}" if bar["unit"] else ""
    return (bar["what"], f"{bar['bar']:g}{unit}", f"{bar['measured']:.2f}{unit}", "met" if bar["met"] else "not met")


def _changes(changes: Sequence[Row]) -> list[str]:
    if not changes:
        return ["the earlier result has none of these rows"]
    cells = [
        (
            f"{row['name']} ({row['backend']})",
            row["shape"],
            row["dtype"],
            row["pass"],
            row["against"],
            f"{row['then']:.2f}",
            f"{row['now']:.2f}",
            f"{row['change']:.2f}",
        )
        for row in changes
    ]
    return table(("ratio", "shape", "dtype", "pass", "against", "then", "now", "now / then"), cells)
