"""From records to a table: nothing in it is remembered from the training itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import environment
from harness.config import RunConfig
from harness.errors import RecordError, UsageError
from harness.records import Arm, ExperimentFile, ReferenceRecord, RunRecord, Store, TimingRecord
from harness.report.fairness import fairness, subtitle
from harness.report.remarks import notes, reading, warnings
from harness.report.rows import Result, Row
from harness.report.sizes import check_budget, floor_notes, floor_of
from harness.report.tuned import judge_tuned, paired_by, tuned_notes, tuned_reading, tuning_of
from harness.statistics import LEVEL, MARGIN, Interval, Judgement, judge

BITS = "val_bits_per_byte"

Records = tuple[RunRecord | None, ...]
Code = tuple[str, str | None]
"""A variant, and the pattern of variants around it where a model has one."""


def result(experiment: ExperimentFile, store: Store, *, present: bool = True) -> Result:
    """The table of an experiment as its records give it now, partial where some are missing.

    Args:
        experiment: the index of arms and runs.
        store: the records.
        present: hold the rows against the code as it is now, so that stale ones are marked; tables on disk say what
            was recorded and do not change when code does.

    Returns:
        The table.

    Raises:
        RecordError: a record belongs to other data, another seed, or lacks the primary metric.
    """
    current = _Codes() if present else _NoCodes()
    found = {arm["label"]: _records(arm, store, current) for arm in experiment.arms}
    for label, records in found.items():
        _check(label, records, experiment)
    check_budget(experiment, [record for records in found.values() for record in records if record is not None])
    same = _same_function(experiment)
    judged = _judge(found, experiment.metric, experiment, same)
    bits = _judge(found, BITS, experiment, same)
    timing = store.timing(experiment.timing) if experiment.timing else None
    rows = tuple(
        _row(arm, experiment.seeds, found[name], judged[name], bits[name].value, same.get(name), timing, current)
        for arm in experiment.arms
        for name in [arm["label"]]
    )
    floor = floor_of(experiment, rows)
    reference = _reference(experiment, store)
    trivial = tuple(reference.rows) if reference else ()
    return Result(
        experiment=experiment,
        arms=rows,
        references=trivial,
        title=f"{experiment.stem}: {experiment.question or f'{len(rows)} arms, held against {experiment.baseline}'}",
        subtitle=subtitle(experiment, rows),
        reading=[*tuned_reading(experiment), *reading(rows, trivial, unit=paired_by(experiment))],
        fairness=fairness(experiment, rows),
        warnings=warnings(experiment, rows, trivial, timing, current.gone),
        notes=[*floor_notes(experiment, floor), *tuned_notes(experiment, rows), *notes(experiment, rows)],
        complete=not any(row.missing for row in rows),
        floor=floor,
    )


class _Codes:
    """Hash of the present code of each variant; None for a user's file that is gone."""

    def __init__(self) -> None:
        self.known: dict[Code, str | None] = {}

    def __call__(self, code: Code) -> str | None:
        if code not in self.known:
            try:
                self.known[code] = environment.code_hash(*code)
            except OSError:
                self.known[code] = None
        return self.known[code]

    @property
    def gone(self) -> list[str]:
        """Variants whose file cannot be read."""
        return list(dict.fromkeys(variant for (variant, _), code in self.known.items() if code is None))


class _NoCodes(_Codes):
    """No present code: nothing is stale, nothing is gone."""

    def __call__(self, code: Code) -> str | None:
        return None


def _records(arm: Arm, store: Store, current: Callable[[Code], str | None]) -> Records:
    return tuple(_record(id, store, current) for id in arm["ids"])


def _record(id: str, store: Store, current: Callable[[Code], str | None]) -> RunRecord | None:
    # A user's variant is known by its path, and the path by the record alone: so any record comes first.
    newest = store.run(id, None)
    if newest is None or newest.code_hash == current(_code(newest)):
        return newest
    return store.run(id, current(_code(newest)))


def _code(record: RunRecord) -> Code:
    pattern = (record.config.get("model") or {}).get("pattern")
    return str(record.config.get("variant")), pattern


