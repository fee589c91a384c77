"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.errors import RecordError

_HIDDEN = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.tmp")
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends, and leaves no trace when it fails.

    A reader sees the old content or the new, never a part: the content goes to a hidden file of the same
    folder, onto the disk, and only then under its name. What a killed writer leaves behind is such a hidden
    file, which no reader looks at, and `sweep` removes.

    Args:
        path: where the content is to stand; its folder is made where it is missing.

    Raises:
        RecordError: the disk is full, the folder read-only, …; names the file and the reason.
    """
    hidden = path.parent / f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(hidden) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Still under the lock: a sweeper must not take the file between the two.
            os.replace(hidden, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            hidden.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise
    _sync_folder(path)


@contextlib.contextmanager
def _locked(hidden: Path) -> Iterator[BinaryIO]:
    """A new file under a lock that the kernel frees when its writer dies."""
    while True:
        with open(hidden, "xb") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            # A sweeper may have come between the two.
            if hidden.exists():
                yield file
                return


def sweep(folder: Path) -> None:
    """Remove what writers that died left in a folder; files that are being written stay."""
    for hidden in (path for path in folder.glob(".*.tmp") if _HIDDEN.fullmatch(path.name)):
        # Without locks, or without the right to remove it, the file stays where it does no harm.
        with contextlib.suppress(OSError), open(hidden, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.unlink()


def try_folder(folder: Path) -> None:
    """Write a file into a folder, made where it is missing, and remove it.

    Raises:
        RecordError, OSError: the folder cannot be made or written.
    """
    probe = folder / f".probe-{os.getpid()}"
    write_whole(probe, b"probe\n")
    probe.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        RecordError: as `whole`.
    """
    with whole(path) as file:
        file.write(content)


def cannot_write(path: Path, error: OSError) -> RecordError:
    """The error for a file that could not be written, with the system's reason."""
    return RecordError(f"{path} was not written: {error.strerror or error}")


def _sync_folder(path: Path) -> None:
    # The new name is on the disk only once its folder is.
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise RecordError(f"{path} may be lost at a power cut: {error.strerror or error}") from error
