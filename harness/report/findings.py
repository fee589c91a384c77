"""What was measured inside the runs of an experiment, gathered from records by arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.records import ExperimentFile, MeasurementRecord, RunRecord, Store

SINK_FLOOR = 5.0
"""Percent of Sink_1 in plain softmax under which a setting shows no sink, and nothing can be said to cure one."""


@dataclass(frozen=True, eq=False)
class ArmFindings:
    """One arm.

    Args:
        label: of the arm.
        runs: records of its finished runs, in the order of the seeds.
        steps: measure -> for each run the records by step, oldest step first.
        load: gives the arrays beside a measurement.
    """

    label: str
    runs: tuple[RunRecord, ...]
    steps: Mapping[str, tuple[tuple[MeasurementRecord, ...], ...]]
    load: Callable[[MeasurementRecord], dict[str, NDArray[Any]]] = field(repr=False)

    def last(self, measure: str) -> list[MeasurementRecord]:
        """The measurement after the last step of each run that has one."""
        found = []
        for run, path in zip(self.runs, self.steps.get(measure, ()), strict=False):
            if path and path[-1].step == run.config["train"]["steps"]:
                found.append(path[-1])
        return found

    def values(self, measure: str, name: str) -> list[float]:
        """A value after the last step, one number a run that has it."""
        found = [record.values.get(name) for record in self.last(measure)]
        return [float(value) for value in found if isinstance(value, (int, float))]

    def by_seed(self, measure: str, name: str) -> dict[int, float]:
        """The same value by the seed of its run."""
        seeds = {run.id: int(run.config["train"]["seed"]) for run in self.runs}
        found = {seeds[record.run]: record.values.get(name) for record in self.last(measure)}
        return {seed: float(value) for seed, value in found.items() if isinstance(value, (int, float))}

    def lists(self, measure: str, name: str) -> NDArray[np.float64] | None:
        """A list of numbers after the last step, [runs, n]; none where no run has it."""
        found = [record.values.get(name) for record in self.last(measure)]
        rows = [value for value in found if isinstance(value, list)]
        return np.array(rows, dtype=np.float64) if rows else None

    def arrays(self, measure: str, name: str) -> NDArray[Any] | None:
        """An array after the last step, [runs, ...]; none where no run has it."""
        rows = [arrays[name] for record in self.last(measure) if name in (arrays := self.load(record))]
        return np.stack(rows) if rows else None

    def path(self, measure: str, name: str) -> tuple[NDArray[np.int64], NDArray[Any]] | None:
        """An array over the training of the first run: steps [n] and arrays [n, ...]."""
        for records in self.steps.get(measure, ()):
            there = [(record.step, arrays[name]) for record in records if name in (arrays := self.load(record))]
            if there:
                return np.array([step for step, _ in there]), np.stack([array for _, array in there])
        return None

    def reason(self, measure: str) -> str | None:
        """Why the measure is not defined for a run of this arm, where one says so."""
        found = [record.values.get("not_defined") for record in self.last(measure)]
        return next((str(reason) for reason in found if reason), None)

    def reasons(self, measure: str) -> list[str]:
        """What of the measure is not there for this arm, each with its reason, and for how many of its runs."""
        records = self.last(measure)
        without = [str(reason) for record in records if (reason := record.values.get("not_defined"))]
        some = f" for {len(without)} of {len(records)} runs" if len(without) < len(records) else ""
        found = [f"not defined{some}: {without[0]}"] if without else []
        for record in records[:1]:
            for name, value in record.values.items():
                if isinstance(value, str) and value.startswith("not defined: "):
                    found.append(f"{name.replace('_', ' ')} {value}")
                elif name == "not_measured":
                    found.append(f"not measured at {value}")
        return found


@dataclass(frozen=True, eq=False)
class Findings:
    """An experiment.

    Args:
        experiment: its index.
        arms: its arms, in their order.
        root: of the results.
        weights: whether each finished run's weights are there, which `measure` needs.
    """

    experiment: ExperimentFile
    arms: tuple[ArmFindings, ...]
    root: Path
    weights: bool

    @property
    def would(self) -> str:
        """What a reader can do about a measure that is not there."""
        if not any(arm.runs for arm in self.arms):
            return f"no run has finished; run it: {self.experiment.command or 'its comparison'}"
        if self.weights:
            return f"run.py measure {self.experiment.stem} --out {self.root} would"
        return "the weights it needs are not kept here: train into another folder (--out DIR), then run.py measure"

    @property
    def looked(self) -> bool:
        """Whether any arm was looked at before its last step."""
        return any(len(path) > 1 for arm in self.arms for paths in arm.steps.values() for path in paths)

    @property
    def baseline(self) -> ArmFindings:
        """The arm that the others are held against."""
        return next(arm for arm in self.arms if arm.label == self.experiment.baseline)

    def has(self, measure: str) -> bool:
        """Whether any arm has a finding of that measure."""
        return any("not_defined" not in record.values for arm in self.arms for record in arm.last(measure))

    @property
    def code(self) -> list[str]:
        """Where other code looked than trained, and where arms were looked at by different code."""
        foreign: dict[str, list[str]] = {}
        own: dict[str, set[str]] = {}
        for arm in self.arms:
            trained = {run.id: run.code_hash for run in arm.runs}
            for measure in sorted(arm.steps):
                hashes = [(trained[record.run], record.measured_by) for record in arm.last(measure)]
                if any(by and by["code"] != code for code, by in hashes):
                    foreign.setdefault(arm.label, []).append(measure)
                own.setdefault(measure, set()).update(by["measures"] for _, by in hashes if by)
        mixed = [measure for measure, found in sorted(own.items()) if len(found) > 1]
        lines = [
            f"{arm} was measured by other code than trained it: {', '.join(found)}" for arm, found in foreign.items()
        ]
        if mixed:
            lines.append(
                f"measured by different versions of the measures' code: {', '.join(mixed)}; --fresh measures again"
            )
        return lines

    @property
    def remark(self) -> list[str]:
        """What may be said of the sink: nothing of a cure where plain softmax has none."""
        plain = next((arm for arm in self.arms if _is_softmax(arm)), self.baseline)
        found = plain.values("sink", "sink_1_percent")
        if not found:
            return []
        own = sum(found) / len(found)
        if own < SINK_FLOOR:
            return [
                f"sink not reproduced in this setting: {plain.label} itself has Sink_1 of {own:.1f} %, under "
                f"{SINK_FLOOR:g} %; nothing can be said about who mitigates it"
            ]
        lines = [f"sink present: {plain.label} has Sink_1 of {own:.1f} % (epsilon 0.3, 64 tokens)"]
        return lines + [line for arm in self.arms if arm is not plain for line in _against(arm, plain)]


def _is_softmax(arm: ArmFindings) -> bool:
    return bool(arm.runs) and arm.runs[0].config.get("variant") == "softmax"


def _against(arm: ArmFindings, plain: ArmFindings) -> list[str]:
    """How an arm stands to plain softmax, seed by seed."""
    own = plain.by_seed("sink", "sink_1_percent")
    readings = [arm.by_seed("sink", f"sink_1{suffix}_percent") for suffix in ("", "_proxy")]
    raw, proxy = readings
    shared = own.keys() & raw.keys() & proxy.keys()
    if not shared:
        return []
    numbers = f"{arm.label}: Sink_1 {_mean(raw):.1f} % raw, {_mean(proxy):.1f} % by proxy"
    lower_raw, lower_proxy = (all(found[seed] < own[seed] for seed in shared) for found in readings)
    if lower_raw and lower_proxy:
        return [f"{numbers}; lower on every seed in both readings"]
    if lower_raw:
        return [f"{numbers}; lower on every seed in raw weights alone, which fall with the mass of a row"]
    return [f"{numbers}; not lower on every seed"]


def _mean(found: Mapping[int, float]) -> float:
    return sum(found.values()) / len(found)


class _Arrays:
    """Arrays beside measurements, each file read once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.read: dict[str, dict[str, NDArray[Any]]] = {}

    def __call__(self, record: MeasurementRecord) -> dict[str, NDArray[Any]]:
        """The arrays of a measurement, by name."""
        key = f"{record.stem}-{record.arrays}"
        if key not in self.read:
            self.read[key] = self.store.arrays(record)
        return self.read[key]


