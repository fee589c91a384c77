"""The verb `compare`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from harness.cli.answer import Answer
from harness.cli.flags import Experiment
from harness.cli.table import train_table
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Compare(Experiment):
    """Train arms on the same data with the same recipe, and print one table.

    Example: run.py compare softmax lazy 'lazy[tau_start=-0.5]' --seeds 5
    """

    arms: Annotated[Positional[tuple[str, ...]], arg(metavar="[ARM ...]")] = ()
    """NAME, or NAME[field=value,...], or a path to your own variant; every shipped variant unless given."""
    noise_floor: Annotated[int | None, arg(metavar="N")] = None
    """Train the baseline and its twin of another start on N seeds instead: what could this comparison resolve?"""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Compare the arms, or the baseline with itself."""
        from harness.commands.experiments import default_arms

        if self.noise_floor is None:
            arms = self.arms or default_arms(aliases=not self.tuned)
            return train_table(self, progress, name="compare", arms=arms)
        if self.noise_floor < 2:
            raise UsageError(f"--noise-floor {self.noise_floor}: allowed is a whole number of at least 2 seeds")
        return train_table(
            self,
            progress,
            name="noise-floor",
            arms=self.arms or default_arms(),
            seeds=self.noise_floor,
            question="How far apart are two trainings of the same thing?",
            noise_floor=True,
        )
