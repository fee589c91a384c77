"""A table of tuned arms: what its intervals are conditional on, and when a verdict is given.

One study chooses once for each arm. A difference between two arms then says how these settings compare, on seeds
that no trial has seen; how the variants compare, were each tuned again, it cannot say. So verdicts need several
studies, and the unit of the test is the study: seeds that share their settings are one observation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.records import ExperimentFile
from harness.report.formats import fixed, signed
from harness.report.rows import Row
from harness.statistics import LEVEL, MARGIN, Judgement, judge

ONE_STUDY = "one study"
"""In place of a verdict between arms that were tuned once."""

_OPEN = ("better", "worse", "not resolved")

Outcome = float | None


def tuning_of(experiment: ExperimentFile) -> Mapping[str, Any] | None:
    """How the arms of an experiment were tuned; none where they were not."""
    found: Mapping[str, Any] | None = experiment.settings.get("tuning")
    return found


def judge_tuned(
    values: Mapping[str, Sequence[Outcome]], baseline: str, same: Mapping[str, str], tuning: Mapping[str, Any]
) -> dict[str, Judgement]:
    """One judgement an arm: tuned arms are tested against the tuned baseline, arms at their defaults only shown.

    Args:
        values: outcome of each seed by arm, as `judge` takes them.
        baseline: a tuned arm.
        same: arm to the arm whose function it computes.
        tuning: of the experiment.

    Raises:
        UsageError: as `judge`.
    """
    studies, pairs = int(tuning["studies"]), tuning["pairs"]
    defaults = [label for label in pairs.values() if label in values]
    judged = judge(values, baseline=baseline, same_function=same, margin=MARGIN, level=LEVEL, descriptive=defaults)
    if studies == 1:
        return {label: _untested(found) if label in pairs else found for label, found in judged.items()}
    means = {label: _by_study(values[label], studies) for label in values if label in pairs}
    apart = {label: other for label, other in same.items() if label in means and other in means}
    tested = judge(means, baseline=baseline, same_function=apart, margin=MARGIN, level=LEVEL)
    return {
        label: dataclasses.replace(tested[label], failed=found.failed, missing=found.missing, seeds=found.seeds)
        if label in tested
        else found
        for label, found in judged.items()
    }


def _untested(found: Judgement) -> Judgement:
    if found.verdict in _OPEN or found.verdict.startswith("equal"):
        return dataclasses.replace(found, verdict=ONE_STUDY, p=None, resolvable=None, sign_flip_p=None)
    return found


def _by_study(outcomes: Sequence[Outcome], studies: int) -> list[Outcome]:
    """Mean of the seeds of each study: none while one is missing, nan where one failed."""
    found: list[Outcome] = []
    for study in range(studies):
        own = outcomes[study::studies]
        known = [value for value in own if value is not None]
        found.append(math.fsum(known) / len(known) if len(known) == len(own) else None)
    return found


def tuned_notes(experiment: ExperimentFile, rows: Sequence[Row]) -> list[str]:
    """The settings behind each tuned arm, what they gained over the defaults, and how far to trust a difference."""
    tuning = tuning_of(experiment)
    if tuning is None:
        return []
    found = [
        f"{label}: {' and '.join(dict.fromkeys(texts)).replace(',', ', ')}" for label, texts in tuning["chosen"].items()
    ]
    gains = _gains(rows, tuning["pairs"])
    if gains:
        found.append(f"tuned less defaults, the same seeds: {', '.join(gains)}")
    edges = [f"{label} {', '.join(names)}" for label, names in tuning["at_edge"].items()]
    if edges:
        found.append(f"best value at the edge of what was searched: {'; '.join(edges)}")
    return found


def _gains(rows: Sequence[Row], pairs: Mapping[str, str]) -> list[str]:
    by_label = {row.label: row for row in rows}
    found = []
    for tuned, plain in pairs.items():
        losses = zip(_losses(by_label[tuned]), _losses(by_label[plain]), strict=True)
        both = [a - b for a, b in losses if a is not None and b is not None]
        if both:
            found.append(f"{tuned.removesuffix(' tuned')} {signed(math.fsum(both) / len(both), 4)}")
    return found


def _losses(row: Row) -> list[float | None]:
    return [None if record is None else record.metrics.get("val_loss_nats") for record in row.records]


def tuned_reading(experiment: ExperimentFile) -> list[str]:
    """What an interval of a tuned arm means."""
    tuning = tuning_of(experiment)
    if tuning is None:
        return []
    if tuning["studies"] == 1:
        return [
            "tuned: chosen on the selection split by one study an arm, retrained here on fresh seeds; intervals are "
            "conditional on the chosen settings, so no verdict is given: --studies 3 gives one"
        ]
    return [
        f"tuned: {tuning['studies']} studies an arm chose on the selection split, each has its share of the seeds, "
        "whose mean is one observation"
    ]


def paired_by(experiment: ExperimentFile) -> str:
    """What one paired observation of a table is: a seed, or a study with its share of the seeds."""
    tuning = tuning_of(experiment)
    return "seed" if tuning is None or tuning["studies"] == 1 else "study"


def tuning_words(experiment: ExperimentFile) -> str | None:
    """How far the arms were tuned, for the line under the title; none where they were not."""
    tuning = tuning_of(experiment)
    if tuning is None:
        return None
    counts = sorted(set(tuning["searched"].values()))
    fields = fixed(counts[0], 0) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{tuning['words']}, {fields} field{'s' * (fields != '1')} searched"
