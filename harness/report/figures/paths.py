"""Over the training: Sink_1, row mass, and the threshold of each head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import COLOURS, DASHES, band, legend, panels, whole_steps
from harness.report.findings import ArmFindings, Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "paths"
TITLE = "While training"
CAPTION = (
    "Sink_1 (raw weights) and mean row mass by step, mean and range over the seeds; then -tau of each head of the "
    "first seed: a query that sees n keys loses every weight under -tau/n. Layer by colour, head by dashes."
)
NEEDS = "paths"


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels for all arms, and one for each arm with a threshold."""
    if not any(_by_step(arm, "sink", "sink_1_percent") for arm in findings.arms):
        return None
    taus = [(arm.label, path) for arm in findings.arms if (path := arm.path("scalars", "tau")) and len(path[0]) > 1]
    figure, grid = panels(2 + len(taus), height=2.4)
    for axes, (measure, name, label) in zip(
        grid,
        (("sink", "sink_1_percent", "Sink_1 (%)"), ("mass", "row_mass_mean", "row mass (sum of weights)")),
        strict=False,
    ):
        for index, arm in enumerate(findings.arms):
            found = _by_step(arm, measure, name)
            if found is not None:
                band(axes, found[0], found[1], arm.label, index)
        axes.set_title("all arms")
        axes.set_ylabel(label)
    grid[0].set_ylim(-3, 103)
    for axes in grid[3:]:
        axes.sharey(grid[2])
    for axes, (label, (steps, values)) in zip(grid[2:], taus, strict=True):
        for layer in range(values.shape[1]):
            for head in range(values.shape[2]):
                axes.plot(
                    steps,
                    -values[:, layer, head],
                    color=COLOURS[(layer + 1) % len(COLOURS)],
                    linestyle=DASHES[head % len(DASHES)],
                )
        axes.set_title(label)
        axes.set_ylabel("-tau (weight times n)")
    for axes in grid:
        axes.set_xlabel("training step")
        whole_steps(axes)
    legend(figure, grid[0])
    return figure


def _by_step(arm: ArmFindings, measure: str, name: str) -> tuple[list[int], np.ndarray] | None:
    runs = [
        {record.step: record.values[name] for record in path if isinstance(record.values.get(name), (int, float))}
        for path in arm.steps.get(measure, ())
    ]
    steps = sorted(set.intersection(*(set(run) for run in runs if run))) if any(runs) else []
    if len(steps) < 2:
        return None
    return steps, np.array([[run[step] for step in steps] for run in runs if run], dtype=float)
