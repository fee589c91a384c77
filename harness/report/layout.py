"""Which columns fit a width, and how wide each is: nothing is ever cut."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.columns import Column

GAP = 2
"""Blanks between two columns."""

CORE = 2
"""Columns up to this rank come before the comfort of the others: difference and loss."""

_NARROW = 8
"""Width down to which a cell of text may be folded in the middle of a word when nothing else is left."""

_INDENT = " "


def fold(text: str, breaks: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken behind one of `breaks` where that is possible.

    Args:
        text: of a cell.
        breaks: characters that may end a line; a blank is dropped there.
        width: at least 2.

    Returns:
        The lines; those after the first are set in by one blank.
    """
    lines, rest = [], text
    while len(rest) > width:
        ends = [place + 1 for place in range(width) if rest[place] in breaks]
        # A blank that would stand right behind the line may be the break too.
        ends += [width + 1] if rest[width] == " " and " " in breaks else []
        end = max((end for end in ends if rest[:end].strip()), default=width)
        lines.append(rest[:end].rstrip())
        rest = _INDENT + rest[end:].lstrip()
    return [*lines, rest]


def least(column: Column, breaks: str) -> int:
    """The smallest width of a column at which cells are folded at `breaks` alone."""
    width = max(len(column.title), len(column.unit))
    for cell in column.cells:
        for place, piece in enumerate(_pieces(cell, breaks)):
            width = max(width, len(piece) + (len(_INDENT) if place else 0))
    return width


def _pieces(cell: str, breaks: str) -> list[str]:
    pieces = [""]
    for letter in cell:
        pieces[-1] += letter
        if letter in breaks:
            pieces.append("")
    return [piece.strip() for piece in pieces if piece.strip()]


def fit(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """The columns that fit, in their order, each with its width.

    The ranks decide which stay. Names and verdicts are folded tightly only where loss and difference need the room.

    Args:
        columns: of the table.
        width: of the screen, in characters.
    """
    chosen = {
        index: least(column, column.breaks + column.tight) for index, column in enumerate(columns) if column.rank == 0
    }
    texts = sorted(chosen, reverse=True)
    _squeeze(chosen, width)
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        column = columns[index]
        if column.rank > CORE:
            _grow(chosen, {text: least(columns[text], columns[text].breaks) for text in texts}, width)
        if index in chosen:
            continue
        need = least(column, column.breaks)
        if _total([*chosen.values(), need]) > width:
            # A narrower column of less weight does not slip in: a wider screen only ever adds columns.
            break
        chosen[index] = need
    _grow(chosen, {text: least(columns[text], "") for text in texts}, width)
    return [(columns[index], chosen[index]) for index in sorted(chosen)]


def _grow(chosen: dict[int, int], wanted: dict[int, int], width: int) -> None:
    """Widen columns to what they want, one after the other, as far as there is room."""
    for index, size in wanted.items():
        spare = width - _total(list(chosen.values()))
        chosen[index] += max(0, min(spare, size - chosen[index]))


def _squeeze(chosen: dict[int, int], width: int) -> None:
    """Fold names inside a word where even the columns that always stay are too wide together."""
    for index in sorted(chosen):
        over = _total(list(chosen.values())) - width
        if over > 0:
            chosen[index] = max(min(chosen[index], _NARROW), chosen[index] - over)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
