"""An experiment, resolved: arms with their runs, and the file that maps one to the other."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.arms import Arm
from harness.config import RunConfig, canonical
from harness.data import Source
from harness.fields import resolved
from harness.records import Arm as ArmRow
from harness.records import Corpus, ExperimentFile

TWIN = 1_000_000
"""What is added to a seed for the start of a twin: no run of a table has such a seed."""


@dataclass(frozen=True)
class PlannedArm:
    """An arm with its runs.

    Args:
        label: how the table calls it.
        arm: the arm.
        runs: one a seed, in the order of the experiment's seeds.
        same_as: label of an earlier arm that computes the same function.
    """

    label: str
    arm: Arm
    runs: tuple[RunConfig, ...]
    same_as: str | None

    @property
    def timing_key(self) -> str:
        """What its step time depends on: everything of a run but its seed and how many steps it takes."""
        run = with_seed(self.runs[0], 0)
        return dataclasses.replace(run, train=dataclasses.replace(run.train, steps=1)).id


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment, resolved.

    Args:
        name: of the experiment.
        question, expectation, metric: as declared.
        baseline: label of the arm that the others are held against.
        seeds: in table order.
        arms: the rows.
        source: the data of all arms.
        corpus, tokenizer: how workers load it again.
        settings: preset and shared sections, for the reader.
        command: that asked for it.
    """

    name: str
    question: str
    expectation: str
    metric: str
    baseline: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    source: Source
    corpus: str
    tokenizer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def key(self) -> str:
        """Short hash of what it asks for: arms, baseline, seeds."""
        asked = [self.metric, self.baseline, list(self.seeds)]
        asked += [[arm.label, [run.id for run in arm.runs]] for arm in self.arms]
        return hashlib.sha256(canonical(asked).encode()).hexdigest()[:8]

    def runs(self) -> list[tuple[str, RunConfig]]:
        """Every run once, with the label of the first arm that needs it; seeds outer, arms inner."""
        ordered = [(arm.label, arm.runs[index]) for index in range(len(self.seeds)) for arm in self.arms]
        return list({run.id: (label, run) for label, run in reversed(ordered)}.values())[::-1]

    def file(self, *, timing: str | None = None) -> ExperimentFile:
        """The index that maps arms to runs."""
        rows = [
            ArmRow(
                label=planned.label,
                variant=planned.arm.variant.spec.name,
                config=resolved(planned.arm.mixer),
                backend=planned.runs[0].train.backend,
                same_as=planned.same_as,
                equal_function=None,
                ids=[run.id for run in planned.runs],
                timing=planned.timing_key,
            )
            for planned in self.arms
        ]
        return ExperimentFile(
            name=self.name,
            key=self.key,
            question=self.question,
            expectation=self.expectation,
            metric=self.metric,
            baseline=self.baseline,
            seeds=list(self.seeds),
            corpus=Corpus(
                name=self.source.name,
                sha256=self.source.fingerprint,
                description=self.source.description,
                tokenizer=self.tokenizer,
            ),
            settings=dict(self.settings),
            arms=rows,
            timing=timing,
            command=self.command,
        )


def with_seed(run: RunConfig, seed: int) -> RunConfig:
    """The same run at another seed."""
    return dataclasses.replace(run, train=dataclasses.replace(run.train, seed=seed))


def twin_of(planned: PlannedArm) -> PlannedArm:
    """An arm with the data of each seed and another start: its difference to the arm is noise, and nothing else."""
    runs = tuple(
        dataclasses.replace(run, train=dataclasses.replace(run.train, init_seed=TWIN + run.train.seed))
        for run in planned.runs
    )
    return dataclasses.replace(planned, label=f"{planned.label} twin", runs=runs, same_as=None)
