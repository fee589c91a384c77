"""The table of an experiment, rebuilt from records: on a screen, as Markdown, CSV, JSON and a data frame.

Reading order: `rows` (what a table says) -> `build` (from records) -> `columns` (what is shown, and how) ->
`terminal`, `texts`, `payloads`, `frames`. `fairness` and `remarks` write the sentences below it.
"""

from harness.report.build import result
from harness.report.checks import checks
from harness.report.findings import findings
from harness.report.frames import frame
from harness.report.listing import costs, doctor, dry_run, listing
from harness.report.manifest import write_manifest
from harness.report.measured import measured, measured_payload
from harness.report.page import write_page
from harness.report.payloads import payload
from harness.report.rows import Result, Row
from harness.report.sizes import planned_sizes
from harness.report.terminal import render
from harness.report.texts import csv, markdown, write_tables

__all__ = [
    "Result",
    "Row",
    "checks",
    "costs",
    "csv",
    "doctor",
    "dry_run",
    "findings",
    "frame",
    "listing",
    "markdown",
    "measured",
    "measured_payload",
    "payload",
    "planned_sizes",
    "render",
    "result",
    "write_manifest",
    "write_page",
    "write_tables",
]
