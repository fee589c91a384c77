"""The verb `list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.cli.answer import Answer
from harness.cli.flags import Common
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class List(Common):
    """What there is: variants with their switches, knobs and backends here, and declared experiments.

    Example: run.py list
    Example: run.py list --cost --length 512
    """

    cost: bool = False
    """What a layer of each variant costs: FLOPs, bytes of state, parameters."""
    length: int | None = None
    """Tokens of the sequence, for --cost."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Describe the variants, or say what they cost."""
        from harness import report
        from harness.commands.about import costs, listing

        if self.cost:
            found = costs(self.length)
            yield Answer(payload=found, shown=lambda width: report.costs(found))
            return
        if self.length is not None:
            raise UsageError("--length belongs to --cost")
        there = listing()
        yield Answer(payload=there, shown=lambda width: report.listing(there))
