"""What the verb bench does: measure, write the result, hold it against an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.bench import Options, against, bench, lines
from harness.bench.earlier import load
from harness.records import write_whole
from harness.report.bench_figure import draw_bench


def measure(options: Options, out: Path, earlier: Path | None, notify: Callable[[str], None]) -> tuple[Any, list[str]]:
    """Measure, and write result, table and figure to the folder `bench` of `out`.

    Args:
        options: what is timed.
        out: results folder.
        earlier: a result to hold this one against.
        notify: told of each stage.

    Returns:
        The result, and the lines of its table.

    Raises:
        UsageError: the earlier result cannot be read; said before the first stage.
        RecordError: a file cannot be written.
    """
    then = None if earlier is None else load(earlier)
    result = bench(options, notify)
    table = lines(result, None if then is None else against(result, then))
    stem = out / "bench" / options.device
    write_whole(stem.with_suffix(".json"), (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    write_whole(stem.with_suffix(".txt"), ("\n".join(table) + "\n").encode())
    for ending in ("svg", "png"):
        write_whole(stem.with_suffix(f".{ending}"), draw_bench(result["rows"], ending))
    return result, table
