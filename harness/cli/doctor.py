"""The verb `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.cli.answer import Answer
from harness.cli.flags import Common

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Doctor(Common):
    """This machine: versions, cores, and why an optional backend cannot run.

    Example: run.py doctor
    """

    def run(self, progress: Console) -> Iterator[Answer]:
        """Describe the machine."""
        from harness import report
        from harness.commands.about import doctor

        found = doctor()
        yield Answer(payload=found, shown=lambda width: report.doctor(found))
