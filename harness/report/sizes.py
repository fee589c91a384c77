"""Whether the arms of a table are equally large: their costs, what was matched, and what is left between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.config import RunConfig
from harness.errors import RecordError
from harness.records import ExperimentFile, RunRecord
from harness.report.formats import NONE, finite, fixed, signed
from harness.report.rows import Row
from harness.statistics import LEVEL, NoiseFloor, noise_floor

NOTED = 0.01
"""Mismatch over which a table warns."""

UNMATCHED = 0.05
"""Mismatch over which an arm counts as not matched."""

_ON = {"parameters": ("parameters",), "flops": ("training_flops",), "state": ("state_bytes", "parameters")}
_WORDS = {"parameters": "parameters", "training_flops": "FLOPs a token", "state_bytes": "bytes of state"}
_BUDGETS = {"tokens": "equal tokens", "flops": "equal FLOPs", "seconds": "equal seconds"}


def terms(experiment: ExperimentFile) -> list[str]:
    """What the arms were made equal in, for the line under the title; tokens alone go without saying."""
    match, budget = experiment.settings.get("match"), experiment.settings.get("budget", "tokens")
    found = [f"matched in {'FLOPs a token' if match == 'flops' else match}"] if match else []
    return [*found, _BUDGETS[budget]] if budget != "tokens" else found


def costs_of(experiment: ExperimentFile) -> Mapping[str, Mapping[str, float]]:
    """Cost of each arm by label, as the plan knew it; arms without formulas are missing."""
    found: Mapping[str, Mapping[str, float]] = experiment.settings.get("costs") or {}
    return found


def mismatches(experiment: ExperimentFile) -> dict[str, dict[str, float]]:
    """What is left between each arm and the baseline in what they were matched on, as a share of the baseline's."""
    match, costs = experiment.settings.get("match"), costs_of(experiment)
    base = costs.get(experiment.baseline)
    if match is None or base is None:
        return {}
    return {
        label: {what: cost[what] / base[what] - 1 for what in _ON[match]}
        for label, cost in costs.items()
        if label != experiment.baseline
    }


def unmatched(experiment: ExperimentFile) -> frozenset[str]:
    """Labels of the arms that were to be matched and are further off than `UNMATCHED`."""
    return frozenset(
        label for label, off in mismatches(experiment).items() if any(abs(by) > UNMATCHED for by in off.values())
    )


def size_lines(experiment: ExperimentFile) -> list[str]:
    """Costs, matching and budget, a line each, where there is something to say."""
    costs = costs_of(experiment)
    labels = [arm["label"] for arm in experiment.arms]
    known = [costs[label] for label in labels if label in costs]
    if not known:
        return []
    length = experiment.settings["data"]["length"]
    words = [
        f"{_span(known, 'training_flops', _flops, ' FLOPs')} a token in training",
        f"after {length:,} tokens {_span(known, 'decode_flops', _flops, ' FLOPs')} to decode one more",
        f"and a state of {_span(known, 'state_bytes', lambda value: f'{value:,.0f}', ' bytes')}",
    ]
    missing = [label for label in labels if label not in costs and not label.endswith(" twin")]
    words += [f"no formulas: {', '.join(missing)}"] if missing else []
    return [f"cost: {'; '.join(words[:2])} {'; '.join(words[2:])}", *_matching(experiment), *_budget(experiment, known)]


def _matching(experiment: ExperimentFile) -> list[str]:
    found = mismatches(experiment)
    if not found:
        return []
    parts = []
    for what in _ON[experiment.settings["match"]]:
        label, off = max(((label, off[what]) for label, off in found.items()), key=lambda pair: abs(pair[1]))
        within = f"within {_percent(abs(off))} of {experiment.baseline}'s (largest: {label})"
        parts.append(f"{_WORDS[what]} {within if off else f'equal to those of {experiment.baseline}'}")
    return [f"matched: {'; '.join(parts)}"]


def _budget(experiment: ExperimentFile, known: Sequence[Mapping[str, float]]) -> list[str]:
    budget = experiment.settings.get("budget", "tokens")
    if budget == "tokens":
        return []
    steps = _span(known, "steps", lambda value: f"{value:,.0f}", " steps")
    line = f"budget: {_BUDGETS[budget]}, those of {experiment.baseline}; {steps}"
    left = _left(experiment)
    if left:
        label, off = max(left.items(), key=lambda pair: abs(pair[1]))
        line += f"; FLOPs in all within {_percent(abs(off))} of {experiment.baseline}'s (largest: {label})"
    return [line]


def _left(experiment: ExperimentFile) -> dict[str, float]:
    """What whole steps leave between the FLOPs of each arm's training and the baseline's, as a share of the latter."""
    costs = costs_of(experiment)
    base = costs.get(experiment.baseline)
    if experiment.settings.get("budget") != "flops" or base is None:
        return {}
    whole = base["steps"] * base["training_flops"]
    return {
        label: cost["steps"] * cost["training_flops"] / whole - 1
        for label, cost in costs.items()
        if label != experiment.baseline
    }


def size_warnings(experiment: ExperimentFile) -> list[str]:
    """Arms whose mismatch, in size or in the FLOPs of their whole training, is over `NOTED`."""
    told = [
        f"{label} {signed(100 * by, 1)} % {_WORDS[what]}"
        for label, off in mismatches(experiment).items()
        for what, by in off.items()
        if abs(by) > NOTED
    ]
    found = [f"sizes differ from {experiment.baseline}'s: {', '.join(told)}"] if told else []
    left = [f"{label} {signed(100 * by, 1)} %" for label, by in _left(experiment).items() if abs(by) > NOTED]
    whole = f"equal FLOPs are not reached in whole steps: {', '.join(left)} in all; more steps come closer"
    return [*found, whole] if left else found


