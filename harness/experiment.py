"""Arms x seeds as data: what a comparison will train, resolved and checked before the first step."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.arms import Arm, function_of, parse
from harness.config import SECTIONS, DataConfig, RunConfig, canonical
from harness.data import Source, load
from harness.errors import UsageError, unknown
from harness.fields import build, identity, resolved
from harness.presets import PRESETS, Settings
from harness.records import Arm as ArmRow
from harness.records import Corpus, ExperimentFile
from harness.registry import choose_backend
from harness.spec import Dims


@dataclass(frozen=True)
class PlannedArm:
    """An arm with its runs.

    Args:
        label: how the table calls it.
        arm: the arm.
        runs: one a seed, in the order of the experiment's seeds.
        same_as: label of an earlier arm that computes the same function.
    """

    label: str
    arm: Arm
    runs: tuple[RunConfig, ...]
    same_as: str | None

    @property
    def timing_key(self) -> str:
        """What its step time depends on: everything of a run but its seed."""
        return with_seed(self.runs[0], 0).id


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment, resolved.

    Args:
        name: of the experiment.
        question, expectation, metric: as declared.
        baseline: label of the arm that the others are held against.
        seeds: in table order.
        arms: the rows.
        source: the data of all arms.
        corpus, tokenizer: how workers load it again.
        settings: preset and shared sections, for the reader.
    """

    name: str
    question: str
    expectation: str
    metric: str
    baseline: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    source: Source
    corpus: str
    tokenizer: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Short hash of what it asks for: arms, baseline, seeds."""
        asked = [self.metric, self.baseline, list(self.seeds)]
        asked += [[arm.label, [run.id for run in arm.runs]] for arm in self.arms]
        return hashlib.sha256(canonical(asked).encode()).hexdigest()[:8]

    def runs(self) -> list[tuple[str, RunConfig]]:
        """Every run once, with the label of the first arm that needs it; seeds outer, arms inner."""
        ordered = [(arm.label, arm.runs[index]) for index in range(len(self.seeds)) for arm in self.arms]
        return list({run.id: (label, run) for label, run in reversed(ordered)}.values())[::-1]

    def file(self, *, timing: str | None = None) -> ExperimentFile:
        """The index that maps arms to runs."""
        rows = [
            ArmRow(
                label=planned.label,
                variant=planned.arm.variant.spec.name,
                config=resolved(planned.arm.mixer),
                backend=planned.runs[0].train.backend,
                same_as=planned.same_as,
                equal_function=None,
                ids=[run.id for run in planned.runs],
                timing=planned.timing_key,
            )
            for planned in self.arms
        ]
        return ExperimentFile(
            name=self.name,
            key=self.key,
            question=self.question,
            expectation=self.expectation,
            metric=self.metric,
            baseline=self.baseline,
            seeds=list(self.seeds),
            corpus=Corpus(
                name=self.source.name,
                sha256=self.source.fingerprint,
                description=self.source.description,
                tokenizer=self.tokenizer,
            ),
            settings=dict(self.settings),
            arms=rows,
            timing=timing,
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks for, before anything of it is looked up.

    Args:
        name: of the experiment.
        arms: as written, the baseline first unless `baseline` names another.
        baseline: label or text of an arm.
        seeds: how many, from 0.
        preset: name of a preset.
        sets: `section.field` to its value.
        settings: fields that a declared experiment fixes, under `sets`.
        cache: folder for trained tokenizers.
        question, expectation, metric: as declared.
    """

    name: str
    arms: Sequence[str]
    baseline: str | None = None
    seeds: int = 5
    preset: str = "quick"
    sets: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    cache: Path | None = None
    question: str = ""
    expectation: str = ""
    metric: str = "val_loss_nats"


