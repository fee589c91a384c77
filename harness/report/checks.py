"""The contract on a variant, for a terminal: claims by backend, then what is broken and what was not given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


class Found(Protocol):
    """What became of one claim."""

    name: str
    backend: str
    passed: bool | None
    detail: str


WORDS = {True: ("passed", "green"), False: ("BROKEN", "bold red"), None: ("not given", "dim")}


def checks(variant: str, groups: Mapping[str, Sequence[Any]], seconds: float, size: str) -> RenderableType:
    """One variant's findings.

    Args:
        variant: as it was asked for.
        groups: findings by the state of the switches, the first as it stands.
        seconds: taken.
        size: of the layer that was tried, in words.
    """
    every = [(label, finding) for label, group in groups.items() for finding in group]
    tried = [finding for _, finding in every if finding.passed is not None]
    broken = [(label, finding) for label, finding in every if finding.passed is False]
    word = Text("broken", "bold red") if broken else Text("passed", "bold green")
    head = Text.assemble((variant, "bold"), "  ", word, f"  {len(tried) - len(broken)} of {len(tried)} checks hold")
    head.append(f" at {size}, {seconds:.1f} s", "dim")
    parts: list[RenderableType] = [head, _matrix(groups)]
    for label, finding in broken:
        parts.append(Text(f"! {_place(label, finding)}: {finding.detail}", "red"))
    parts += [Text(f"- {line}", "dim") for line in _not_given(every)]
    return Group(*parts, "")


def _place(label: str, finding: Found) -> str:
    state = "" if label == "default" else f" with {label}"
    backend = f" ({finding.backend})" if finding.backend not in ("", "own") else ""
    return f"{finding.name}{backend}{state}"


def _matrix(groups: Mapping[str, Sequence[Found]]) -> Table:
    """A row a claim for the variant as it stands, a row a switch for the rest; a column a backend."""
    found = {label: list(group) for label, group in groups.items()}
    backends = list(dict.fromkeys(f.backend for group in found.values() for f in group if f.name != "backend"))
    backends = [backend for backend in backends if backend] or [""]
    table = Table(box=None, padding=(0, 2, 0, 2))
    # On a narrow screen a long claim gives way, never what became of it.
    table.add_column("claim", overflow="fold")
    for backend in backends:
        table.add_column("" if backend == "own" else backend, no_wrap=True)
    default = [finding for finding in found.pop("default", []) if finding.name != "backend"]
    for name in dict.fromkeys(finding.name for finding in default):
        table.add_row(Text(name), *_cells([f for f in default if f.name == name], backends))
    for label, group in found.items():
        found_here = [finding for finding in group if finding.name != "backend"]
        alone = {finding.name for finding in found_here}
        what = f": {alone.pop()}" if len(alone) == 1 else ""
        table.add_row(Text(f"with {label}{what}"), *_cells(found_here, backends))
    return table


def _cells(findings: Sequence[Found], backends: Sequence[str]) -> Iterable[Text]:
    for place, backend in enumerate(backends):
        # What has nothing to do with a backend stands in the first column.
        of = [f for f in findings if f.backend == backend or (not f.backend and place == 0)]
        if not of:
            yield Text("")
        elif len(of) == 1:
            yield Text(*WORDS[of[0].passed])
        else:
            broken = sum(f.passed is False for f in of)
            passed = sum(f.passed is True for f in of)
            yield Text(f"{broken} BROKEN", "bold red") if broken else Text(f"{passed} passed", "green")


def _not_given(every: Sequence[tuple[str, Found]]) -> list[str]:
    """Reasons why claims were not tried, each once, with the claims."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for _, finding in every:
        if finding.passed is None:
            names = reasons.setdefault((finding.detail, finding.backend), [])
            if finding.name not in names:
                names.append(finding.name)
    lines = []
    for (detail, backend), names in reasons.items():
        if names == ["backend"]:
            lines.append(f"not tried: {backend} {detail}")
        else:
            lines.append(f"not tried: {', '.join(names)}: {detail}")
    return lines
