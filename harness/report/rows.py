"""What a table says, as data: rebuilt from records, drawn by the other files of this room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.records import ExperimentFile, ReferenceRow, RunRecord
from harness.statistics import Interval, NoiseFloor


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm.

    Args:
        label: how the table calls it.
        variant, config: the mixer and its resolved fields.
        backend: what its core ran on.
        parameters: trained numbers of the model; none where none was built.
        seeds: asked for.
        n: seeds that count for the difference, or for the mean where nothing is tested.
        failed: seeds that ended without a finite loss.
        missing: seeds without a record.
        value: primary metric on the report split, with the 95 % t interval of this arm alone.
        bits_per_byte: the same for bits per byte.
        difference: arm - baseline, with the simultaneous interval that the verdict uses.
        p: of the difference, adjusted for the comparisons of the table.
        resolvable: true difference that these seeds resolve with 80 % chance.
        verdict: `Judgement.verdict`.
        same_as: label of the row whose function it computes.
        step_ms: median time of a training step, milliseconds.
        peak_memory_bytes: what the model and its steps add to the process.
        stale: seeds whose record was made by other code than the present one.
        records: the records behind it, one a seed, none where there is none.
    """

    label: str
    variant: str
    config: Mapping[str, Any]
    backend: str
    parameters: int | None
    seeds: tuple[int, ...]
    n: int
    failed: int
    missing: int
    value: Interval | None
    bits_per_byte: Interval | None
    difference: Interval | None
    p: float | None
    resolvable: float | None
    verdict: str
    same_as: str | None
    step_ms: float | None
    peak_memory_bytes: int | None
    stale: int
    records: tuple[RunRecord | None, ...] = field(repr=False)

    @property
    def tested(self) -> bool:
        """Whether it takes part in the test: neither the baseline, nor another row's function, nor only shown."""
        return self.verdict not in ("baseline", "not tested") and self.same_as is None

    @property
    def record_ids(self) -> list[str]:
        """Ids of the records there are, in the order of the seeds."""
        return [record.id for record in self.records if record is not None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One experiment's table.

    Args:
        experiment: the index it was rebuilt from.
        arms: rows, in the experiment's order.
        references: trivial predictors on the same tokens; empty where they are not recorded.
        title: the question.
        subtitle: how the arms were set, data, size.
        reading: how to read the numbers: which interval is which, and the rule of the verdicts.
        fairness: what the arms share and where they differ.
        warnings: what makes the table less than it looks.
        notes: failed seeds, rows of one function, differences that could not be resolved.
        complete: whether every seed of every arm has a record.
        floor: the noise floor, where the arms are a baseline and its twin.
    """

    experiment: ExperimentFile
    arms: tuple[Row, ...]
    references: tuple[ReferenceRow, ...]
    title: str
    subtitle: str
    reading: list[str]
    fairness: list[str]
    warnings: list[str]
    notes: list[str]
    complete: bool
    floor: NoiseFloor | None = None

    @property
    def baseline(self) -> Row:
        """The row that the others are held against."""
        return next(row for row in self.arms if row.label == self.experiment.baseline)
