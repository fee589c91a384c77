"""Files and folders into documents: each file is read whole and checked before anything is trained on it.

Bytes stay as they are: no newline is translated and no locale consulted. One byte order mark at the start of
a document is dropped, in every format. Documents without text (an empty file or string, or null) are left
out.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.data.shards import read_jsonl, read_parquet
from harness.data.split import Document
from harness.errors import DataError

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def _read_plain(path: Path) -> Iterator[Document]:
    try:
        yield Document(str(path), path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


READERS: Final = {
    ".txt": _read_plain,
    ".md": _read_plain,
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_jsonl,
    ".parquet": read_parquet,
}
"""What can be read, by the end of the file's name in any case."""


def read(path: Path) -> list[Document]:
    """The documents of a file, or of all the readable files in a folder and the folders below it.

    Files come in the order of their relative names (compared folder by folder as NFC in UTF-8). Files and
    folders whose names start with a dot are left out, and so are files that are not one of `READERS`.

    Args:
        path: the file or folder.

    Returns:
        The documents, at least one; `where` of each is the file and, in a file of several, the line or row.

    Raises:
        DataError: no such path; nothing to read there; a file that is damaged, or cannot be read; no text at
            all.
    """
    documents = []
    for file in _files(path):
        if not os.path.isfile(file):
            raise DataError(f"{file} is not a file that can be read")
        for where, text in READERS[_kind(file) or ""](file):
            if kept := text.removeprefix(BYTE_ORDER_MARK):
                documents.append(Document(where, kept))
    if not documents:
        raise DataError(f"{path} has no text in it")
    return documents


def require_utf8(documents: list[Document]) -> None:
    """Refuse documents that are not UTF-8, for tokenizers of characters.

    Args:
        documents: the documents.

    Raises:
        DataError: names file, line and bytes of the first place that is not UTF-8.
    """
    for where, text in documents:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{where}, line {line:,}: {text[error.start : error.start + 8]!r} is not UTF-8; "
                "convert the file, or use --tokenizer bytes, which takes any bytes"
            ) from error


def _kind(path: Path) -> str | None:
    name = path.name.lower()
    return next((ending for ending in READERS if name.endswith(ending)), None)


def _files(path: Path) -> list[Path]:
    kinds = ", ".join(READERS)
    if not os.path.isdir(path):
        if not os.path.lexists(path):
            raise DataError(f"there is no file or folder {path}")
        if _kind(path) is None:
            raise DataError(f"{path} is not text that can be read: its name should end in one of {kinds}")
        return [path]
    found = [file for file in _walk(path) if _kind(file) is not None]
    if not found:
        raise DataError(f"the folder {path} holds no file whose name ends in one of {kinds}")
    return sorted(found, key=lambda file: [_order(part) for part in file.relative_to(path).parts])


def _order(name: str) -> bytes:
    return unicodedata.normalize("NFC", name).encode("utf-8", "surrogateescape")


def _walk(folder: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif not entry.is_dir():  # a link to a folder could lead back to where it stands
            yield Path(entry.path)
