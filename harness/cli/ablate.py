"""The verb `ablate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from harness.cli.answer import Answer
from harness.cli.flags import Experiment
from harness.cli.table import train_table

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Ablate(Experiment):
    """Take a variant apart: full, each switch off, each switch alone, all off; or run a declared experiment.

    Example: run.py ablate lazy_parts
    """

    name: Positional[str]
    """A declared experiment, a variant, or a path to your own variant."""
    retune: Annotated[str | None, arg(metavar="KNOB")] = None
    """A knob of the recipe, learning_rate say, that every arm gets its own best value of, from one grid for all."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Train the parts, or the arms of a declared experiment."""
        from harness.commands.experiments import ablation

        arms, declared = ablation(self.name)
        return train_table(self, progress, arms=arms, retune=self.retune, **declared)
