"""Documents into three splits, by what is written in them and never by their names or their order.

A *unit* is a whole document; a document longer than a fortieth of the corpus is cut into blocks instead
(about a two hundredth of the corpus each, ended at a line where one ends nearby), which are units of their
own. Units are ranked by SHA-256: of the text for a whole document, so that equal documents stay together; of
the document's digest and the block's number for a block. Along the ranking the first twentieth of the bytes
is the selection split, the next the report split, the rest is for training. Between neighbouring blocks of
different splits a gap of up to 1,024 bytes is left out, on the training side where there is one. In each
split the pieces follow each other in the order of the corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from harness.data.source import SPLITS
from harness.errors import DataError

RULE: Final = "documents 1"
"""Name and version of the rule above; a change of the rule changes it, and with it every fingerprint."""

PERCENT: Final = {"selection": 5, "report": 5, "train": 90}
"""What each split should hold, in per cent of the bytes, in the order of the ranking."""

_LARGEST_WHOLE = 40  # a unit of at most 1/40 cannot push a split of 1/20 under half its target
_BLOCKS = 200
_SMALLEST_BLOCK = 256
_LARGEST_GAP = 1024


class Document(NamedTuple):
    """One text and where it stands.

    Args:
        where: file and line, for an error.
        text: its bytes, without a leading byte order mark.
    """

    where: str
    text: bytes


class _Unit(NamedTuple):
    document: int
    start: int
    end: int
    rank: bytes


def split_documents(name: str, documents: Sequence[Document]) -> dict[str, bytes]:
    """The three splits of a corpus.

    Args:
        name: the corpus, for an error.
        documents: its documents in their order.

    Returns:
        The text of `train`, `selection` and `report`.

    Raises:
        DataError: a split holds less than half of what it should; says which, what it has and what it needs.
    """
    total = sum(len(document.text) for document in documents)
    units = [unit for number in range(len(documents)) for unit in _units(number, documents[number].text, total)]
    homes = _homes(units, total)
    texts: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    gap = min(_LARGEST_GAP, _block(total) // 4)
    for place, unit in enumerate(units):
        home = homes[unit.rank]
        before = _foreign(units, homes, place, place - 1)
        after = _foreign(units, homes, place, place + 1)
        text = documents[unit.document].text
        # The gap lies on the training side, or on the earlier side where neither side is for training.
        start = unit.start + (gap if before and home == "train" else 0)
        end = unit.end - (gap if after and (home == "train" or after != "train") else 0)
        texts[home].append(text[_character(text, start) : _character(text, end)])
    joined = {split: b"".join(pieces) for split, pieces in texts.items()}
    _require_half(name, joined, total, len(documents))
    return joined


def _block(total: int) -> int:
    return max(total // _BLOCKS, _SMALLEST_BLOCK)


def _units(number: int, text: bytes, total: int) -> list[_Unit]:
    digest = hashlib.sha256(text).digest()
    block = _block(total)
    count = len(text) // block
    if len(text) * _LARGEST_WHOLE <= total or count < 2:
        return [_Unit(number, 0, len(text), digest)]
    cuts = [0, *(_line(text, place * block, block // 4) for place in range(1, count)), len(text)]
    ranks = [hashlib.sha256(digest + str(place).encode()).digest() for place in range(count)]
    return [_Unit(number, cuts[place], cuts[place + 1], ranks[place]) for place in range(count)]


def _line(text: bytes, place: int, reach: int) -> int:
    end = text.find(b"\n", place, place + reach)
    return _character(text, place) if end < 0 else end + 1


def _character(text: bytes, place: int) -> int:
    for ahead in range(4):
        if place + ahead >= len(text) or text[place + ahead] & 0xC0 != 0x80:
            return place + ahead
    return place  # not UTF-8: nothing to keep whole


def _homes(units: Sequence[_Unit], total: int) -> dict[bytes, str]:
    sizes: dict[bytes, int] = {}
    for unit in units:
        sizes[unit.rank] = sizes.get(unit.rank, 0) + unit.end - unit.start
    homes = {}
    before = 0
    for rank in sorted(sizes):
        middle = 2 * before + sizes[rank]
        bound = 0
        for split, percent in PERCENT.items():
            bound += percent
            if middle * 100 <= 2 * total * bound:
                homes[rank] = split
                break
        before += sizes[rank]
    return homes


def _foreign(units: Sequence[_Unit], homes: Mapping[bytes, str], place: int, other: int) -> str | None:
    if not 0 <= other < len(units) or units[other].document != units[place].document:
        return None
    home = homes[units[other].rank]
    return home if home != homes[units[place].rank] else None


def _require_half(name: str, texts: Mapping[str, bytes], total: int, documents: int) -> None:
    for split in SPLITS:
        target = total * PERCENT[split] // 100
        has, needs = len(texts[split]), max(1, -(-total * PERCENT[split] // 200))
        if has < needs:
            raise DataError(
                f"the {split} split of {name} has {has:,} bytes, but should have {target:,} "
                f"({PERCENT[split]} % of {total:,} bytes in {documents:,} documents) and needs {needs:,}; "
                "use more text that does not repeat itself"
            )
