"""What `measure` does: weights of a recorded experiment in, measurement records out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import PurePath

import torch

from harness import measures
from harness.config import RunConfig
from harness.data import Source, load
from harness.errors import RecordError, UsageError
from harness.records import ExperimentFile, RunRecord, Store
from harness.train import build_model, load_weights
from harness.train.build import mixers


def interval(every: int | None) -> int | None:
    """The steps between two looks, unless they mean nothing.

    Raises:
        UsageError: it is below 1.
    """
    if every is not None and every < 1:
        raise UsageError(f"--measure-every {every}: allowed is a whole number of steps of at least 1, such as 100")
    return every


def measure(
    experiment: ExperimentFile,
    store: Store,
    *,
    only: Collection[str] = (),
    fresh: bool = False,
    notify: Callable[[str], None],
) -> int:
    """Measure every finished run of an experiment on its final weights; what is recorded already is left alone.

    Args:
        experiment: the index of arms and runs.
        store: the records and weights.
        only: measures; all unless given.
        fresh: measure again what is recorded.
        notify: told of each run.

    Returns:
        How many measurements were taken.

    Raises:
        UsageError: no such measure, a run without weights, a variant without maps, a model that cannot be run on
            longer sequences where that was asked for by name, or no finished run.
    """
    names = measures.chosen(only)
    found = _finished(experiment, store)
    for label, record in found:
        _check(label, record, store, names, only)
    corpus = str(experiment.settings["data"]["corpus"])
    source = load(corpus, experiment.corpus["tokenizer"], cache=store.root / "cache")
    if source.fingerprint != experiment.corpus["sha256"]:
        raise UsageError(f"{corpus} is not the data of {experiment.name} any more: its SHA-256 differs")
    recorded = {} if fresh else _recorded(store)
    taken = 0
    for place, (label, record) in enumerate(found, 1):
        missing = [name for name in names if _key(record, name) not in recorded]
        seed = record.config["train"]["seed"]
        notify(f"[{place}/{len(found)}] {label}, seed {seed}: " + (", ".join(missing) or "measured already"))
        if missing:
            _take(record, store, source, missing)
        taken += len(missing)
    return taken


def _finished(experiment: ExperimentFile, store: Store) -> list[tuple[str, RunRecord]]:
    """Each finished run once, with the label of its first arm."""
    runs: dict[str, tuple[str, RunRecord]] = {}
    for arm in experiment.arms:
        for id in arm["ids"]:
            record = store.run(id, None)
            if record is not None and record.status == "ok":
                runs.setdefault(id, (arm["label"], record))
    if not runs:
        raise UsageError(f"{experiment.name} has no finished run; run its comparison first")
    return list(runs.values())


def _check(label: str, record: RunRecord, store: Store, names: Collection[str], only: Collection[str]) -> None:
    run = RunConfig.from_dict(record.config)
    path = store.weights_path(record.id)
    if not path.exists():
        raise UsageError(
            f"{label}, seed {run.train.seed} has no weights at {path}; train it with --keep-weights all (--fresh where "
            "its record stands)"
        )
    if run.train.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"{label} was trained on CUDA, and torch sees no CUDA device here; measure it there")
    without = [reason for mixer in mixers(run) if (reason := measures.gives_maps(mixer.spec))]
    if without and (set(names) & set(measures.NEED_MAPS)) and _is_owed(run):
        others = " ".join(name for name in measures.NAMES if name not in measures.NEED_MAPS)
        raise UsageError(f"{PurePath(label).name}: {without[0]}; measure what needs none: --only {others}")
    reason = measures.not_longer(run)
    if reason is not None and "extrapolation" in only:
        raise UsageError(f"{label} cannot read more than it was trained on: {reason}; leave extrapolation out")


def _is_owed(run: RunConfig) -> bool:
    """Whether a variant just does not give what its maps are made from; one that has none by its nature says so."""
    return any(mixer.spec.reference is None or not hasattr(mixer.spec.Layer, "inputs") for mixer in mixers(run))


def _recorded(store: Store) -> dict[tuple[str, str, int, int, str], bool]:
    return {
        (record.run, record.measure, record.version, record.step, str(record.values.get("code_hash"))): True
        for record in store.all_measurements()
        if not record.values.get("small_probe")
    }


def _key(record: RunRecord, name: str) -> tuple[str, str, int, int, str]:
    return record.id, name, measures.VERSIONS[name], record.config["train"]["steps"], record.code_hash


def _take(record: RunRecord, store: Store, source: Source, names: Collection[str]) -> None:
    run = RunConfig.from_dict(record.config)
    torch.set_num_threads(run.train.threads)
    try:
        model = build_model(run, vocab_size=source.vocab_size)
    except ValueError as error:
        raise RecordError(f"the model of run {record.id} cannot be built any more: {error}") from error
    load_weights(store.weights_path(record.id), model)
    found = measures.measure(model, run, source, names)
    measures.write(store, run.id, run.train.steps, found, code_hash=record.code_hash)
