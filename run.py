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
from os import _exit as leave
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.cli.answer import Answer
    from harness.cli.flags import Common

INTERRUPTED = 128 + signal.SIGINT


def main() -> int:
    """Parse the command line, run its verb, print its answers.

    Returns:
        0 fine, 1 a run failed, 2 the user's mistake, 130 interrupted, 143 told to end.
    """
    stops: list[int] = []
    # A shell that starts a job in the background has it ignore Ctrl-C.
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, lambda number, frame: _stop(number, frame, stops))
    try:
        code = _main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    for number in heard:
        # Everything is said and written: what comes now ends the process without a word.
        signal.signal(number, signal.SIG_DFL)
    return 128 + stops[0] if code == INTERRUPTED and stops else code


def _stop(number: int, frame: FrameType | None, stops: list[int]) -> None:
    stops.append(number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            # An exception amid an import leaves half a module behind, which fails in ways of its own.
            shown = b"\x1b[?25h" * os.isatty(2)
            os.write(2, shown + b"interrupted\n")
            leave(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt


def _main() -> int:
    import tyro
    from tyro.conf import FlagCreatePairsOff

    from harness.cli import Verb
    from harness.errors import RecordError, UsageError

    verb: Common = tyro.cli(
        Verb,
        prog="run.py",
        description="lazybench: benchmark and take apart attention variants.",
        config=(FlagCreatePairsOff,),
    )
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
        print(_one_line(error), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of a pipe, `head` say, had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if verb.debug:
            raise
        print(_one_line(error), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2


def _one_line(error: Exception) -> str:
    return f"error: {' '.join(line.strip() for line in str(error).splitlines())}"


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


if __name__ == "__main__":
    sys.exit(main())
