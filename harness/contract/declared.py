"""Claims about what a mixer's file says: its docstring, its config."""

from __future__ import annotations

import json
import re
import sys

from harness.contract.finding import Absent, Broken
from harness.contract.subject import Subject
from harness.errors import UsageError
from harness.fields import build, resolved, shown


def docstring(subject: Subject) -> str:
    """The file's docstring holds the formula (an indented line with an =) and the source."""
    doc = subject.doc or getattr(sys.modules.get(subject.spec.Config.__module__), "__doc__", None)
    if sys.flags.optimize > 1:
        raise Absent("python -OO strips docstrings")
    if not doc:
        raise Broken("the file has no docstring")
    if not re.search(r"^[ \t]+\S.*=", doc, re.MULTILINE):
        raise Broken("no formula: an indented line with an = is expected in the file's docstring")
    if not re.search(r"^\s*sources?:", doc, re.MULTILINE | re.IGNORECASE):
        raise Broken("no source: a line that starts with `Source:` is expected in the file's docstring")
    return ""


def config(subject: Subject) -> str:
    """The config survives the way through JSON and the way through the text of a command line."""
    values = resolved(subject.config)
    kind, name = type(subject.config), subject.spec.name
    for way, written in (
        ("JSON", json.loads(json.dumps(values))),
        ("text", {field: shown(value) for field, value in values.items()}),
    ):
        try:
            back = resolved(build(kind, written, where=name))
        except UsageError as error:
            raise Broken(f"{way} is not read back: {error}") from error
        for field, value in values.items():
            if back[field] != value or type(back[field]) is not type(value):
                raise Broken(f"{field}={value!r} comes back from {way} as {back[field]!r}")
    return ""
