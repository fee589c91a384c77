"""Config dataclasses as data: their settings, their values from text or JSON, checked where they come in."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.errors import UsageError, unknown
from harness.spec import NEVER, Role, role_of

Config = TypeVar("Config")
LARGEST = 2**63
"""Whole numbers below it fit into a tensor's shape; none is larger."""

_WRONG: Any = object()
_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True)
class Setting:
    """One field of a config: its name, the types it takes (`int`, `float`, `bool`, `str`, None), default, role."""

    name: str
    types: tuple[type, ...]
    default: Any
    role: Role


def settings(config: Any) -> dict[str, Setting]:
    """The settings of a config dataclass, in the order of its file.

    Raises:
        UsageError: it is no dataclass, or a field has no default or a type that text cannot give.
    """
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise UsageError(f"{config} must be a dataclass (frozen, keyword only)")
    try:
        hints = typing.get_type_hints(config)
    except Exception as error:
        raise UsageError(f"{config.__qualname__}: its annotations cannot be read: {error}") from error
    found = {}
    for field in dataclasses.fields(config):
        if field.default is dataclasses.MISSING:
            raise UsageError(f"{config.__qualname__}.{field.name} needs a default")
        found[field.name] = Setting(
            field.name, _members(config, field.name, hints[field.name]), field.default, role_of(field)
        )
    return found


def _members(config: type, name: str, hint: Any) -> tuple[type, ...]:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if union else (hint,)
    if not set(members) <= {bool, int, float, str, type(None)}:
        raise UsageError(f"{config.__qualname__}.{name}: a field is bool, int, float, str or one of them or None")
    return members


def build(config: type[Config], values: Mapping[str, Any], *, where: str) -> Config:
    """A config from some of its values; the rest keep their defaults.

    Args:
        config: the dataclass.
        values: field name to value, either typed or as the text of a command line.
        where: what to call it in an error, e.g. `lazy` or `train`.

    Raises:
        UsageError: an unknown field, a wrong type, a value out of range, or one the config itself refuses.
    """
    known = settings(config)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"field of {where}", name, known)
        checked[name] = check(known[name], value, where=where)
    try:
        return config(**checked)
    # A config checks itself in any way it likes; what it refuses is the user's value.
    except Exception as error:
        raise UsageError(f"{where}: {error}") from error


def restore(config: type[Config], values: Mapping[str, Any], *, where: str) -> Config:
    """The config behind recorded values: a field the record does not know stands at the value of its absence.

    Raises:
        UsageError: as `build`.
    """
    absent = {
        name: setting.role.absent for name, setting in settings(config).items() if setting.role.absent is not NEVER
    }
    return build(config, {**absent, **values}, where=where)


def check(setting: Setting, value: Any, *, where: str) -> Any:
    """The value, typed and in range.

    Raises:
        UsageError: it is neither; the message says what was asked and what is allowed.
    """
    typed = _typed(setting, value) if not isinstance(value, str) else _from_text(setting, value)
    role = setting.role
    if typed is _WRONG or (role.kind == "choice" and typed not in role.options):
        raise UsageError(f"{where}.{setting.name}={value}: allowed is {allowed(setting)}")
    if typed is not None and not isinstance(typed, (bool, str)):
        legal = abs(typed) < LARGEST if isinstance(typed, int) else math.isfinite(typed)
        legal = legal and (role.least is None or typed >= role.least)
        legal = legal and (role.most is None or typed <= role.most)
        legal = legal and (role.above is None or typed > role.above)
        if not legal:
            raise UsageError(f"{where}.{setting.name}={value}: allowed is {allowed(setting)}")
    return typed


def _typed(setting: Setting, value: Any) -> Any:
    if value is None:
        return None if type(None) in setting.types else _WRONG
    if isinstance(value, bool):
        return value if bool in setting.types else _WRONG
    if isinstance(value, int):
        if int in setting.types:
            return value
        return float(value) if float in setting.types else _WRONG
    if isinstance(value, float):
        return value if float in setting.types else _WRONG
    return value if isinstance(value, str) and str in setting.types else _WRONG


def _from_text(setting: Setting, text: str) -> Any:
    word = text.strip()
    if bool in setting.types and word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if type(None) in setting.types and word.lower() in ("none", "null"):
        return None
    for kind in (int, float):
        if kind in setting.types:
            try:
                return kind(word)
            except ValueError:
                continue
    if str in setting.types:
        return word
    # A choice may mix words and switches: a field typed `bool` alone takes no other text.
    return _WRONG


def allowed(setting: Setting) -> str:
    """What a setting takes, in words."""
    role = setting.role
    if role.kind == "choice":
        return " or ".join(shown(option) for option in role.options)
    names = {bool: "on or off", int: "a whole number", float: "a number", str: "text", type(None): "none"}
    words = " or ".join(names[kind] for kind in setting.types if not (kind is int and float in setting.types))
    bounds = [("of at least", role.least), ("above", role.above), ("and at most", role.most)]
    return " ".join([words, *(f"{word} {bound:g}" for word, bound in bounds if bound is not None)])


def shown(value: Any) -> str:
    """A value as the command line writes it: on, off, none, or its text."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def resolved(config: Any) -> dict[str, Any]:
    """Every field of a config with its value, in the order of its file."""
    return {name: getattr(config, name) for name in settings(type(config))}


def identity(config: Any) -> dict[str, Any]:
    """The fields that identify a run: all of them, less those that stand at the value of their absence."""
    known = settings(type(config))
    return {
        name: value
        for name, value in resolved(config).items()
        if known[name].role.absent is NEVER or value != known[name].role.absent
    }
