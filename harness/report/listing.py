"""What there is and where it can run, for a terminal: variants, experiments, this machine, a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.fields import shown
from harness.report.formats import NONE, signed


def listing(found: Mapping[str, Any]) -> RenderableType:
    """Variants with switches, knobs, choices and backends, then declared experiments."""
    parts: list[RenderableType] = [_variant(variant) for variant in found["variants"]]
    experiments = Table(
        box=None,
        padding=(0, 2, 0, 0),
        title="Declared experiments (run.py ablate NAME)",
        title_justify="left",
        title_style="bold",
        show_header=False,
    )
    for experiment in found["experiments"]:
        experiments.add_row(experiment["name"], experiment["question"])
    fields = Table(
        box=None,
        padding=(0, 2, 0, 0),
        title="Fields of a run (--set section.field=value)",
        title_justify="left",
        title_style="bold",
        show_header=False,
    )
    for section, values in found["settings"].items():
        fields.add_row(section, "  ".join(f"{name}={shown(value)}" for name, value in values.items()))
    return Group(*parts, fields, "", experiments)


def _variant(variant: Mapping[str, Any]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    for switch in variant["switches"]:
        table.add_row("switch", f"{switch['name']}={shown(switch['default'])}", f"off removes {switch['removes']}")
    for knob in variant["knobs"]:
        table.add_row("knob", f"{knob['name']}={shown(knob['default'])}", "")
    for choice in variant["choices"]:
        table.add_row("choice", choice["name"], " | ".join(shown(option) for option in choice["options"]))
    for size in variant["sizes"]:
        table.add_row("size", f"{size['name']}={shown(size['default'])}", "")
    for backend in variant["backends"]:
        table.add_row("backend", backend["name"], _here(backend))
    alias = f" (alias {', '.join(variant['aliases'])})" if variant["aliases"] else ""
    return Group(Text.assemble((variant["name"], "bold"), alias, "  ", (variant["source"], "dim")), table, "")


def costs(found: Mapping[str, Any]) -> RenderableType:
    """What a layer of each variant costs, and what stands around it in a block."""
    shape = f"width {found['model_dim']}, {found['num_heads']} heads, {found['length']:,} tokens"
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"One layer: {shape}", title_justify="left", title_style="bold")
    table.add_column("\nvariant")
    for head in (
        "FLOPs a token\nforward",
        "\nbackward",
        "\ndecode",
        "bytes of\nstate",
        "\nparameters",
    ):
        table.add_column(head, justify="right")
    names = ("forward_flops", "backward_flops", "decode_flops", "state_bytes", "parameters")
    for cost in found["variants"]:
        table.add_row(cost["name"], *(f"{cost[name]:,.0f}" for name in names))
    rest = found["rest_of_block"]
    table.add_row(f"MLP of {rest['mlp_dim']}, norms", *(f"{rest[name]:,.0f}" for name in names), style="dim")
    told = "a multiply-add is 2; forward is a causal mean, decode is one token after the others; state in float32"
    return Group(table, "", Text(told, "dim"))


def _here(backend: Mapping[str, Any]) -> str:
    if not backend["available"]:
        return f"not here: {backend['reason']}"
    return f"here, but not at the defaults: {backend['reason']}" if backend["reason"] else "here"


def doctor(found: Mapping[str, Any]) -> RenderableType:
    """Versions and hardware, then each backend here or why not."""
    machine = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    environment = dict(found["environment"])
    environment["memory"] = f"{environment.pop('memory_bytes') / 2**30:.1f} GiB"
    for name, value in environment.items():
        machine.add_row(name, shown(value))
    machine.add_row("commit", f"{found['commit'] or 'none'}{' with changes' if found['dirty'] else ''}")
    backends = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for backend in found["backends"]:
        backends.add_row(
            backend["variant"], backend["name"], Text(_here(backend), "" if backend["available"] else "dim")
        )
    return Group(machine, "", backends)


def dry_run(found: Mapping[str, Any]) -> RenderableType:
    """The arms of a plan with their sizes, and its runs, recorded or still to be trained."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("arm", "seed", "run", ""):
        table.add_column(column)
    for run in found["runs"]:
        # As text: the brackets of an arm are no markup.
        table.add_row(Text(run["arm"]), str(run["seed"]), run["id"], "recorded" if run["recorded"] else "to train")
    return Group(Text(f"{found['experiment']} on {found['corpus']}", "bold"), _sizes(found["arms"]), "", table)


_SHORT = {"parameters": "parameters", "training_flops": "FLOPs", "state_bytes": "state"}


def _sizes(arms: Sequence[Mapping[str, Any]]) -> Table:
    """A row an arm; steps where they differ, and what matching left where anything was matched."""
    columns = {
        "MLP": "mlp_dim",
        "parameters": "parameters",
        "FLOPs a\ntoken": "training_flops",
        "bytes of\nstate": "state_bytes",
    }
    if len({arm["steps"] for arm in arms}) > 1:
        columns["steps"] = "steps"
    matched = list(dict.fromkeys(what for arm in arms for what in arm["mismatch"] or ()))
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("arm")
    for head in (*columns, *(f"{_SHORT[what]}\noff by" for what in matched)):
        table.add_column(head, justify="right")
    for arm in arms:
        sizes = ["" if arm[name] is None else f"{arm[name]:,.0f}" for name in columns.values()]
        off = [f"{signed(100 * arm['mismatch'][what], 1)} %" if arm["mismatch"] else "" for what in matched]
        # As text: the brackets of an arm are no markup.
        table.add_row(Text(arm["arm"] + " (unmatched)" * arm["unmatched"]), *(size or NONE for size in sizes), *off)
    return table
