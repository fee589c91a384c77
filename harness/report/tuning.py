"""What a search found: as a table on a screen, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv as writer
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.fields import shown
from harness.report.columns import DIGITS
from harness.report.formats import NONE, fixed
from harness.report.terminal import PROSE, keyed, wrapped
from harness.tune.effort import FIRST_SEED, PRUNE_AFTER, PRUNE_FROM, STARTUP
from harness.tune.results import TuneResult, VariantResult

HEADS = ("arm", "trials", "pruned", "failed", "searched", "best", "defaults", "saved", "at edge")
UNITS = ("", "", "", "", "fields", "nats/token", "nats/token", "% steps", "")


def tuning_payload(result: TuneResult) -> dict[str, Any]:
    """The search as plain JSON types; of several studies, counts are sums, the curve their mean, beside its range.

    `expected` is the exact expected best after each number of trials, where no point depends on others.
    """
    return {
        "variants": [
            {
                "name": variant.label,
                "trials": variant.trials,
                "pruned": variant.count("pruned"),
                "failed": variant.count("failed"),
                "best": dict(variant.best.settings) if variant.best else {},
                "best_value": variant.best.value if variant.best else None,
                "at_edge": variant.at_edge,
                "curve": variant.curve,
                "range": [span and list(span) for span in variant.span],
                "expected": variant.expected if result.effort.in_order else None,
                "importances": variant.importances,
            }
            for variant in result.variants
        ]
    }


def render_tuning(result: TuneResult, width: int) -> RenderableType:
    """The table of a search with what is to be said below it.

    Args:
        result: what was found.
        width: of the screen, in characters.
    """
    measure = min(width, PROSE)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for place, (head, unit) in enumerate(zip(HEADS, UNITS, strict=True)):
        numeric = 0 < place < len(HEADS) - 1
        table.add_column(Text(f"{head}\n{unit}"), justify="right" if numeric else "left", overflow="fold")
    for variant in result.variants:
        table.add_row(*(Text(cell) for cell in _cells(variant)))
    parts: list[RenderableType] = [Text(wrapped(_title(result), measure), "bold"), Text(_subtitle(result), "dim")]
    if not result.complete:
        parts.append(Text("partial: some trials are missing", "bold yellow"))
    parts += [Text(""), table]
    parts += [Text("")] * bool(_bests(result))
    parts += [Text(wrapped(f"best: {text.replace(',', ', ')}", measure, 6)) for text in _bests(result)]
    parts += [Text(""), *(Text(wrapped(f"- {line}", measure, 2)) for line in (*_curves(result), *_importances(result)))]
    if _notes(result):
        parts += [Text(""), *(Text(wrapped(f"! {line}", measure, 2), "yellow") for line in _notes(result))]
    return Group(*parts, Text(""), *(keyed(line, measure) for line in _reading(result)))


def space_table(found: Mapping[str, Any]) -> RenderableType:
    """What `tune --dry-run` found: each arm with its trials, searched fields, ranges and defaults."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"search on {found['corpus']}", title_justify="left")
    for column in ("arm", "trials", "field", "range", "default"):
        table.add_column(column)
    for variant in found["variants"]:
        head = [variant["name"], str(variant["trials"])]
        for dim in variant["dims"]:
            name = dim["name"]
            words = " | ".join(map(shown, dim["options"])) if "options" in dim else f"{dim['low']:g} to {dim['high']:g}"
            scale = ", log" * dim.get("log", False)
            table.add_row(*head, name, words + scale, shown(variant["defaults"][name]))
            head = ["", ""]
        for name, value in variant["pins"].items():
            table.add_row("", "", name, "held", shown(value))
    return table


def all_failed(result: TuneResult) -> list[str]:
    """A sentence for each arm that has nothing to choose from."""
    found = []
    for variant in result.variants:
        trials = [trial for study in variant.studies for trial in study.trials]
        if trials and variant.trials == variant.asked and all(trial.state == "failed" for trial in trials):
            found.append(f"all {len(trials)} trials of {variant.label} failed: {trials[0].status}: {trials[0].error}")
    return found


