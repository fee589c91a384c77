"""Files that save work, named by content and written whole or not at all: processes may share a folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from harness.errors import DataError

_DIGEST = hashlib.sha256().digest_size


def get(cache: Path | None, name: str) -> bytes | None:
    """What was kept under a name.

    Args:
        cache: the folder, or None.
        name: a file name that holds a hash of all the content depends on.

    Returns:
        The content, or None where there is none or it is damaged.
    """
    if cache is None:
        return None
    try:
        stored = (cache / name).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"the cached file {cache / name} cannot be read: {error.strerror}") from error
    content = stored[_DIGEST:]
    return content if hashlib.sha256(content).digest() == stored[:_DIGEST] else None


def put(cache: Path | None, name: str, content: bytes) -> None:
    """Keep content under a name; does nothing without a folder.

    Args:
        cache: the folder, made if need be, or None.
        name: a file name that holds a hash of all the content depends on.
        content: what to keep.

    Raises:
        DataError: the folder cannot be written.
    """
    if cache is None:
        return
    try:
        cache.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=cache, prefix=".unfinished-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, cache / name)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise DataError(f"the data cache {cache} cannot be written: {error.strerror}") from error
