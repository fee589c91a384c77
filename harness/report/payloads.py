"""The table as the JSON that `--json` prints."""

from __future__ import annotations

from typing import Any

from harness.report.frames import number
from harness.report.rows import Result, Row
from harness.report.sizes import floor_payload, matching_payload
from harness.statistics import Interval


def payload(result: Result) -> dict[str, Any]:
    """The table as plain JSON types; null where there is no number, never NaN.

    Returns:
        `experiment`, `corpus`, `baseline`, `arms` in the order of the experiment, `references` by name. Of an arm,
        `seeds` and `failed` are counts, `records` the ids of its runs in the order of the seeds, and an interval is
        `mean`, `low`, `high`. `matching` and `noise_floor` are there where they were asked for.
    """
    experiment = result.experiment
    matching, floor = matching_payload(experiment), result.floor
    more = {"matching": matching, "noise_floor": floor_payload(floor) if floor else None}
    return {
        "experiment": experiment.name,
        "corpus": {"name": experiment.corpus["name"], "sha256": experiment.corpus["sha256"]},
        "baseline": experiment.baseline,
        "arms": [_arm(row, experiment.metric) for row in result.arms],
        "references": {
            row["name"]: {
                "val_loss_nats": number(row["nats_per_token"]),
                "val_bits_per_byte": number(row["bits_per_byte"]),
            }
            for row in result.references
        },
        **{name: value for name, value in more.items() if value is not None},
    }


def _arm(row: Row, metric: str) -> dict[str, Any]:
    difference = _interval(row.difference)
    return {
        "name": row.label,
        "variant": row.variant,
        "config": dict(row.config),
        "parameters": row.parameters,
        "seeds": len(row.seeds),
        metric: _interval(row.value),
        "val_bits_per_byte": _interval(row.bits_per_byte),
        "difference": None if difference is None else {**difference, "p": number(row.p)},
        "resolvable": number(row.resolvable),
        "verdict": row.verdict,
        "failed": row.failed,
        "backend": row.backend,
        "records": row.record_ids,
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"mean": number(interval.mean), "low": number(interval.low), "high": number(interval.high)}
