"""The words of the command line: one file a verb, with its flags, their help, and the answer it gives.

Reading order: `answer` (what run.py prints) -> `flags` (what several verbs take) -> `table` (`compare` and `ablate`)
-> the verbs. What a verb does lies in `commands`; it is imported when the verb runs, so that help comes without torch.
"""

from __future__ import annotations

from typing import Annotated, Union

from tyro.conf import OmitSubcommandPrefixes, subcommand

from harness.cli.ablate import Ablate
from harness.cli.bench import Bench
from harness.cli.check import Check
from harness.cli.compare import Compare
from harness.cli.doctor import Doctor
from harness.cli.list import List
from harness.cli.measure import Measure
from harness.cli.report import Report
from harness.cli.tune import Tune

Verb = OmitSubcommandPrefixes[
    Union[  # noqa: UP007
        Annotated[List, subcommand("list")],
        Annotated[Doctor, subcommand("doctor")],
        Annotated[Compare, subcommand("compare")],
        Annotated[Ablate, subcommand("ablate")],
        Annotated[Tune, subcommand("tune")],
        Annotated[Bench, subcommand("bench")],
        Annotated[Check, subcommand("check")],
        Annotated[Measure, subcommand("measure")],
        Annotated[Report, subcommand("report")],
    ]
]

__all__ = ["Verb"]
