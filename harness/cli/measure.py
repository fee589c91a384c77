"""The verb `measure`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from harness.cli.answer import Answer, teller
from harness.cli.flags import Common

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Measure(Common):
    """Look inside the trained models of a recorded experiment: sink, mass, sparsity, collapse, longer sequences.

    Example: run.py measure compare --only sink mass
    """

    experiment: Positional[str] = "compare"
    """Its name, or its name and key."""
    only: Annotated[tuple[str, ...], arg(metavar="[MEASURE ...]")] = ()
    """Measures; all unless given."""
    fresh: bool = False
    """Measure again what is recorded."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Measure, and answer with what was found."""
        from harness import report
        from harness.commands.experiments import find_experiment
        from harness.commands.measure import measure
        from harness.records import Store

        store = Store(self.out)
        experiment = find_experiment(store, self.experiment)
        measure(experiment, store, only=self.only, fresh=self.fresh, notify=teller(progress))
        found = report.findings(experiment, store)
        yield Answer(payload=report.measured_payload(found), shown=lambda width: report.measured(found, width))
