"""The sentences under a table: how to read it, what is wrong with it, and what happened to its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from harness.records import ExperimentFile, ReferenceRow, TimingRecord
from harness.report.columns import DIGITS, STALE
from harness.report.fairness import mixed, recorded
from harness.report.formats import finite, fixed, number
from harness.report.rows import Row
from harness.report.sizes import size_warnings
from harness.statistics import LEVEL, MARGIN


def reading(rows: Sequence[Row], references: Sequence[ReferenceRow], *, unit: str = "seed") -> list[str]:
    """Which interval is which, the rule behind the verdicts, and what the other columns are.

    Args:
        rows, references: of the table.
        unit: what one paired observation is.
    """
    tests, sure = sum(row.tested for row in rows), f"{fixed(100 * (1 - LEVEL), 0)} %"
    lines = [f"loss: on the report split, after the last step; ± spans the {sure} interval of that arm, not the test"]
    if any(row.difference for row in rows):
        several = f" of all {tests} comparisons together" if tests > 1 else ""
        adjusted = f", adjusted for {tests} comparisons" if tests > 1 else ""
        lines += [
            f"difference: to the baseline, paired by {unit}; ± spans the {sure} interval{several}; its spread is the "
            "larger of the arm's own and the mean over the arms of this table",
        ]
    if any(row.p is not None for row in rows):
        lines += [
            f"verdict: better or worse if that interval leaves 0 out and the difference is at least {MARGIN:g}, equal "
            f"if it lies within ± {MARGIN:g}; p is of the same test{adjusted}",
        ]
    if any(row.step_ms is not None for row in rows):
        lines.append("step: median, measured apart from the runs, arms in turn; memory is what model and steps add")
    if references:
        names = ", ".join(row["name"] for row in references)
        lines.append(f"for scale: {names}: trivial predictors, fitted on train, scored on the same tokens as the arms")
    return lines


def warnings(
    experiment: ExperimentFile,
    rows: Sequence[Row],
    references: Sequence[ReferenceRow],
    timing: TimingRecord | None,
    gone: Sequence[str],
) -> list[str]:
    """What makes the table less than it looks, one line each.

    Args:
        experiment: names the seeds.
        rows: of the table.
        references: trivial rows, as far as they are recorded.
        timing: the record behind step times.
        gone: variants whose file can no longer be read.
    """
    records = recorded(rows)
    found = [*_partial(rows), *_stale(rows), *_baseline(experiment, rows), *_untrained(rows, references)]
    found += size_warnings(experiment)
    differing = mixed(records)
    if differing:
        found.append(f"mixed environments: {'; '.join(differing)}; a machine or a version can change a loss")
    if timing and any(timing.environment.get("cpu") != record.environment.get("cpu") for record in records):
        found.append(f"step times were measured on another machine than some runs: {timing.environment.get('cpu')}")
    found += [f"{PurePath(path).name} is gone: whether its rows are stale is unknown" for path in gone]
    return found


def _partial(rows: Sequence[Row]) -> list[str]:
    missing = sum(row.missing for row in rows)
    if not missing:
        return []
    places = [f"{row.label} {row.missing} of {len(row.seeds)} seeds" for row in rows if row.missing]
    return [f"partial: not run yet: {', '.join(places)}; everything above may still change"]


def _stale(rows: Sequence[Row]) -> list[str]:
    stale = [row for row in rows if row.stale]
    if not stale:
        return []
    found = [f"stale ({STALE}): shipped code changed since these rows were recorded; --fresh trains them again"]
    if any(len({record.code_hash for record in recorded([row])}) > 1 for row in rows) or len(stale) < len(rows):
        found.append("mixed code: rows or seeds of this table were recorded by different code; do not compare them")
    return found


def _baseline(experiment: ExperimentFile, rows: Sequence[Row]) -> list[str]:
    baseline = next(row for row in rows if row.label == experiment.baseline)
    if baseline.value is None and any(row.tested for row in rows):
        return [f"the baseline {baseline.label} has no finished seed: nothing can be held against it"]
    if len(experiment.seeds) == 1:
        return ["one seed says nothing about noise: no interval and no verdict; --seeds 5 gives usable ones"]
    return []


def _untrained(rows: Sequence[Row], references: Sequence[ReferenceRow]) -> list[str]:
    bar = next((row["bits_per_byte"] for row in references if row["name"] == "order-1"), None)
    if bar is None:
        return []
    above = [row.label for row in rows if row.bits_per_byte is not None and row.bits_per_byte.mean >= bar]
    return [f"not below order-1, which counts pairs of tokens: {', '.join(above)}"] if above else []


def notes(experiment: ExperimentFile, rows: Sequence[Row]) -> list[str]:
    """What happened to single rows: failures with their reason, one function twice, what was out of reach."""
    found = [line for row in rows for line in _failures(row)]
    for row in rows:
        equal = next((arm["equal_function"] for arm in experiment.arms if arm["label"] == row.label), None)
        if row.same_as is not None:
            found.append(f"{row.label} computes the same function as {row.same_as}: it is shown, not tested")
        elif equal is not None:
            found.append(f"{row.label} computes the same function as {equal}, by its own file")
        if row.verdict == "identical":
            found.append(f"{row.label} ends in the bits of {experiment.baseline}: most likely the same function")
    reach = [
        f"{row.label} {fixed(row.resolvable, DIGITS)}"
        for row in rows
        if row.verdict == "not resolved" and finite(row.resolvable)
    ]
    if reach:
        found.append(f"not resolved; with 80 % chance these seeds would have shown a difference of: {', '.join(reach)}")
    if experiment.notes:
        found.append(experiment.notes)
    return found


def _failures(row: Row) -> list[str]:
    """One line for each way in which seeds of a row failed, with the reason of the first."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for record, seed in zip(row.records, row.seeds, strict=True):
        if record is not None and record.status != "ok":
            kinds.setdefault(record.status, []).append((seed, record.error or "no reason recorded"))
    return [
        f"{row.label}: {len(ended)} of {len(row.seeds)} {status} "
        f"(seed{'s' * (len(ended) > 1)} {number([seed for seed, _ in ended])}): {reason}"
        for status, ended in kinds.items()
        for _, reason in ended[:1]
    ]
