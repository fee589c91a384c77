"""From what studies chose to the arms of a table: each arm at its best settings, and at its defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from harness.equal import costs
from harness.errors import UsageError
from harness.experiment import Plan, PlannedArm, with_seed
from harness.fields import resolved
from harness.registry import configure
from harness.tune.effort import FIRST_SEED
from harness.tune.space import Space, text_of

TUNED = " tuned"
DEFAULTS = " defaults"


def chosen_plan(
    planned: Plan,
    spaces: Mapping[str, Space],
    choices: Mapping[str, Sequence[Mapping[str, Any]]],
    about: Mapping[str, Any],
) -> Plan:
    """A plan whose arms come twice: with the settings that were chosen for them, then with their defaults.

    Args:
        planned: the arms with their defaults.
        spaces: of each arm, by label.
        choices: settings of each arm, one for each study; its seeds go round through them.
        about: how they were chosen, for the table.

    Raises:
        UsageError: more studies than seeds, or seeds that reach those of the trials.
    """
    studies = len(next(iter(choices.values())))
    if len(planned.seeds) < studies:
        raise UsageError(f"--studies {studies} needs a seed for each: --seeds {2 * studies}, say")
    if max(planned.seeds) >= FIRST_SEED:
        raise UsageError(f"--seeds: seeds from {FIRST_SEED} on are those of the trials; a table takes fewer")
    tuned = [_tuned(arm, spaces[arm.label], choices[arm.label], planned.seeds) for arm in planned.arms]
    defaults = [_defaults(arm, best) for arm, best in zip(planned.arms, tuned, strict=True)]
    tuning = {
        **about,
        "studies": studies,
        "pairs": {best.label: plain.label for best, plain in zip(tuned, defaults, strict=True)},
        "chosen": {
            arm.label + TUNED: [text_of(arm.arm, values) for values in choices[arm.label]] for arm in planned.arms
        },
    }
    return dataclasses.replace(
        planned,
        name=f"{planned.name}-{about['name']}",
        baseline=planned.baseline + TUNED,
        arms=(*tuned, *defaults),
        settings={**planned.settings, "costs": _costs(planned, (*tuned, *defaults)), "tuning": tuning},
    )


def _costs(planned: Plan, arms: Sequence[PlannedArm]) -> dict[str, Any]:
    return costs([arm.arm for arm in arms], [arm.runs[0] for arm in arms], planned.source.vocab_size)


def _tuned(arm: PlannedArm, space: Space, choices: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> PlannedArm:
    runs = tuple(space.settle(choices[place % len(choices)], seed=seed) for place, seed in enumerate(seeds))
    mixer = {name: value for name, value in choices[0].items() if not name.startswith("train.")}
    config = configure(arm.arm.variant, {**resolved(arm.arm.mixer), **mixer})
    label = arm.label + TUNED
    return PlannedArm(label, dataclasses.replace(arm.arm, label=label, mixer=config), runs, None)


def _defaults(arm: PlannedArm, best: PlannedArm) -> PlannedArm:
    alike = all(with_seed(a, 0).id == with_seed(b, 0).id for a, b in zip(arm.runs, best.runs, strict=True))
    same = best.label if alike else arm.same_as and arm.same_as + DEFAULTS
    label = arm.label + DEFAULTS
    return PlannedArm(label, dataclasses.replace(arm.arm, label=label), arm.runs, same)
