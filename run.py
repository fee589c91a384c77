"""The command line: parse, call one function, print."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import tyro
from tyro.conf import FlagCreatePairsOff

from harness.cli import Verb
from harness.errors import RecordError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cli.answer import Answer
    from harness.cli.flags import Common


def main() -> int:
    """Parse the command line, run its verb, print its answers.

    Returns:
        0 fine, 1 a run failed, 2 the user's mistake, 130 interrupted.
    """
    verb: Common = tyro.cli(
        Verb,
        prog="run.py",
        description="lazybench: benchmark and take apart attention variants.",
        config=(FlagCreatePairsOff,),
    )
    signal.signal(signal.SIGTERM, _stop)
    # A terminal or pipe that knows no ± gets a question mark in its place.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = 0
    try:
        for answer in _answers(verb):
            _print(answer, as_json=verb.json)
            code = max(code, answer.code)
        sys.stdout.flush()
        return code
    except (UsageError, RecordError) as error:
        if verb.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe, `head` say, had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if verb.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2


def _answers(verb: Common) -> Iterator[Answer]:
    """The answers of a verb; what a mixer prints while it works must not get between them."""
    with contextlib.redirect_stdout(sys.stderr):
        answers = verb.run(_console(stderr=True))
    while True:
        with contextlib.redirect_stdout(sys.stderr):
            answer = next(answers, None)
        if answer is None:
            return
        yield answer


def _print(answer: Answer, *, as_json: bool) -> None:
    if as_json and answer.payload is not None:
        print(json.dumps(answer.payload, indent=1, allow_nan=False))
    if not as_json and answer.shown is not None:
        console = _console()
        shown = answer.shown(console.width)
        if isinstance(shown, str):
            print(shown)
        else:
            console.print(shown)
    for line in answer.told:
        print(line, file=sys.stderr)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    # Piped, rich assumes 80 columns; a file or a pager has room for the whole table.
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(shutil.get_terminal_size((140, 24)).columns, 80)
    return console


def _stop(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
