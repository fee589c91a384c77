"""The table as Markdown and as CSV, byte for byte the same whenever it is rebuilt from the same records."""

from __future__ import annotations

import csv as writer
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.records import ExperimentFile, Store, write_whole
from harness.report.build import result
from harness.report.columns import columns
from harness.report.formats import fixed
from harness.report.frames import flat, flat_reference
from harness.report.rows import Result


def markdown(result: Result) -> str:
    """The whole table, all columns, with title and notes.

    Returns:
        Markdown that is readable as it stands, too; ends with a line break.
    """
    parts = [f"**{_escaped(result.title)}**", _escaped(result.subtitle)]
    if result.experiment.expectation:
        parts.append(f"Expected: {_escaped(result.experiment.expectation)}")
    parts.append(_table(result))
    lists = {
        "Warnings": result.warnings,
        "Notes": result.notes,
        "How to read it": result.reading,
        "What the arms share": result.fairness,
    }
    for head, lines in lists.items():
        if lines:
            parts += [f"**{head}**", "\n".join(f"- {_escaped(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def _table(result: Result) -> str:
    found = columns(result)
    arms = len(result.arms)
    cells = [[column.head, *(cell.replace("|", "\\|") for cell in column.cells)] for column in found]
    # In a code span brackets and stars are what they are.
    names = [f"`{name}`" if place < arms else f"*{name}*" for place, name in enumerate(cells[0][1:])]
    cells[0][1:] = names
    widths = [max(3, *(len(cell) for cell in column)) for column in cells]
    for column, texts, width in zip(found, cells, widths, strict=True):
        texts[:] = [text.rjust(width) if column.numeric else text.ljust(width) for text in texts]
        texts.insert(1, f"{'-' * (width - 1)}:" if column.numeric else "-" * width)
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*cells, strict=True))


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\[]<>_*`" else letter for letter in text)


def csv(result: Result) -> str:
    """The numbers behind the table, a line for each arm and each trivial row.

    Returns:
        Six decimals, three digits of p, and nothing where there is no number; lines end in a line feed.
    """
    file = io.StringIO()
    out = writer.writer(file, lineterminator="\n")
    lines = [flat(row, result.experiment.metric) for row in result.arms]
    lines += [flat_reference(row, result.experiment.metric) for row in result.references]
    names = list(lines[0])
    out.writerow(names)
    out.writerows([_plain(name, line[name]) for name in names] for line in lines)
    return file.getvalue()


def _plain(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if name == "p" else fixed(value, 6, none="")
    return "" if value is None else str(value)


def write_tables(experiment: ExperimentFile, store: Store) -> list[Path]:
    """Writes both beside the records, each whole or not at all; they change only with the records.

    Returns:
        The files, `tables/<name>-<key>.md` and `.csv`.

    Raises:
        RecordError: one cannot be written; the message names it and the reason.
    """
    recorded = result(experiment, store, present=False)
    written: Sequence[tuple[str, str]] = [(".md", markdown(recorded)), (".csv", csv(recorded))]
    paths = []
    for ending, text in written:
        path = store.tables / f"{experiment.stem}{ending}"
        write_whole(path, text.encode())
        paths.append(path)
    return paths
