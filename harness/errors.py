"""The five exceptions of the harness, and the sentence that says what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """The user's mistake: one line that says what was asked, what is allowed and what to do (exit code 2)."""


class BackendError(UsageError):
    """A backend that was asked for by name cannot run here; the message carries its reason."""


class DataError(UsageError):
    """A corpus, tokenizer or task cannot be used; the message names the file, the line and what stands there."""


class RecordError(Exception):
    """A record cannot be read or written; the message names the file. Nothing is ever deleted because of it."""


class RunFailed(Exception):
    """One training run ended without a usable loss: a row of the table, not the end of the experiment.

    Args:
        status: `diverged`, `leaks`, `out of memory` or `crashed`.
        reason: one line for the table's reader.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


def unknown(kind: str, asked: str, allowed: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with the nearest one that does.

    Args:
        kind: what sort of name it is, e.g. `variant`.
        asked: the name as the user gave it.
        allowed: every name there is.

    Returns:
        The exception, to be raised by the caller.
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(asked, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return UsageError(f"no {kind} {asked!r}{hint} there are: {', '.join(names)}")
