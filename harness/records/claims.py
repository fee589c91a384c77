"""Who may train a run: a lock that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from harness.errors import RecordError
from harness.records.whole import cannot_write

_held: set[Claim] = set()


class Claim:
    """A lock that is held; leave the block, call `release`, or die, and it is free."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Frees the lock; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            # Closing alone would not free it while a forked child still has the file open.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _disown(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def claim(path: Path, *, wait: bool = False) -> Claim | None:
    """The lock of a file, by `flock`. The file is made where it is missing, and stays.

    Args:
        path: the lock file.
        wait: until it is free.

    Returns:
        The claim; None where another one, of this process or any other, holds it.

    Raises:
        RecordError: the file cannot be made, or its file system has no locks.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_still(path, descriptor):
                return Claim(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise RecordError(f"{path} cannot be locked: {error.strerror or error}") from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    # Somebody who clears the folder between open and flock would leave us the lock of a file that is gone.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _after_fork() -> None:
    # A forked child shares the open file: it would keep the lock alive after its parent's death.
    for held in list(_held):
        held._disown()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