def tuning_markdown(result: TuneResult, figure: str) -> str:
    """The same as Markdown.

    Args:
        result: what was found.
        figure: name of the picture beside it.
    """
    heads = [f"{head} ({unit})" if unit else head for head, unit in zip(HEADS, UNITS, strict=True)]
    rows = [[f"`{cells[0]}`", *cells[1:]] for cells in map(_cells, result.variants)]
    lines = [_line(heads), _line(["---", *["--:"] * (len(heads) - 2), "---"]), *map(_line, rows)]
    parts = [f"**{_title(result)}**", _subtitle(result), "\n".join(lines), f"![best loss so far by trial]({figure})"]
    parts += [f"**{head}**\n\n" + "\n".join(f"- {mark}{line}{mark}" for line in found) for head, mark, found in (
        ("Best settings", "`", _bests(result)), ("Best so far", "", _curves(result)),
        ("Importances", "", _importances(result)),
        ("Warnings", "", _notes(result)), ("How to read it", "", _reading(result)),
    ) if found]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def tuning_csv(result: TuneResult) -> str:
    """A line for each trial of each study; numbers with six decimals, settings with all their digits."""
    file = io.StringIO()
    out = writer.writer(file, lineterminator="\n")
    names = list(dict.fromkeys(n for v in result.variants for s in v.studies for t in s.trials for n in t.settings))
    out.writerow(["arm", "study", "trial", "state", "selection_loss_nats", "steps", "attempts", "error", *names])
    for variant in result.variants:
        for index, study in enumerate(variant.studies):
            for trial in study.trials:
                values = [shown(trial.settings[name]) if name in trial.settings else "" for name in names]
                loss = fixed(trial.value, 6, none="")
                out.writerow([variant.label, index + 1, trial.slot, trial.state, loss, trial.steps, trial.attempts,
                              trial.error or "", *values])  # fmt: skip
    return file.getvalue()


def _cells(variant: VariantResult) -> list[str]:
    best = variant.best
    # Each study has a seed of its own: the defaults are those of the study that has the best.
    study = next((study for study in variant.studies if best is not None and study.best is best), variant.studies[0])
    first = next((trial.value for trial in study.trials if trial.slot == 0), None)
    asked = "" if variant.trials == variant.asked else f" of {variant.asked}"
    return [
        variant.label,
        f"{variant.trials}{asked}",
        str(variant.count("pruned")),
        str(variant.count("failed")),
        str(len(study.dims)),
        fixed(best.value if best else None, DIGITS),
        fixed(first, DIGITS),
        fixed(100 * variant.saved, 0),
        ", ".join(_short(name) for name in variant.at_edge) or NONE,
    ]


def _short(name: str) -> str:
    return name.removeprefix("train.")


def _title(result: TuneResult) -> str:
    return f"tune: {len(result.variants)} {'arm' if len(result.variants) == 1 else 'arms'}, each with the same effort"


def _subtitle(result: TuneResult) -> str:
    effort, studies = result.effort, len(result.variants[0].studies)
    pruning = "median pruning" if effort.pruning == "median" else "no pruning"
    several = f"{studies} studies of " if studies > 1 else ""
    return f"{several}{effort.trials} trials, {effort.sampler}, {pruning} · {result.corpus} · {result.preset}"


def _bests(result: TuneResult) -> list[str]:
    return [
        f"{arm_text(variant.label, best.settings)}" + ("  (trial 0: the defaults)" if best.slot == 0 else "")
        for variant in result.variants
        for best in [variant.best]
        if best is not None
    ]


def arm_text(label: str, values: Mapping[str, Any]) -> str:
    """An arm with its settings, as the command line takes it."""
    inside = ",".join(f"{name}={shown(value)}" for name, value in values.items())
    return f"{label[:-1]},{inside}]" if label.endswith("]") else f"{label}[{inside}]"


def _curves(result: TuneResult) -> list[str]:
    """Best so far after 1, 2, 4, ... trials of a study, and what random orders of its points would give there."""
    found = []
    for variant in result.variants:
        curve, several = variant.curve, len(variant.studies) > 1
        places = sorted({2**k - 1 for k in range(len(curve).bit_length())} | {len(curve) - 1} if curve else ())
        reached = [fixed(curve[n], DIGITS) + _between(variant.span[n]) * several for n in places]
        found.append(f"{variant.label}: best after {_listed(places, reached)} trials")
        if result.effort.in_order:
            found.append(f"{variant.label}: expected best after "
                         f"{_listed(places, [fixed(variant.expected[n], DIGITS) for n in places])} trials")  # fmt: skip
    return found


