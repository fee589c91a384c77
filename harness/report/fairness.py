"""What the arms of a table share, and where they differ: from their records, never from what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.config import RunConfig
from harness.records import ExperimentFile, RunRecord
from harness.report.formats import fixed, listing, number, span
from harness.report.rows import Row
from harness.report.sizes import size_lines, terms
from harness.report.tuned import tuning_words


def recorded(rows: Sequence[Row]) -> list[RunRecord]:
    """Every record behind the rows, in their order."""
    return [record for row in rows for record in row.records if record is not None]


def subtitle(experiment: ExperimentFile, rows: Sequence[Row]) -> str:
    """How far the arms were tuned, on what data, with how many seeds."""
    rates = sorted({run.train.learning_rate for run in _runs(rows)})
    if found := tuning_words(experiment):
        tuning = found
    elif len(rates) > 1:
        tuning = f"untuned: learning rates set by hand, {rates[0]:g} to {rates[-1]:g}"
    else:
        tuning = "untuned: one learning rate for all" + (f" ({rates[0]:g})" if rates else "")
    seeds = f"{len(experiment.seeds)} seed{'s' * (len(experiment.seeds) != 1)}"
    pattern = experiment.settings.get("model", {}).get("pattern")
    hybrid = [f"layers of every arm: {pattern} in turn"] if pattern else []
    tuning = " · ".join([tuning, *hybrid, *terms(experiment)])
    return f"{tuning} · {experiment.corpus['name']}, {experiment.corpus['tokenizer']} · {seeds}"


def fairness(experiment: ExperimentFile, rows: Sequence[Row]) -> list[str]:
    """The lines under the table: sizes, runs, precision and backends, data, environment.

    Args:
        experiment: names the data.
        rows: of the table; their records say the rest.

    Returns:
        One line a subject; those without a record behind them are left out.
    """
    records, runs = recorded(rows), _runs(rows)
    data = f"data: {experiment.corpus['description']}; SHA-256 {experiment.corpus['sha256'][:12]}"
    if not records:
        return [data]
    sizes = [_sizes(rows, runs), *size_lines(experiment)]
    return [*sizes, _seeds(experiment, rows), _place(rows, runs), data, _environment(records)]


def _runs(rows: Sequence[Row]) -> list[RunConfig]:
    return [RunConfig.from_dict(record.config) for record in recorded(rows)]


def _sizes(rows: Sequence[Row], runs: Sequence[RunConfig]) -> str:
    sizes = [row.parameters for row in rows if row.parameters is not None]
    words = []
    if sizes:
        apart = f" ({fixed(100 * (max(sizes) / min(sizes) - 1), 1)} % apart)" if len(set(sizes)) > 1 else ""
        words.append(f"parameters: {span(sizes)}{apart}")
    models = [run.model for run in runs]
    words.append(
        f"{_counted([m.num_layers for m in models], 'layer')}, width {span([m.model_dim for m in models])}, "
        f"{_counted([m.num_heads for m in models], 'head')}"
    )
    tokens = [run.train.steps * run.train.batch_size * run.data.length for run in runs]
    lengths = [run.data.length for run in runs]
    words.append(f"trained on {span(tokens)} tokens in sequences of {span(lengths)}")
    return ("" if sizes else "model: ") + "; ".join(words)


def _counted(numbers: Sequence[int], word: str) -> str:
    return f"{span(numbers)} {word}{'s' * (set(numbers) != {1})}"


def _seeds(experiment: ExperimentFile, rows: Sequence[Row]) -> str:
    # Two arms of one function on one backend are the same runs.
    asked = {id for arm in experiment.arms for id in arm["ids"]}
    ended = {record.id: record.status for record in recorded(rows)}
    failed = sum(status != "ok" for status in ended.values())
    shared = "one data order for both, another start for the twin"
    if "twin" not in experiment.settings:
        shared = "one start and one data order for all arms"
    seeds = f"seeds: {number(experiment.seeds)}, each with {shared}"
    missing = [f"not run yet: {len(asked) - len(ended)} of {len(asked)}"] if len(ended) < len(asked) else []
    return "; ".join([seeds, f"failures: {failed} of {len(ended)} runs", *missing])


def _place(rows: Sequence[Row], runs: Sequence[RunConfig]) -> str:
    trains = [run.train for run in runs]
    precision = listing([train.dtype for train in trains])
    device = listing([train.device for train in trains])
    compiled = ", compiled" if any(train.compile for train in trains) else ""
    threads = span([train.threads for train in trains])
    backends = listing([row.backend for row in rows])
    return f"precision: {precision} on {device}{compiled}, threads a run: {threads}; backends: {backends}"


def _environment(records: Sequence[RunRecord]) -> str:
    def all_of(name: str) -> str:
        return listing([str(record.environment.get(name)) for record in records])

    places = [f"Python {all_of('python')}", f"torch {all_of('torch')}", f"{all_of('cpu')} ({all_of('cores')} cores)"]
    if any(record.environment.get("gpu") for record in records):
        places.append(f"GPU {all_of('gpu')}")
    return f"environment: {', '.join(places)}; code: {listing([_commit(record) for record in records])}"


def _commit(record: RunRecord) -> str:
    if record.commit is None:
        return "not under version control"
    return f"commit {record.commit[:8]}" + (" with changes" if record.dirty else "")


def mixed(records: Sequence[RunRecord]) -> list[str]:
    """What differs between the environments of the records, as `torch 2.9.0 and 2.13.0`."""
    # What a kernel reserves of the memory changes from boot to boot.
    names = dict.fromkeys(name for record in records for name in record.environment if name != "memory_bytes")
    found: dict[str, list[Any]] = {
        name: list(dict.fromkeys(str(record.environment.get(name)) for record in records)) for name in names
    }
    return [f"{name} {' and '.join(values)}" for name, values in found.items() if len(values) > 1]
