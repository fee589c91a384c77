"""Arms x seeds as data: what a comparison will train, resolved and checked before the first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.arms import Arm, Part, apart, function_of, layering, parse
from harness.config import SECTIONS, DataConfig, RunConfig, canonical
from harness.data import Source, load
from harness.equal import check_terms, costs, equal_budget, equal_sizes
from harness.errors import UsageError, unknown
from harness.fields import build, identity, resolved
from harness.plans import Plan, PlannedArm, twin_of, with_seed
from harness.presets import PRESETS, Settings
from harness.registry import choose_backend
from harness.spec import Dims

__all__ = ["Plan", "PlannedArm", "Request", "plan", "sections", "with_seed"]

MOST_SEEDS = 10_000


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
        match: what every arm is brought to the baseline's size in: `parameters`, `flops` or `state`.
        budget: what every arm gets as much of as the baseline: `tokens`, `flops` or `seconds`.
        step_ms: measured time of a training step by arm, for `seconds`.
        noise_floor: the baseline against its twin of another start, in place of the arms.
        cache: folder for trained tokenizers.
        command: that asked for it, as typed.
        question, expectation, metric: as declared.
    """

    name: str
    arms: Sequence[str]
    baseline: str | None = None
    seeds: int = 5
    preset: str = "quick"
    sets: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    match: str | None = None
    budget: str = "tokens"
    step_ms: Mapping[str, float] | None = None
    noise_floor: bool = False
    cache: Path | None = None
    command: str = ""
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
    if not 1 <= request.seeds <= MOST_SEEDS:
        raise UsageError(
            f"--seeds {request.seeds}: allowed is a whole number of at least 1 and at most {MOST_SEEDS}; "
            "5 give usable intervals"
        )
    check_terms(request.match, request.budget)
    shared = sections(request)
    arms = apart([parse(text) for text in request.arms])
    data: DataConfig = build(DataConfig, shared["data"], where="data")
    source = load(data.corpus, data.tokenizer, cache=request.cache)
    source.check(length=data.length, tokens=max(data.report_tokens, data.curve_tokens))
    firsts = [_first_run(arm, shared, source, cuda=cuda) for arm in arms]
    arms = [_hybrid(arm, first) for arm, first in zip(arms, firsts, strict=True)]
    baseline = _baseline(request.baseline, arms)
    base = [arm.label for arm in arms].index(baseline)
    arms, firsts = equal_sizes(arms, firsts, base, request.match, source.vocab_size)
    firsts = equal_budget(arms, firsts, base, request.budget, source.vocab_size, request.step_ms)
    planned: list[PlannedArm] = []
    functions: dict[Any, str] = {}
    for arm, first in zip(arms, firsts, strict=True):
        runs = tuple(with_seed(first, seed) for seed in range(request.seeds))
        _refuse_twice(arm, runs, planned)
        function = canonical([function_of(arm), _without_backend(runs[0])])
        planned.append(PlannedArm(arm.label, arm, runs, functions.get(function)))
        functions.setdefault(function, arm.label)
    sizes = costs(arms, firsts, source.vocab_size)
    terms: dict[str, Any] = {"match": request.match, "budget": request.budget, "costs": sizes}
    if request.noise_floor:
        planned = [planned[base], twin_of(planned[base])]
        terms |= {"twin": planned[1].label, "comparisons": max(1, len(arms) - 1)}
    shown = {name: resolved(getattr(planned[0].runs[0], name)) for name in SECTIONS}
    return Plan(
        name=request.name,
        command=request.command,
        question=request.question,
        expectation=request.expectation,
        metric=request.metric,
        baseline=baseline,
        seeds=tuple(range(request.seeds)),
        arms=tuple(planned),
        source=source,
        corpus=data.corpus,
        tokenizer=data.tokenizer,
        settings={"preset": request.preset, **shown, **terms},
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
        if path == "train.seed":
            raise UsageError(f"--set train.seed={value}: seeds run from 0; --seeds N says how many")
        shared[name][inner] = value
    return shared


def _first_run(arm: Arm, shared: Mapping[str, Any], source: Source, *, cuda: bool) -> RunConfig:
    values = {name: {**shared[name], **arm.sections.get(name, {})} for name in SECTIONS}
    built: dict[str, Any] = {name: build(section, values[name], where=name) for name, section in SECTIONS.items()}
    model, train, data = built["model"], built["train"], built["data"]
    device = train.device if train.device != "auto" else ("cuda" if cuda else "cpu")
    if device == "cuda" and not cuda:
        raise UsageError("train.device=cuda: torch sees no CUDA device here; take cpu or auto")
    dims = Dims(model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=data.length)
    parts = layering(arm, model.pattern, model.num_layers)
    names = [part.name for part in parts]
    backends = []
    for part in dict(zip(names, parts, strict=True)).values():
        spec = part.variant.spec
        backends.append(
            choose_backend(spec, train.backend, device=device, dtype=train.dtype, dims=dims, config=part.mixer)
        )
        _refuse_layer(arm, part, dims)
    return RunConfig(
        variant=arm.variant.key,
        mixer=identity(arm.mixer),
        model=dataclasses.replace(model, pattern=",".join(names) if len(backends) > 1 else None),
        train=dataclasses.replace(train, seed=0, device=device, backend=",".join(backends)),
        data=data,
        fingerprint=source.fingerprint,
        file_hash=arm.variant.file_hash,
    )


def _refuse_layer(arm: Arm, part: Part, dims: Dims) -> None:
    # A shipped layer says in its constructor which dimensions it cannot serve; a user's that fails is a failed row.
    if part.variant.file_hash is not None:
        return
    try:
        # On the meta device a layer of any size costs nothing.
        with torch.device("meta"):
            part.variant.spec.Layer(dims, part.mixer, layer_index=0, core=None)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{arm.label}: {error}") from error


def _hybrid(arm: Arm, run: RunConfig) -> Arm:
    """The arm under a label that says the pattern of its layers, where `--set` gave it one."""
    if run.model.pattern is None or "model.pattern" in arm.fields:
        return arm
    name, _, inside = arm.label.removesuffix("]").partition("[")
    return dataclasses.replace(arm, label=f"{name}[{inside}{',' * bool(inside)}model.pattern={run.model.pattern}]")


def _layers(arm: Arm, run: RunConfig) -> list[Any]:
    parts = layering(arm, run.model.pattern, run.model.num_layers)
    return [[[part.variant.key, identity(part.mixer)] for part in parts], run.model, run.train, run.data]


def _refuse_twice(arm: Arm, runs: tuple[RunConfig, ...], planned: Sequence[PlannedArm]) -> None:
    for other in planned:
        if runs[0].model.pattern is not None and _layers(other.arm, other.runs[0]) == _layers(arm, runs[0]):
            raise UsageError(
                f"the arms {other.label!r} and {arm.label!r} are the same hybrid; name one of them, and give one arm "
                f"alone a pattern as 'NAME[model.pattern={runs[0].model.pattern}]'"
            )
        alike = other.runs[0].id == runs[0].id and other.arm.name == arm.name
        if alike or other.label == arm.label:
            raise UsageError(f"the arms {other.label!r} and {arm.label!r} are the same; name each arm once")


def _without_backend(run: RunConfig) -> list[Any]:
    train = {name: value for name, value in identity(run.train).items() if name != "backend"}
    return [identity(run.model), train]


def _baseline(asked: str | None, arms: Sequence[Arm]) -> str:
    if asked is None:
        return arms[0].label
    wanted = parse(asked)
    for arm in arms:
        if (arm.name, arm.variant.key, arm.fields) == (wanted.name, wanted.variant.key, wanted.fields):
            return arm.label
    raise unknown("arm to be the baseline", asked, [arm.label for arm in arms])
