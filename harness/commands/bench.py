"""What the verb bench does: measure, write the result, hold it against an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.bench import Options, against, bench, lines, load
from harness.errors import RecordError, UsageError
from harness.records import try_folder, write_whole
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
        UsageError: the earlier result cannot be read, or the folder not be written; said before the first stage.
        RecordError: a file cannot be written.
    """
    then = None if earlier is None else load(earlier)
    stem = out / "bench" / options.device
    _try_out(stem.parent)
    result = bench(options, notify)
    # Minutes of measuring are on the disk before anything is made of them.
    write_whole(stem.with_suffix(".json"), (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    table = lines(result, None if then is None else against(result, then))
    write_whole(stem.with_suffix(".txt"), ("\n".join(table) + "\n").encode())
    for ending in ("svg", "png"):
        write_whole(stem.with_suffix(f".{ending}"), draw_bench(result["rows"], ending))
    return result, table


def _try_out(folder: Path) -> None:
    try:
        try_folder(folder)
    except (RecordError, OSError) as error:
        raise UsageError(f"results folder {folder} cannot be used ({error}); name another (--out DIR)") from error
