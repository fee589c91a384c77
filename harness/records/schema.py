"""Records as JSON: each field checked on its way out and in: no bare NaN, nothing unknown, none missing."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from harness.errors import RecordError

SCHEMA = 1
"""Version of the layout below; a file of another version is named and skipped."""

_Self = TypeVar("_Self", bound="Record")
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ENVELOPE = ("schema", "kind")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What all records share: a kind, a name in its folder, and a strict round trip through JSON.

    A number that is not finite is written as null, and `non_finite` maps its place, a JSON pointer such as
    `/metrics/val_loss_nats`, to `nan`, `inf` or `-inf`.
    """

    kind: ClassVar[str]
    later: ClassVar[Mapping[str, Any]] = {}
    """Fields that came after the first files of this schema, with what a file without them means."""

    @property
    def stem(self) -> str:
        """Name of its file, without number and ending."""
        raise NotImplementedError

    def fits(self, number: int) -> bool:
        """Whether its file may have that number; a record that knows its own allows no other."""
        return True

    def check(self) -> None:
        """Whether its fields agree with each other, beyond their types.

        Raises:
            ValueError: they do not.
        """

    def to_json(self) -> str:
        """The record as JSON text.

        Raises:
            RecordError: a field holds what its type does not allow.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        try:
            _check_fields(type(self), values)
            found: dict[str, str] = {}
            plain = _without_non_finite(values, "", found)
            document = {"schema": SCHEMA, "kind": self.kind, **plain, "non_finite": found}
            return json.dumps(document, indent=1, allow_nan=False) + "\n"
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{self.kind} {self.stem} cannot be recorded: {error}") from error

    @classmethod
    def from_json(cls: type[_Self], text: str, *, where: object) -> _Self:
        """The record that `to_json` wrote.

        Args:
            text: content of the file.
            where: the file, for the message.

        Raises:
            RecordError: truncated, foreign, or of another schema.
        """
        try:
            record = cls(**_fields_of(cls, text))
            record.check()
            return record
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{where}: {error}") from error


def _fields_of(cls: type[Record], text: str) -> dict[str, Any]:
    if not text.endswith("\n"):
        raise ValueError("truncated")
    try:
        values = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"truncated, or not JSON (line {error.lineno}: {error.msg})") from error
    if not isinstance(values, dict) or any(name not in values for name in _ENVELOPE):
        raise ValueError("not a record of this project")
    if type(values["schema"]) is not int or values["schema"] != SCHEMA:
        raise ValueError(f"schema {values['schema']!r}; this version reads {SCHEMA}")
    if values["kind"] != cls.kind:
        raise ValueError(f"holds kind {values['kind']!r}, not {cls.kind!r}")
    found = values.pop("non_finite", None)
    for name in _ENVELOPE:
        del values[name]
    _check(found, dict[str, typing.Literal["nan", "inf", "-inf"]], "non_finite")
    for pointer, word in found.items():
        _put(values, pointer, _NON_FINITE[word])
    values = {**cls.later, **values}
    _check_fields(cls, values)
    return values


def _no_constant(word: str) -> Any:
    raise ValueError(f"holds a bare {word}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"holds {text}, more than a float can")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("holds a key twice")
    return values


def _without_non_finite(value: Any, pointer: str, found: dict[str, str]) -> Any:
    if isinstance(value, dict):
        places = ((name, f"{pointer}/{_escaped(name)}") for name in value)
        return {name: _without_non_finite(value[name], place, found) for name, place in places}
    if isinstance(value, list):
        return [_without_non_finite(item, f"{pointer}/{n}", found) for n, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        found[pointer] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return None
    return value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _put(values: Any, pointer: str, number: float) -> None:
    head, *names = [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")]
    place = values
    try:
        if head or not names:
            raise KeyError(pointer)
        for name in names[:-1]:
            place = place[_index(name) if isinstance(place, list) else name]
        last = _index(names[-1]) if isinstance(place, list) else names[-1]
        if place[last] is not None:
            raise KeyError(pointer)
        place[last] = number
    except (LookupError, TypeError) as error:
        raise ValueError(f"non_finite names {pointer!r}, where no null stands") from error


def _index(name: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", name):
        raise KeyError(name)
    return int(name)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar}


def _check_fields(cls: type, values: dict[str, Any], where: str = "") -> None:
    hints = _hints(cls)
    problems = [f"misses {where}{name}" for name in hints if name not in values]
    problems += [f"holds an unknown {where}{name}" for name in values if name not in hints]
    if problems:
        raise ValueError(", ".join(problems))
    for name, hint in hints.items():
        _check(values[name], hint, f"{where}{name}")


def _check(value: Any, hint: Any, where: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        _check_json(value, where)
    elif origin is typing.Literal:
        if not isinstance(value, str) or value not in arguments:
            raise ValueError(f"{where} is {value!r}; allowed is {' or '.join(arguments)}")
    elif origin in (typing.Union, types.UnionType):
        fitting = [member for member in arguments if _fits(value, member)]
        if not fitting:
            raise ValueError(f"{where} is of type {type(value).__name__}")
        _check(value, fitting[0], where)
    elif typing.is_typeddict(hint) and isinstance(value, dict):
        _check_fields(hint, value, f"{where}.")
    elif not _fits(value, hint):
        raise ValueError(f"{where} is of type {type(value).__name__}")
    elif origin is list:
        for n, item in enumerate(value):
            _check(item, arguments[0], f"{where}.{n}")
    elif origin is dict:
        for name, item in value.items():
            _check_name(name, where)
            _check(item, arguments[1], f"{where}.{name}")


def _fits(value: Any, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if isinstance(value, bool):
        return kind is bool
    if typing.is_typeddict(kind):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _check_json(value: Any, where: str) -> None:
    if isinstance(value, list):
        for n, item in enumerate(value):
            _check_json(item, f"{where}.{n}")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_name(name, where)
            _check_json(item, f"{where}.{name}")
    elif value is not None and not isinstance(value, (str, bool, int, float)):
        raise ValueError(f"{where} is of type {type(value).__name__}, which JSON does not have")


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{where} has a key of type {type(name).__name__}")
