"""Over the training: Sink_1 and row mass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.figures.style import band, legend, panels, whole_steps
from harness.report.findings import ArmFindings, Findings
from harness.report.rows import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "paths"
TITLE = "While training"
CAPTION = "Sink_1 (raw weights) and mean row mass by step, mean and range over the seeds."
NEEDS = "paths"


def draw(result: Result, findings: Findings) -> Figure | None:
    """Two panels, one line an arm."""
    wanted = (("sink", "sink_1_percent", "Sink_1 (%)"), ("mass", "row_mass_mean", "row mass (sum of weights)"))
    if not any(_by_step(arm, measure, name) for arm in findings.arms for measure, name, _ in wanted):
        return None
    figure, grid = panels(2, height=2.4)
    for axes, (measure, name, label) in zip(grid, wanted, strict=True):
        for index, arm in enumerate(findings.arms):
            found = _by_step(arm, measure, name)
            if found is not None:
                band(axes, found[0], found[1], arm.label, index)
        axes.set_ylabel(label)
        axes.set_xlabel("training step")
        whole_steps(axes)
    grid[0].set_ylim(-3, 103)
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