def check_budget(experiment: ExperimentFile, records: Sequence[RunRecord]) -> None:
    """Refuse a table of equal tokens whose runs trained on different numbers of them.

    Raises:
        RecordError: they did.
    """
    if experiment.settings.get("budget") != "tokens":
        return
    runs = [RunConfig.from_dict(record.config) for record in records]
    counts = sorted({run.train.steps * run.train.batch_size * run.data.length for run in runs})
    if len(counts) > 1:
        raise RecordError(
            f"runs of {experiment.stem} trained on {counts[0]:,} to {counts[-1]:,} tokens: "
            "different budgets never share a table"
        )


def matching_payload(experiment: ExperimentFile) -> dict[str, Any] | None:
    """Costs and mismatches as JSON, where arms were matched or had another budget than tokens; else None."""
    settings, off, apart = experiment.settings, mismatches(experiment), unmatched(experiment)
    if settings.get("match") is None and settings.get("budget", "tokens") == "tokens":
        return None
    arms = {
        label: {**cost, "mismatch": off.get(label), "unmatched": label in apart}
        for label, cost in costs_of(experiment).items()
    }
    return {"match": settings.get("match"), "budget": settings.get("budget"), "arms": arms}


def planned_sizes(experiment: ExperimentFile, widths: Mapping[str, int]) -> list[dict[str, Any]]:
    """Size of each arm before it is trained, as JSON; costs are None where there are no formulas.

    Args:
        experiment: as planned.
        widths: hidden width of the MLP by arm.
    """
    costs, off, apart = costs_of(experiment), mismatches(experiment), unmatched(experiment)
    names = ("parameters", "training_flops", "state_bytes", "steps")
    return [
        {
            "arm": label,
            "mlp_dim": width,
            **{name: costs[label][name] if label in costs else None for name in names},
            "mismatch": off.get(label),
            "unmatched": label in apart,
        }
        for label, width in widths.items()
    ]


def floor_of(experiment: ExperimentFile, rows: Sequence[Row]) -> NoiseFloor | None:
    """The noise floor, where the experiment is a baseline and its twin."""
    if "twin" not in experiment.settings:
        return None
    base, twin = rows[0].records, rows[1].records
    pairs = [
        (one.metrics.get(experiment.metric), other.metrics.get(experiment.metric))
        for one, other in zip(base, twin, strict=True)
        if one is not None and other is not None
    ]
    finished = [(a, b) for a, b in pairs if a is not None and b is not None and finite(a) and finite(b)]
    return noise_floor(finished, experiment.settings["comparisons"], len(experiment.seeds))


def floor_notes(experiment: ExperimentFile, floor: NoiseFloor | None) -> list[str]:
    """The noise floor in words."""
    if floor is None:
        return []
    reach = ", ".join(f"{seeds} seeds {fixed(value, 4)}" for seeds, value in floor.resolvable.items())
    arms = f"{floor.comparisons} arm{'s' * (floor.comparisons > 1)}"
    return [
        f"noise floor of {experiment.baseline}: over {floor.n} seeds its difference to itself from another start has a "
        f"standard deviation of {fixed(floor.spread, 4)} (95 %: {fixed(floor.low, 4)} to {fixed(floor.high, 4)})",
        f"so a table of {arms} against it would resolve, with 80 % chance, a difference of: {reach}",
        *_null_tables(floor),
    ]


def _null_tables(floor: NoiseFloor) -> list[str]:
    if not floor.null:
        return []
    drawn = ", ".join(
        f"{null.arms} arm{'s' * (null.arms > 1)} x {null.seeds} seeds {fixed(100 * null.share, 1)} % "
        f"({fixed(100 * null.allowed, 1)} %)"
        for null in floor.null
    )
    together = sum(null.share for null in floor.null) / len(floor.null)
    return [
        f"{floor.null[0].tables:,} tables of each size, drawn from these {2 * floor.n} runs, in which nothing differs: "
        f"better or worse in {drawn}, in brackets what a rule that keeps its level stays under; together "
        f"{fixed(100 * together, 1)} % ({fixed(100 * LEVEL, 1)} %)"
    ]


def floor_payload(floor: NoiseFloor) -> dict[str, Any]:
    """The noise floor as JSON."""
    return {
        "pairs": floor.n,
        "spread": {"mean": floor.spread, "low": floor.low, "high": floor.high},
        "comparisons": floor.comparisons,
        "resolvable": {str(seeds): value for seeds, value in floor.resolvable.items()},
        "null_tables": [dataclasses.asdict(null) for null in floor.null],
    }


def _span(known: Sequence[Mapping[str, float]], name: str, write: Callable[[float], str], unit: str) -> str:
    """A value that all share, or the smallest and the largest with how far they lie apart."""
    low, high = min(cost[name] for cost in known), max(cost[name] for cost in known)
    if low == high:
        return write(low) + unit
    return f"{write(low)} to {write(high)}{unit} ({_percent(high / low - 1) if low else NONE} apart)"


def _flops(value: float) -> str:
    """FLOPs with four digits, in thousands or millions where they are many."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.0f}"


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 2 if share < 0.1 else 1 if share < 1 else 0)} %"
