"""The corpus `python-stdlib`: source and documentation of the interpreter that runs, so that nothing need be
installed.

Every Python version has another text, and so another fingerprint: runs of different versions are never
compared. Left out are tests, tables (encodings), tools with a window, what is not part of the library
(site-packages), files with paths of this machine (_sysconfigdata), and the few files that are not UTF-8.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.data.split import Document
from harness.errors import DataError

NAME: Final = "python-stdlib"

_LEFT_OUT: Final = {
    *("test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "tkinter", "ensurepip", "distutils"),
    *("encodings", "pydoc_data", "site-packages", "dist-packages", "__pycache__", "__phello__"),
}
_LEFT_OUT_STARTS = ("_sysconfigdata", "_sysconfig_vars", "sitecustomize", "usercustomize", "config-")


def version() -> str:
    """The interpreter whose text it is, e.g. `CPython 3.11.7`."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def read() -> list[Document]:
    """The documents: each module's source in the order of the file names, then each topic of the help system.

    Returns:
        The documents, UTF-8.

    Raises:
        DataError: this installation has no source files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    documents = []
    for file in sorted(_sources(root), key=lambda file: file.relative_to(root).parts):
        text = file.read_bytes()
        if text and _is_utf8(text):
            documents.append(Document(str(file), text))
    if not documents:
        raise DataError(f"the corpus {NAME} needs the library's source files, and this Python has none in {root}")
    return documents + _topics()


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = filter(_wanted, folders)
        yield from (Path(folder, file) for file in files if file.endswith(".py") and _wanted(file))


def _wanted(name: str) -> bool:
    return name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_STARTS)


def _topics() -> list[Document]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions package it apart; the fingerprint says which text it was
        return []
    return [Document(f"help topic {name}", topics[name].encode()) for name in sorted(topics)]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