def findings(experiment: ExperimentFile, store: Store) -> Findings:
    """Gather what was measured; a measurement of a training that another has replaced is left out.

    Args:
        experiment: the index of arms and runs.
        store: the records.
    """
    ids = {id for arm in experiment.arms for id in arm["ids"]}
    newest: dict[tuple[str, str, int], MeasurementRecord] = {}
    for record in store.all_measurements():
        key = (record.run, record.measure, record.step)
        if record.run in ids and (key not in newest or record.version >= newest[key].version):
            newest[key] = record
    load = _Arrays(store)
    arms = []
    for arm in experiment.arms:
        runs = tuple(run for id in arm["ids"] if (run := store.run(id, None)) and run.status == "ok")
        measures = {key[1] for key in newest if key[0] in {run.id for run in runs}}
        steps = {measure: tuple(_path(run, measure, newest) for run in runs) for measure in measures}
        arms.append(ArmFindings(arm["label"], runs, steps, load))
    weights = all(store.weights_path(run.id).exists() for arm in arms for run in arm.runs)
    return Findings(experiment, tuple(arms), store.root, weights)


def _path(
    run: RunRecord, measure: str, newest: Mapping[tuple[str, str, int], MeasurementRecord]
) -> tuple[MeasurementRecord, ...]:
    found = [
        record
        for (id, name, _), record in newest.items()
        if id == run.id and name == measure and record.values.get("code_hash") == run.code_hash
    ]
    return tuple(sorted(found, key=lambda record: record.step))