def _between(span: tuple[float, float] | None) -> str:
    return "" if span is None else f" ({fixed(span[0], DIGITS)} to {fixed(span[1], DIGITS)})"


def _listed(places: Sequence[int], values: Sequence[str]) -> str:
    return ", ".join(f"{n + 1}: {value}" for n, value in zip(places, values, strict=True))


def _importances(result: TuneResult) -> list[str]:
    return [
        f"{variant.label}: " + ", ".join(f"{_short(n)} {fixed(100 * s, 0)} %" for n, s in variant.importances.items())
        for variant in result.variants
        if variant.importances
    ]


def _notes(result: TuneResult) -> list[str]:
    found = []
    for variant in result.variants:
        failed = [(study, trial) for study in variant.studies for trial in study.trials if trial.state == "failed"]
        if failed:
            trial = failed[0][1]
            found.append(
                f"{variant.label}: {len(failed)} of {variant.trials} trials failed; trial {trial.slot} "
                f"{trial.status}: {trial.error}"
            )
        again = sum(trial.attempts - 1 for study in variant.studies for trial in study.trials)
        if again:
            found.append(f"{variant.label}: {again} attempts broke off with their process and were made again")
        if variant.at_edge:
            names = ", ".join(map(_short, variant.at_edge))
            found.append(f"{variant.label}: the best {names} lies at the edge of its range; --space widens it")
        found += [f"{variant.label}: {note}" for note in variant.notes]
    if result.workers > 1 and not result.effort.in_order:
        found.append(
            f"{result.workers} workers: TPE and pruning look at the trials that have ended, so another run may give "
            "other trials; one worker gives the same ones again, as random and qmc without pruning always do"
        )
    if result.other_hosts:
        found.append(f"{result.other_hosts} trials are running on another host; run this again when they have ended")
    return found


def _searched(result: TuneResult) -> list[str]:
    """What of its range each field was searched in; fields that all arms share once."""
    ranges = [{dim.name: dim.words() for dim in variant.studies[0].dims} for variant in result.variants]
    common = {name: words for name, words in ranges[0].items() if all(one.get(name) == words for one in ranges)}
    found = [", ".join(f"{_short(name)} {words}" for name, words in common.items())] if common else []
    for variant, own in zip(result.variants, ranges, strict=True):
        rest = [f"{_short(name)} {words}" for name, words in own.items() if name not in common]
        found += [f"{variant.label}: {', '.join(rest)}"] if rest else []
    return found


def _reading(result: TuneResult) -> list[str]:
    effort, study = result.effort, result.variants[0].studies[0]
    first = f"{STARTUP} first points" if effort.sampler == "tpe" else "points"
    drawn = f"; the {first} are drawn alike for all arms" if effort.sampler != "qmc" else ""
    seeds = len(result.variants[0].studies)
    trained = f"{FIRST_SEED}" if seeds == 1 else f"{FIRST_SEED} to {FIRST_SEED + seeds - 1}, one a study"
    lines = [
        "loss: on the selection split, after the last step; the best of many is lower than what its settings give on "
        "average, so a comparison retrains them: compare --tuned",
        f"effort: {effort.trials} trials of {study.steps} steps a study, the defaults first; pruned and failed ones "
        f"count{drawn}; seed of the search {effort.seed}, of the trainings {trained}",
    ]
    lines += [f"searched: {line}" for line in _searched(result)]
    if effort.pruning == "median":
        lines.append(
            f"pruning: a trial above the median of the finished ones stops, from {PRUNE_FROM:.0%} of the steps and "
            f"{PRUNE_AFTER} finished trials on"
        )
    if any(variant.importances for variant in result.variants):
        lines.append(
            "importance: share of a field in what sets the better half of the finished trials apart; rough for so few"
        )
    return [*lines, f"studies: {result.journal}"]
