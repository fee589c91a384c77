"""The measurements of an experiment as a table: a line a quantity, a column an arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.report.findings import ArmFindings, Findings
from harness.report.formats import NONE, fixed
from harness.report.frames import number
from harness.report.layout import fold

GAP = 3
"""Characters between two columns."""

WIDEST, NARROWEST = 18, 10
"""Columns of an arm, in characters: longer names are folded, the further the less room there is."""


@dataclass(frozen=True)
class Quantity:
    """One line of the table.

    Args:
        measure, value: where it stands in the records.
        title: with its unit.
        digits: decimals.
        place: of a value that is a list, which of its numbers.
        proxy: whether it stands in for what is not defined for weights that need not sum to one.
    """

    measure: str
    value: str
    title: str
    digits: int = 2
    proxy: bool = False
    place: int | None = None

    def of(self, arm: ArmFindings) -> list[float]:
        """Its values in an arm, one a run that has it."""
        if self.place is None:
            return [value for value in arm.values(self.measure, self.value) if math.isfinite(value)]
        rows = arm.lists(self.measure, self.value)
        return [] if rows is None else [float(value) for value in rows[:, self.place] if math.isfinite(value)]


QUANTITIES = (
    Quantity("sink", "sink_1_percent", "Sink_1, raw, epsilon 0.3 (% of maps)", 1),
    Quantity("sink", "sink_1_by_epsilon_percent", "the same at epsilon 0.1", 1, place=0),
    Quantity("sink", "sink_1_by_epsilon_percent", "the same at epsilon 0.2", 1, place=1),
    Quantity("sink", "sink_1_by_epsilon_percent", "the same at epsilon 0.5", 1, place=3),
    Quantity("sink", "sink_1_proxy_percent", "Sink_1 over mass (% of maps)", 1, proxy=True),
    Quantity("sink", "sink_largest_percent", "largest Sink_k, raw (% of maps)", 1),
    Quantity("sink", "first_token_mass_percent", "mass share of first token (%)", 1, proxy=True),
    Quantity("sink", "first_weight_trigger_mean", "weight on BOS at triggers", 3),
    Quantity("sink", "first_weight_other_mean", "weight on BOS elsewhere", 3),
    Quantity("mass", "row_mass_mean", "row mass, mean", 3),
    Quantity("mass", "row_mass_p5", "row mass, 5th percentile", 3),
    Quantity("mass", "mass_on_first_mean", "mass on the first token", 3),
    Quantity("mass", "mass_off_first_mean", "mass off the first token", 3),
    Quantity("mass", "dead_rows_percent", "dead rows (%)", 1),
    Quantity("mass", "dead_heads_percent", "dead heads (%)", 1),
    Quantity("sparsity", "zeros_percent", "exact zeros (% of causal pairs)", 1),
    Quantity("sparsity", "plain_softmax_below_uniform_percent", "plain softmax under 1/n (%)", 1),
    Quantity("sparsity", "below_uniform_if_gaussian_percent", "the same if Gaussian, Phi(s/2) (%)", 1),
    Quantity("sparsity", "zero_blocks_32_percent", "32 x 32 blocks all zero (%)", 1),
    Quantity("sparsity", "zero_blocks_64_percent", "64 x 64 blocks all zero (%)", 1),
    Quantity("focus", "normalised_entropy_mean", "normalised entropy (0 to 1)", 3, proxy=True),
    Quantity("focus", "effective_keys_mean", "effective keys", 1, proxy=True),
    Quantity("focus", "distance_tokens_mean", "distance attended (tokens)", 1, proxy=True),
    Quantity("redundancy", "map_cosine_mean", "cosine between heads' maps", 3),
    Quantity("collapse", "relative_residual", "relative residual at the end", 3),
    Quantity("collapse", "effective_rank", "effective rank at the end", 1),
    Quantity("collapse", "token_cosine", "token cosine at the end", 3),
    Quantity("collapse", "token_cosine_centred", "token cosine, mean removed", 3),
    Quantity("repeated", "moved_at_the_end", "move of a repeated token", 4),
    Quantity("scale", "largest_over_median_activation", "largest / median activation", 1),
    Quantity("scale", "kurtosis_by_depth", "kurtosis at the end (3 is normal)", 1, place=-1),
    Quantity("scale", "first_token_norm_over_rest_by_depth", "stream norm at the end, first / rest", 2, place=-1),
    Quantity("scale", "first_v_norm_over_rest", "value norm, first / rest", 2),
    Quantity("scale", "first_k_norm_over_rest", "key norm, first / rest", 2),
    Quantity("scale", "score_range", "range of the scores", 1),
    Quantity("recall", "recall_loss_nats", "loss on repeated pairs (nats/token)", 4),
    Quantity("recall", "other_loss_nats", "loss on new pairs (nats/token)", 4),
)


Lines = list[tuple[Quantity, list[list[float]]]]
"""Quantities, each with the values of every arm."""


def shown(findings: Findings) -> list[tuple[Quantity, list[list[float]]]]:
    """The quantities that any arm has, each with the values of every arm, one a seed."""
    quantities = (*QUANTITIES, *_lengths(findings), *_scalars(findings))
    lines = [(q, [q.of(arm) for arm in findings.arms]) for q in quantities]
    return [(quantity, values) for quantity, values in lines if any(values)]


def grouped(findings: Findings) -> list[tuple[str, Lines]]:
    """The same, measure by measure; each with what it was taken on, since lengths differ from measure to measure."""
    groups: dict[str, Lines] = {}
    for quantity, values in shown(findings):
        groups.setdefault(quantity.measure, []).append((quantity, values))
    return [(f"{measure}{_taken_on(measure, findings)}", lines) for measure, lines in groups.items()]


def _taken_on(measure: str, findings: Findings) -> str:
    records = [record for arm in findings.arms for record in arm.last(measure)]
    said = []
    for name, word in (("sequences", "sequences"), ("length_tokens", "tokens")):
        found = {value for record in records if isinstance(value := record.values.get(name), int)}
        if found:
            said.append(f"{' or '.join(f'{value:,}' for value in sorted(found))} {word}")
    return f" ({' of '.join(said)})" if said else ""


def _scalars(findings: Findings) -> list[Quantity]:
    """What the variants declare, whatever it is."""
    records = [record for arm in findings.arms for record in arm.last("scalars")]
    names = dict.fromkeys(name for record in records for name in record.values.get("names", []))
    ends = {"mean": "mean", "smallest": "smallest", "largest": "largest", "gradient_norm": "gradient's norm, last step"}
    return [Quantity("scalars", f"{name}_{end}", f"{name}, {word}", 4) for name in names for end, word in ends.items()]


def _lengths(findings: Findings) -> list[Quantity]:
    records = [record for arm in findings.arms for record in arm.last("extrapolation")]
    # An arm that cannot be run so far has no such value; of arms on one report split all have the same factors.
    factors: list[int] = max((record.values.get("factors", []) for record in records), key=len, default=[])
    end = "loss_nats_by_factor"
    names = {name for record in records for name in record.values if name.endswith(end)}
    kinds = {name: name.removesuffix(end).rstrip("_") for name in sorted(names, key=len)}
    return [
        Quantity("extrapolation", name, f"{kind} loss at {factor}x length (nats/token)".strip(), 4, place=place)
        for name, kind in kinds.items()
        for place, factor in enumerate(factors)
    ]


def cell(quantity: Quantity, values: list[float]) -> str:
    """Mean over the seeds."""
    return fixed(sum(values) / len(values), quantity.digits) if values else NONE


def measured(findings: Findings, width: int) -> RenderableType:
    """The table for a screen of that many characters: arms side by side as far as there is room, then below."""
    groups = grouped(findings)
    lines = [line for _, found in groups for line in found]
    head: list[RenderableType] = [Text(f"{findings.experiment.name}: measured inside the trained models", "bold")]
    head += [Text(line, "yellow" if line.startswith("sink not") else "") for line in findings.remark]
    first = max(
        (*(len(_named(quantity)) + 1 for quantity, _ in lines), *(len(title) for title, _ in groups)), default=0
    )
    names, size = _heads([arm.label for arm in findings.arms], width - first)
    room = max(1, (width - first) // (GAP + size))
    for start in range(0, len(names), room):
        part = range(start, min(start + room, len(names)))
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        table.add_column("mean over seeds", no_wrap=True, min_width=first)
        for index in part:
            table.add_column(Text("\n".join(names[index])), justify="right", no_wrap=True, min_width=size)
        for title, found in groups:
            table.add_row(Text(title, "italic"))
            for quantity, values in found:
                table.add_row(f" {_named(quantity)}", *(cell(quantity, values[index]) for index in part))
        head += [Text(""), table]
    return Group(*head, *(Text(f"- {line}", "dim") for line in undefined(findings)))


def _named(quantity: Quantity) -> str:
    return quantity.title + (", proxy" if quantity.proxy else "")


def _heads(labels: list[str], room: int) -> tuple[list[list[str]], int]:
    """Names of the arms in lines, and the width of their columns: the widest at which all stand side by side."""
    for width in range(min(WIDEST, max(map(len, labels))), NARROWEST - 1, -1):
        if len(labels) * (GAP + width) <= room:
            break
    else:
        width = min(NARROWEST, max(map(len, labels)))
    return [fold(label, ",[=", width) for label in labels], width


def undefined(findings: Findings) -> list[str]:
    """What is not defined, arm by arm, with the reason, and what was looked at with fewer sequences than it should."""
    lines: dict[str, list[str]] = {}
    for arm in findings.arms:
        for measure in sorted(arm.steps):
            for reason in arm.reasons(measure):
                lines.setdefault(f"{measure}: {reason}", []).append(arm.label)
    found = [f"{line} ({', '.join(arms)})" for line, arms in lines.items()] + findings.code
    small = any(record.values.get("small_probe") for arm in findings.arms for m in arm.steps for record in arm.last(m))
    if small:
        found.append(
            "taken during training on few sequences; for the whole probe: "
            f"run.py measure {findings.experiment.stem} --out {findings.root}"
            if findings.weights
            else "taken during training on few sequences; the weights that the whole probe needs are not kept here"
        )
    return found


def measured_payload(findings: Findings) -> dict[str, Any]:
    """The values as `--json` prints them: by arm and measure, one entry a seed."""

    def arm(found: ArmFindings) -> dict[str, Any]:
        return {measure: [_plain(record.values) for record in found.last(measure)] for measure in sorted(found.steps)}

    return {
        "experiment": findings.experiment.name,
        "remarks": findings.remark,
        "arms": {found.label: arm(found) for found in findings.arms},
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [number(item) for item in value] if isinstance(value, list) else number(value)
        for name, value in values.items()
    }
