"""The verb `report`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tyro.conf import Positional

from harness.cli.answer import Answer
from harness.cli.flags import Common
from harness.cli.table import table
from harness.errors import RecordError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(kw_only=True)
class Report(Common):
    """Print a recorded experiment's table again; nothing is trained.

    Example: run.py report compare
    Example: run.py report compare --html
    """

    experiment: Positional[str] = "compare"
    """Its name, or its name and key."""
    html: bool = False
    """Write one page with tables and figures, each figure as SVG and PNG, and manifest.json; print where."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Rebuild the table, or write the page."""
        from harness import report
        from harness.commands.experiments import find_experiment
        from harness.records import Store

        store = Store(self.out)
        found = find_experiment(store, self.experiment)
        if self.html:
            page, *figures = [str(path) for path in report.write_page(found, store)]
            told = []
            try:
                report.write_tables(found, store)
                report.write_manifest(store)
            except RecordError as error:
                # It speaks of every experiment in the folder, and one of them may be broken.
                told = [f"manifest.json stays as it was: {error}"]
            yield Answer(payload={"page": page, "figures": figures}, shown=lambda width: page, told=told)
            return
        yield table(report.result(found, store), store)
        try:
            report.write_tables(found, store)
        except RecordError as error:
            yield Answer(told=[f"the tables beside the records stay as they are: {error}"])