def plan(request: Request, *, cuda: bool) -> Plan:
    """Resolve a request: every name looked up, every value checked, the data loaded and large enough.

    Args:
        request: what was asked.
        cuda: whether a CUDA device is there, for `device=auto`.

    Raises:
        UsageError: anything that would fail later for a reason that is known now.
    """
    if request.seeds < 1:
        raise UsageError(f"--seeds {request.seeds}: allowed is a whole number of at least 1; 5 give usable intervals")
    shared = sections(request)
    parsed = [parse(text) for text in request.arms]
    data: DataConfig = build(DataConfig, shared["data"], where="data")
    source = load(data.corpus, data.tokenizer, cache=request.cache)
    source.check(length=data.length, tokens=max(data.report_tokens, data.curve_tokens))
    planned: list[PlannedArm] = []
    functions: dict[Any, str] = {}
    for arm in parsed:
        first = _first_run(arm, shared, source, cuda=cuda)
        runs = tuple(with_seed(first, seed) for seed in range(request.seeds))
        _refuse_twice(arm, runs, planned)
        function = canonical([function_of(arm), _without_backend(runs[0])])
        planned.append(PlannedArm(arm.label, arm, runs, functions.get(function)))
        functions.setdefault(function, arm.label)
    settings = {"preset": request.preset, **{name: resolved(getattr(planned[0].runs[0], name)) for name in SECTIONS}}
    return Plan(
        name=request.name,
        question=request.question,
        expectation=request.expectation,
        metric=request.metric,
        baseline=_baseline(request.baseline, planned),
        seeds=tuple(range(request.seeds)),
        arms=tuple(planned),
        source=source,
        corpus=data.corpus,
        tokenizer=data.tokenizer,
        settings=settings,
    )


def sections(request: Request) -> dict[str, dict[str, Any]]:
    """Fields of each section that differ from its defaults: preset, then declared settings, then `--set`.

    Raises:
        UsageError: no such preset, section or field.
    """
    if request.preset not in PRESETS:
        raise unknown("preset", request.preset, PRESETS)
    shared: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for settings in (PRESETS[request.preset], request.settings):
        for name, values in settings.items():
            shared[name].update(values)
    for path, value in request.sets.items():
        name, dot, inner = path.partition(".")
        if not dot or name not in SECTIONS:
            raise UsageError(
                f"--set {path}={value}: write section.field=value with a section of {', '.join(SECTIONS)}; "
                "fields of a variant go into its arm, e.g. 'lazy[tau_start=-0.5]'"
            )
        shared[name][inner] = value
    return shared


def with_seed(run: RunConfig, seed: int) -> RunConfig:
    """The same run at another seed."""
    return dataclasses.replace(run, train=dataclasses.replace(run.train, seed=seed))


def _first_run(arm: Arm, shared: Mapping[str, Any], source: Source, *, cuda: bool) -> RunConfig:
    values = {name: {**shared[name], **arm.sections.get(name, {})} for name in SECTIONS}
    built: dict[str, Any] = {name: build(section, values[name], where=name) for name, section in SECTIONS.items()}
    model, train, data = built["model"], built["train"], built["data"]
    device = train.device if train.device != "auto" else ("cuda" if cuda else "cpu")
    if device == "cuda" and not cuda:
        raise UsageError("train.device=cuda: torch sees no CUDA device here; take cpu or auto")
    dims = Dims(model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=data.length)
    spec = arm.variant.spec
    backend = choose_backend(spec, train.backend, device=device, dtype=train.dtype, dims=dims, config=arm.mixer)
    _refuse_layer(arm, dims)
    return RunConfig(
        variant=arm.variant.key,
        mixer=identity(arm.mixer),
        model=model,
        train=dataclasses.replace(train, seed=0, device=device, backend=backend),
        data=data,
        fingerprint=source.fingerprint,
        file_hash=arm.variant.file_hash,
    )


def _refuse_layer(arm: Arm, dims: Dims) -> None:
    # A shipped layer says in its constructor which dimensions it cannot serve; a user's that fails is a failed row.
    if arm.variant.file_hash is not None:
        return
    try:
        arm.variant.spec.Layer(dims, arm.mixer, layer_index=0, core=None)
    except ValueError as error:
        raise UsageError(f"{arm.label}: {error}") from error


def _refuse_twice(arm: Arm, runs: tuple[RunConfig, ...], planned: Sequence[PlannedArm]) -> None:
    for other in planned:
        alike = other.runs[0].id == runs[0].id and other.arm.name == arm.name
        if alike or other.label == arm.label:
            raise UsageError(f"the arms {other.label!r} and {arm.label!r} are the same; name each arm once")


def _without_backend(run: RunConfig) -> list[Any]:
    train = {name: value for name, value in identity(run.train).items() if name != "backend"}
    return [identity(run.model), train]


def _baseline(asked: str | None, planned: Sequence[PlannedArm]) -> str:
    labels = [arm.label for arm in planned]
    if asked is None:
        return labels[0]
    wanted = parse(asked).label
    if wanted not in labels:
        raise unknown("arm to be the baseline", asked, labels)
    return wanted
