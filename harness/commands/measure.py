"""What `measure` does: weights of a recorded experiment in, measurement records out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath

import torch

from harness import environment, measures
from harness.config import RunConfig
from harness.data import Source, load
from harness.errors import RecordError, UsageError
from harness.execute import needed
from harness.experiment import Plan
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
        UsageError: no such measure, no finished run, or something is not recorded yet of a run without weights; no
            arm gives maps; no model can be run on longer sequences where that was asked for by name. Weights that
            cannot be used are said after all other runs were measured.
        RecordError: as late, a model that cannot be built any more.
    """
    names = measures.chosen(only)
    found = _finished(experiment, store)
    recorded = set() if fresh else _recorded(store)
    missing = {record.id: [name for name in names if _key(record, name) not in recorded] for _, record in found}
    owed = [(label, record) for label, record in found if missing[record.id]]
    if not owed:
        runs = f"{len(found)} runs" if len(found) > 1 else "the one run"
        notify(f"{runs} measured already: all of it is recorded, no weights are needed; --fresh measures again")
        return 0
    _check(owed, missing, store, only)
    store.check_writable()
    corpus = str(experiment.settings["data"]["corpus"])
    source = load(corpus, experiment.corpus["tokenizer"], cache=store.root / "cache")
    if source.fingerprint != experiment.corpus["sha256"]:
        raise UsageError(f"{corpus} is not the data of {experiment.name} any more: its SHA-256 differs")
    broken: list[RecordError | UsageError] = []
    for place, (label, record) in enumerate(found, 1):
        left, seed = missing[record.id], record.config["train"]["seed"]
        notify(f"[{place}/{len(found)}] {label}, seed {seed}: " + (", ".join(left) or "measured already"))
        if left:
            try:
                _take(record, store, source, left)
            except (RecordError, UsageError) as error:
                notify(f"[{place}/{len(found)}] {label}, seed {seed}: not measured: {error}")
                broken.append(error)
    if broken:
        raise broken[0]
    return sum(map(len, missing.values()))


def unwatched(planned: Plan, store: Store, *, every: int | None, fresh: bool) -> str | None:
    """One line where `--measure-every` will see less than was asked for, since recorded runs do not train again.

    Args:
        planned: the experiment.
        store: the records.
        every: steps between two looks.
        fresh: stale and failed runs train again.
    """
    if every is None:
        return None
    runs = planned.runs()
    recorded = [run for _, run in runs if not needed(store, run, fresh=fresh)]
    first = {(record.run, record.step) for record in store.all_measurements()} if recorded else set()
    unseen = [run for run in recorded if (run.id, min(every, run.train.steps)) not in first]
    if not unseen:
        return None
    return (
        f"--measure-every {every} sees runs while they train, and {len(unseen)} of {len(runs)} are recorded already, "
        "without such looks: for those train into another folder (--out DIR), or look at the trained models alone: "
        f"run.py measure {planned.name}-{planned.key} --out {store.root}"
    )


def _finished(experiment: ExperimentFile, store: Store) -> list[tuple[str, RunRecord]]:
    """Each finished run once, with the label of its first arm."""
    runs: dict[str, tuple[str, RunRecord]] = {}
    for arm in experiment.arms:
        for id in arm["ids"]:
            record = store.run(id, None)
            if record is not None and record.status == "ok":
                runs.setdefault(id, (arm["label"], record))
    if not runs:
        again = f"run it first: {experiment.command}" if experiment.command else "run its comparison first"
        raise UsageError(f"{experiment.name} has no finished run; {again}")
    return list(runs.values())


def _check(
    owed: Sequence[tuple[str, RunRecord]], missing: Mapping[str, Sequence[str]], store: Store, only: Collection[str]
) -> None:
    """Refuse what cannot be measured for any arm; what is not defined for one arm alone is that arm's finding."""
    runs = [(PurePath(label).name, RunConfig.from_dict(record.config)) for label, record in owed]
    for (label, record), (_, run) in zip(owed, runs, strict=True):
        if not store.weights_path(record.id).exists():
            raise UsageError(
                f"{label}, seed {run.train.seed} has no weights at {store.weights_path(record.id)}, and "
                f"{', '.join(missing[record.id])} not recorded; train it into another folder "
                "(--out DIR --keep-weights all) and measure there"
            )
        if run.train.device == "cuda" and not torch.cuda.is_available():
            raise UsageError(f"{label} was trained on CUDA, and torch sees no CUDA device here; measure it there")
    without = {name: reason for name, run in runs if (reason := _not_given(run))}
    wanted = {name for names in missing.values() for name in names}
    if wanted & set(measures.NEED_MAPS) and len(without) == len(dict(runs)):
        name, reason = next(iter(without.items()))
        others = " ".join(name for name in measures.NAMES if name not in measures.NEED_MAPS)
        raise UsageError(f"{name}: {reason}; measure what needs none: --only {others}")
    short = [measures.not_longer(run) for _, run in runs]
    if "extrapolation" in only and all(short):
        raise UsageError(f"{runs[0][0]} cannot read more than it was trained on: {short[0]}; leave extrapolation out")


def _not_given(run: RunConfig) -> str | None:
    """Why a variant just does not give what its maps are made from; one that has none by its nature has no reason."""
    specs = [mixer.spec for mixer in mixers(run)]
    if any(spec.reference is None or not hasattr(spec.Layer, "inputs") for spec in specs):
        return next(filter(None, map(measures.gives_maps, specs)))
    return None


def _recorded(store: Store) -> set[tuple[str, str, int, int, str]]:
    return {
        (record.run, record.measure, record.version, record.step, str(record.values.get("code_hash")))
        for record in store.all_measurements()
        if not record.values.get("small_probe") and not record.values.get("failed")
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
    now = environment.code_hash(run.variant, run.model.pattern)
    measures.write(store, run.id, run.train.steps, found, code_hash=record.code_hash, measuring=now)
