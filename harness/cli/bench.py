"""The verb `bench`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from harness.cli.answer import Answer, teller
from harness.cli.flags import Common

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Bench(Common):
    """How fast everything is here, as ratios measured side by side: cores, layers, training steps, decoding.

    Example: run.py bench cores --lengths 256 1024
    """

    parts: Annotated[Positional[tuple[str, ...]], arg(metavar="[PART ...]")] = ()
    """cores, blocks, step, decode, workers; all unless given."""
    # Words, so that one that is no number is told in a line of our own.
    lengths: Annotated[tuple[str, ...] | None, arg(metavar="N ...")] = None
    """Tokens of the cores; 256, 1024 and 4096 unless given."""
    dtypes: Annotated[tuple[str, ...] | None, arg(metavar="DTYPE ...")] = None
    """float32, bfloat16; float32 unless given, both on a GPU."""
    device: Annotated[str, arg(metavar="{cpu,cuda}")] = "cpu"
    """Where it is measured."""
    against: Annotated[Path | None, arg(metavar="FILE")] = None
    """An earlier result: compare its ratios."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Measure, and answer with times and ratios."""
        from harness.bench import asked
        from harness.commands.bench import measure

        options = asked(parts=self.parts, lengths=self.lengths, dtypes=self.dtypes, device=self.device)
        result, lines = measure(options, self.out, self.against, teller(progress))
        wrong = bool(result["machine"]["wrong"])
        yield Answer(payload=result, shown=lambda width: "\n".join(lines), code=1 if wrong else 0)