def _check(label: str, records: Records, experiment: ExperimentFile) -> None:
    """Rows that were trained or scored on other tokens never share a table."""
    asked = _scored(experiment)
    for record, seed in zip(records, experiment.seeds, strict=True):
        if record is None:
            continue
        try:
            run = RunConfig.from_dict(record.config)
        except UsageError as error:
            raise RecordError(f"run {record.id} of {label}: {error}") from error
        if run.fingerprint != experiment.corpus["sha256"]:
            raise RecordError(
                f"run {record.id} of {label} was trained on other data (SHA-256 {run.fingerprint[:12]}) than this "
                f"table ({experiment.corpus['sha256'][:12]}); rows of different data never share a table"
            )
        if (run.data.length, run.data.report_tokens) != asked:
            raise RecordError(f"run {record.id} of {label} was scored on other tokens of the report split")
        if run.train.seed != seed:
            raise RecordError(f"run {record.id} of {label} has seed {run.train.seed}, not {seed}")
        if record.status == "ok" and experiment.metric not in record.metrics:
            raise RecordError(f"run {record.id} of {label} has no {experiment.metric}, the table's metric")


def _same_function(experiment: ExperimentFile) -> dict[str, str]:
    """Arm -> the row whose function it computes; the baseline stands for its own group, even when it came later."""
    same = {arm["label"]: arm["same_as"] for arm in experiment.arms if arm["same_as"] is not None}
    first = same.pop(experiment.baseline, None)
    if first is not None:
        group = [first, *(label for label, other in same.items() if other == first)]
        same |= dict.fromkeys(group, experiment.baseline)
    return same


def _judge(
    found: Mapping[str, Records], metric: str, experiment: ExperimentFile, same: Mapping[str, str]
) -> dict[str, Judgement]:
    values = {label: [_outcome(record, metric) for record in records] for label, records in found.items()}
    tuning, baseline = tuning_of(experiment), experiment.baseline
    if tuning is not None:
        return judge_tuned(values, baseline, same, tuning)
    return judge(values, baseline=baseline, same_function=same, margin=MARGIN, level=LEVEL)


def _outcome(record: RunRecord | None, metric: str) -> float | None:
    """The value of a run; nan where it failed, None where it has not run."""
    if record is None:
        return None
    value = record.metrics.get(metric) if record.status == "ok" else None
    return math.nan if value is None else value


def _row(
    arm: Arm,
    seeds: Sequence[int],
    records: Records,
    judged: Judgement,
    bits: Interval | None,
    same_as: str | None,
    timing: TimingRecord | None,
    current: Callable[[Code], str | None],
) -> Row:
    there = [record for record in records if record is not None]
    codes = [(record.code_hash, current(_code(record))) for record in there]
    measured: Mapping[str, Any] = timing.arms.get(arm["timing"], {}) if timing else {}
    return Row(
        label=arm["label"],
        variant=arm["variant"],
        config=arm["config"],
        backend=arm["backend"],
        parameters=next((record.parameters for record in there if record.parameters is not None), None),
        seeds=tuple(seeds),
        n=judged.n,
        failed=judged.failed,
        missing=judged.missing,
        value=judged.value,
        bits_per_byte=bits,
        difference=judged.difference,
        p=judged.p,
        resolvable=judged.resolvable,
        verdict=judged.verdict,
        same_as=same_as,
        step_ms=measured.get("step_ms"),
        peak_memory_bytes=measured.get("peak_memory_bytes"),
        stale=sum(present is not None and recorded != present for recorded, present in codes),
        records=records,
    )


def _reference(experiment: ExperimentFile, store: Store) -> ReferenceRecord | None:
    return store.reference(experiment.corpus["sha256"], *_scored(experiment))


def _scored(experiment: ExperimentFile) -> tuple[int, int]:
    """Length of a sequence and tokens of the report split that every arm is scored on."""
    try:
        data = experiment.settings["data"]
        return int(data["length"]), int(data["report_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"experiment {experiment.stem} does not say what it was scored on") from error
