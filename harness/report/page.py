"""One experiment as one self-contained HTML page, and its figures as files: everything from records."""

from __future__ import annotations

import base64
import html
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records import ExperimentFile, Store, write_whole
from harness.report.build import result
from harness.report.columns import columns
from harness.report.figures import FIGURES
from harness.report.figures.style import saved, styled
from harness.report.findings import Findings, findings
from harness.report.measured import Lines, cell, grouped, undefined
from harness.report.page_style import STYLE
from harness.report.rows import Result

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load for the page: nothing that is not inside it."""


@dataclass(frozen=True)
class Picture:
    """A figure on its way to page and disk; without pictures, `missing` says what would make it."""

    name: str
    title: str
    caption: str
    svg: bytes = b""
    png: bytes = b""
    missing: str = ""


def write_page(experiment: ExperimentFile, store: Store) -> list[Path]:
    """Write `tables/<name>-<key>.html` and, in a folder of that name, each figure as SVG and PNG.

    Args:
        experiment: the index of arms and runs.
        store: the records, and where the page goes.

    Returns:
        The files, the page first.

    Raises:
        RecordError: a record does not fit the experiment, or a file cannot be written.
    """
    table, found = result(experiment, store), findings(experiment, store)
    pictures = draw(table, found)
    page = store.tables / f"{experiment.stem}.html"
    files = {page: _page(table, found, pictures).encode()}
    for picture in pictures:
        if picture.svg:
            files[store.tables / experiment.stem / f"{picture.name}.svg"] = picture.svg
            files[store.tables / experiment.stem / f"{picture.name}.png"] = picture.png
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


def draw(table: Result, found: Findings) -> list[Picture]:
    """Every figure of the page; one that nothing was measured for says which command would."""
    pictures = []
    with styled():
        for module in FIGURES:
            measured = module.NEEDS in ("", "paths") or found.has(module.NEEDS)
            drawn = module.draw(table, found) if measured else None
            figures = drawn if isinstance(drawn, list) else [drawn] if drawn is not None else []
            for place, figure in enumerate(figures, 1):
                # A figure that would be higher than a page goes on in further ones.
                name, title = (module.NAME + str(place) * (place > 1), module.TITLE + ", continued" * (place > 1))
                caption = module.CAPTION if place == 1 else ""
                pictures.append(Picture(name, title, caption, saved(figure, "svg"), saved(figure, "png")))
            if not figures:
                missing = _missing(module.NAME, module.NEEDS, found)
                pictures.append(Picture(module.NAME, module.TITLE, module.CAPTION, missing=missing))
    return pictures


def _missing(name: str, needs: str, found: Findings) -> str:
    """Why a figure is not there, and what a reader can do about it."""
    command = found.experiment.command or "run its comparison"
    if needs == "paths" and found.looked:
        reasons = [reason for arm in found.arms for measure in ("sink", "mass") if (reason := arm.reason(measure))]
        return f"not defined: {reasons[0]}" if reasons else "only one look was taken; a smaller --measure-every"
    if needs == "paths":
        return (
            "no run was looked at while it trained, and recorded runs do not train again; "
            "train into another folder: --measure-every 100 --out DIR"
        )
    if name == "differences":
        return f"it needs two arms with two finished seeds each; more seeds: {command} --seeds 5"
    if not needs:
        return f"no arm has a curve of finished runs; {command}"
    reason = next(filter(None, (arm.reason(needs) for arm in found.arms)), None)
    if needs == "scalars" and found.has("scalars"):
        return "no arm has a bias over distance"
    return f"not defined: {reason}" if reason else f"not measured; {found.would}"


def _page(table: Result, found: Findings, pictures: Sequence[Picture]) -> str:
    experiment = table.experiment
    question = experiment.question or table.title
    parts = [
        f"<h1>{_text(experiment.name)}</h1>",
        f'<p class="question">{_text(question)}</p>',
        f"<p>Expected: {_text(experiment.expectation)}</p>" if experiment.expectation else "",
        f'<p class="quiet">{_text(table.subtitle)}</p>',
        _list([f"Warning: {line}" for line in table.warnings], "warning"),
        "<h2>Table</h2>",
        _table(table),
        _list(table.notes, ""),
        "<h3>What the arms share</h3>",
        _list(table.fairness, "quiet"),
        "<h3>How to read it</h3>",
        _list(table.reading, "quiet"),
        "<h2>What was measured inside the models</h2>",
        _list(found.remark, "remark"),
        _measured(found),
        _list(undefined(found), "quiet"),
        *(_figure(picture) for picture in pictures if picture.svg),
        _absent(pictures),
        "<h2>Rebuild</h2>",
        _rebuild(experiment, found.root),
        f'<p class="quiet">Settings: <code>{_text(_settings(experiment))}</code></p>',
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{_text(experiment.name)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _table(table: Result) -> str:
    found = columns(table)
    head = "".join(
        f"<th{_side(column.numeric)}>{_text(column.title)}<br><small>{_text(column.unit)}</small></th>"
        for column in found
    )
    lines = []
    for index in range(len(found[0].cells)):
        trivial = index >= len(table.arms)
        verdict = "" if trivial else table.arms[index].verdict.split(" ")[0]
        cells = "".join(f"<td{_side(column.numeric)}>{_broken(column.cells[index])}</td>" for column in found)
        lines.append(f'<tr class="{"trivial" if trivial else _text(verdict)}">{cells}</tr>')
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _measured(found: Findings) -> str:
    groups = grouped(found)
    if not groups:
        nothing = "Nothing could be measured" if undefined(found) else "Nothing was measured"
        return f"<p>{nothing}; {_text(found.would)}.</p>"
    head = "".join(f"<th{_side(True)}>{_broken(arm.label)}</th>" for arm in found.arms)
    rows = "".join(
        f'<tr class="group"><th colspan="{1 + len(found.arms)}">{_text(title)}</th></tr>' + _lines(lines)
        for title, lines in groups
    )
    return (
        f'<div class="wide"><table class="measured"><thead><tr><th>mean over seeds</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _lines(lines: Lines) -> str:
    return "".join(
        f"<tr><td>{_text(quantity.title)}{' <small>proxy</small>' if quantity.proxy else ''}</td>"
        + "".join(f"<td{_side(True)}>{_text(cell(quantity, values))}</td>" for values in every)
        + "</tr>"
        for quantity, every in lines
    )


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode()
    return (
        f'<figure id="{picture.name}"><h2>{_text(picture.title)}</h2>'
        f'<img alt="{_text(picture.title)}" src="data:image/svg+xml;base64,{data}">'
        f"{f'<figcaption>{_text(picture.caption)}</figcaption>' if picture.caption else ''}</figure>"
    )


def _absent(pictures: Sequence[Picture]) -> str:
    lines = [f"{picture.title}: {picture.missing}" for picture in pictures if not picture.svg]
    return "<h2>Not shown</h2>" + _list(lines, "quiet") if lines else ""


def _rebuild(experiment: ExperimentFile, root: Path) -> str:
    again = f"<p>Train it again: <code>{_text(experiment.command)}</code></p>" if experiment.command else ""
    return (
        f"<p>This page: <code>python run.py report {_text(experiment.stem)} --html "
        f"--out {_text(shlex.quote(str(root)))}</code>. Every number on it stands "
        "in a record under <code>runs/</code>, <code>timings/</code>, <code>references/</code> or "
        f"<code>measurements/</code>; nothing is taken from the process that drew it.</p>{again}"
    )


def _settings(experiment: ExperimentFile) -> str:
    sections = {name: values for name, values in experiment.settings.items() if isinstance(values, dict)}
    chosen = {name: sections[name] for name in ("model", "train", "data") if name in sections}
    return "; ".join(
        f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}" for name, values in chosen.items()
    )


def _list(lines: Sequence[str], kind: str) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def _side(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _broken(label: str) -> str:
    """The name of an arm, with places where a narrow column may break it."""
    return re.sub(r"[,.=]", r"\g<0><wbr>", _text(label).replace("[", "<wbr>["))


def _text(text: str) -> str:
    return html.escape(text)
