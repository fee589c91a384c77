"""The table on a screen."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.report.columns import Column, columns
from harness.report.layout import GAP, fit, fold
from harness.report.rows import Result, Row

PROSE = 110
"""Sentences are set no wider than this: longer lines are hard to follow."""

KEY = 13
"""Width of the column with the keys of these sentences."""

_STYLES = {
    "baseline": "bold",
    "better": "bold green",
    "worse": "bold red",
    "worse (failed)": "bold red",
    "failed": "bold red",
    "not resolved": "yellow",
    "one seed": "yellow",
}


def render(result: Result, width: int) -> RenderableType:
    """The table with its title and what is to be said below it.

    Args:
        result: the table.
        width: of the screen, in characters; columns that do not fit are left out, and named.

    Returns:
        What a rich console prints; colour repeats the verdict's word and carries nothing alone.
    """
    every = columns(result)
    chosen = fit(every, width)
    measure = min(width, PROSE)
    head = [Text(wrapped(result.title, measure), "bold"), Text(wrapped(result.subtitle, measure), "dim")]
    if result.experiment.expectation:
        head.append(Text(wrapped(f"expected: {result.experiment.expectation}", measure), "dim"))
    if not result.complete:
        head.append(Text("partial: some runs are missing, see below", "bold yellow"))
    kept = [column for column, _ in chosen]
    left_out = [column.head for column in every if column not in kept]
    narrow = [f"left out: {', '.join(left_out)}: no room at {width} columns; the tables on disk have them"]
    blocks = [
        [Text(wrapped(f"! {line}", measure, 2), "yellow") for line in result.warnings],
        [Text(wrapped(f"- {line}", measure, 2)) for line in result.notes],
        [keyed(line, measure) for line in result.reading],
        [keyed(line, measure) for line in (*result.fairness, *(narrow if left_out else []))],
    ]
    below = [part for block in blocks if block for part in (Text(""), *block)]
    return Group(*head, Text(""), _table(result, chosen), *below)


def wrapped(text: str, width: int, indent: int = 0) -> str:
    """Lines of at most `width` characters, all but the first set in."""
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=True)


def keyed(line: str, width: int) -> Text:
    """A line `key: text`, the text in a column of its own."""
    key, _, body = line.partition(": ")
    text = Text(wrapped(f"{key:<{KEY}}{body}", width, KEY), "dim")
    text.stylize("not dim", 0, len(key))
    return text


def _table(result: Result, chosen: Sequence[tuple[Column, int]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="bold")
    for column, size in chosen:
        head = "\n".join(_placed(line, column, size) for line in (column.title, column.unit))
        table.add_column(Text(head), width=size, no_wrap=True, overflow="fold")
    for index, row in enumerate(result.arms):
        cells = [_cell(column, size, index, row) for column, size in chosen]
        table.add_row(*cells, style="dim" if row.same_as else "")
    trivial = range(len(result.arms), len(result.arms) + len(result.references))
    # Without a column that they have a number in, their names would stand alone.
    if any(column.cells[index] for column, _ in chosen if column.numeric for index in trivial):
        table.add_section()
        for index in trivial:
            table.add_row(*(_cell(column, size, index, None) for column, size in chosen), style="dim")
    return table


def _cell(column: Column, size: int, index: int, row: Row | None) -> Text:
    text = column.cells[index]
    lines = [text] if column.numeric else fold(text, column.breaks + column.tight, size)
    return Text("\n".join(_placed(line, column, size) for line in lines), style=_style(column, row))


def _placed(line: str, column: Column, size: int) -> str:
    # Rich would strip the blanks that keep points below each other.
    return line.rjust(size) if column.numeric else line


def _style(column: Column, row: Row | None) -> str:
    if row is None:
        return ""
    if column.title == "verdict":
        return "cyan" if row.verdict.startswith("equal") else _STYLES.get(row.verdict, "")
    if column.title == "difference" and row.verdict in ("better", "worse"):
        return _STYLES[row.verdict]
    return ""
