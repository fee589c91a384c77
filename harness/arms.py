"""Arms of an experiment: from `NAME[field=value,...]` to a variant with its config, and which arms are one function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config import SECTIONS
from harness.errors import UsageError, unknown
from harness.fields import identity, resolved, settings, shown
from harness.registry import Variant, configure, find

# What pairs an arm with the others, run by run, cannot be set for one arm alone.
_PAIRED = ("data", "train.seed", "train.init_seed", "train.device", "train.dtype", "train.threads")
_LISTS = ("model.pattern",)
_ARM = re.compile(r"(?P<name>[^\[\]]+?)\s*(?:\[(?P<fields>[^\[\]]*)\])?")


@dataclass(frozen=True)
class Arm:
    """One row of a table.

    Args:
        label: how it is called: the variant's name and what was set.
        name: the name it was asked by, an alias included.
        variant: the mixer.
        mixer: its config.
        sections: fields of model, train and data that this arm alone sets.
        fields: what its text sets, as written.
    """

    label: str
    name: str
    variant: Variant
    mixer: Any
    sections: Mapping[str, Mapping[str, Any]]
    fields: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Arm:
    """An arm as the command line writes it.

    Args:
        text: `lazy`, `lazy[tau_start=-0.5,elastic=off]`, `my_mixer.py[gate=off]`, `softmax[model.num_layers=4]`.

    Raises:
        UsageError: it is not of that form, or names a variant, field or value that does not exist.
    """
    match = _ARM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"arm {text!r}: write NAME or NAME[field=value,...], e.g. 'lazy[elastic=off]'")
    name, fields = match["name"], _fields(text, match["fields"] or "")
    variant = find(name)
    mixer: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for path, value in {**variant.pinned, **fields}.items():
        section, dot, inner = path.partition(".")
        if path == "backend":
            sections.setdefault("train", {})["backend"] = value
        elif not dot:
            mixer[path] = value
        elif section not in SECTIONS:
            raise unknown("section", section, SECTIONS)
        elif section in _PAIRED or path in _PAIRED:
            raise UsageError(f"arm {text!r}: {path} must be the same in all arms; use --set {path}={value}")
        else:
            sections.setdefault(section, {})[inner] = value
    label = (name.rpartition("/")[2] or name) + (f"[{','.join(f'{k}={v}' for k, v in fields.items())}]" * bool(fields))
    return Arm(label, name, variant, configure(variant, mixer), sections, fields)


def apart(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with labels that tell files of one name in two folders apart: by the path as it was written."""
    places: dict[str, set[str]] = {}
    for arm in arms:
        places.setdefault(arm.label, set()).add(arm.variant.key)
    inside = [arm.label.partition("[") for arm in arms]
    return [
        replace(arm, label=f"{arm.name}{bracket}{rest}") if len(places[arm.label]) > 1 else arm
        for arm, (_, bracket, rest) in zip(arms, inside, strict=True)
    ]


def _fields(text: str, inside: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        last = next(reversed(fields), "")
        if last in _LISTS and "=" not in part:
            fields[last] += f",{part}"
            continue
        field, equals, value = (word.strip() for word in part.partition("="))
        if not (field and equals and value):
            raise UsageError(f"arm {text!r}: {part!r} is not field=value")
        if field in fields:
            raise UsageError(f"arm {text!r} sets {field} twice")
        fields[field] = value
    return fields


@dataclass(frozen=True)
class Part:
    """A mixer of an arm's layers: its name in the pattern, the variant, its config."""

    name: str
    variant: Variant
    mixer: Any


def layering(arm: Arm, pattern: str | None, num_layers: int) -> list[Part]:
    """The mixers that the layers of an arm repeat, in turn.

    Args:
        arm: stands in the pattern by its own name, with its own config; others have their defaults.
        pattern: `lazy,softmax`, or none.
        num_layers: of the model.

    Raises:
        UsageError: a variant that does not exist, the arm's own missing, or more of them than layers.
    """
    own = Part(arm.variant.spec.name, arm.variant, arm.mixer)
    if pattern is None:
        return [own]
    words = [word.strip() for word in pattern.split(",")]
    parts = [own if word in (own.name, arm.name) else _other(word, pattern) for word in words]
    if own not in parts:
        raise UsageError(
            f"model.pattern={pattern} does not hold {own.name}, the arm {arm.label!r}; give each arm a pattern of its "
            f"own, {arm.name}[model.pattern={arm.name},softmax]"
        )
    if len(parts) > num_layers:
        raise UsageError(f"model.pattern={pattern} names {len(parts)} layers, the model has {num_layers}")
    return parts


def _other(word: str, pattern: str) -> Part:
    if word.endswith(".py"):
        raise UsageError(f"model.pattern={pattern}: beside shipped variants only the arm's own file may stand there")
    variant = find(word)
    if variant.pinned:
        raise UsageError(f"model.pattern={pattern}: {word} is {variant.key} with a fixed backend; write {variant.key}")
    return Part(variant.spec.name, variant, configure(variant, {}))


def switch_arms(name: str) -> list[str]:
    """Arms that show what each part of a variant does: full, each off, each alone, all off; none of them twice.

    Raises:
        UsageError: the variant has no switches.
    """
    config = find(name).spec.Config
    switches = {field: setting.role for field, setting in settings(config).items() if setting.role.kind == "switch"}
    if not switches:
        raise UsageError(f"{name} has no switches to turn off; ablate needs fields made by switch(...)")
    off_sets: list[frozenset[str]] = [frozenset(), *(frozenset([one]) for one in switches)]
    off_sets += [frozenset(switches) - {one} for one in switches] + [frozenset(switches)]
    labels = []
    for off in dict.fromkeys(off_sets):
        inside = ",".join(f"{field}={shown(role.off)}" for field, role in switches.items() if field in off)
        labels.append(f"{name}[{inside}]" if inside else name)
    return labels


def function_of(arm: Arm) -> tuple[str, Mapping[str, Any]]:
    """The function an arm computes, whatever backend computes it: a variant's key and its identifying fields.

    An arm that its variant declares identical to another arm (`MixerSpec.identities`) gets that arm's function.
    """
    own = resolved(arm.mixer)
    for left, right in arm.variant.spec.identities.items():
        pattern, target = parse(left), parse(right)
        carried = set(own) & set(settings(target.variant.spec.Config)) - set(_fields(right, _inside(right)))
        if all(own[field] == value for field, value in resolved(pattern.mixer).items() if field not in carried):
            values = {**resolved(target.mixer), **{field: own[field] for field in carried}}
            return target.variant.key, identity(configure(target.variant, values))
    return arm.variant.key, identity(arm.mixer)


def _inside(text: str) -> str:
    match = _ARM.fullmatch(text)
    return (match and match["fields"]) or ""
