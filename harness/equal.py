"""Arms made comparable: equal sizes, and equal budgets of tokens, FLOPs or seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from harness.arms import Arm
from harness.config import RunConfig
from harness.cost import MATCHES, matched, run_cost
from harness.errors import UsageError, unknown
from harness.fields import restore
from harness.train import mixers

BUDGETS = ("tokens", "flops", "seconds")
"""What every arm of a table gets the same amount of."""


def check_terms(match: str | None, budget: str) -> None:
    """Refuse a word that names no match or no budget.

    Raises:
        UsageError: it names neither.
    """
    if match is not None and match not in MATCHES:
        raise unknown("--match", match, MATCHES)
    if budget not in BUDGETS:
        raise unknown("--budget", budget, BUDGETS)


def equal_sizes(
    arms: Sequence[Arm], runs: Sequence[RunConfig], base: int, match: str | None, vocab_size: int
) -> tuple[list[Arm], list[RunConfig]]:
    """Arms and runs brought to the size of the baseline.

    Args:
        arms, runs: in table order.
        base: index of the baseline, which stays as it is.
        match: a key of `MATCHES`, or none: nothing moves.
        vocab_size: V of the data.

    Raises:
        UsageError: a size that no width can meet, no cost formulas, or an arm that sets what would move.
    """
    if match is None:
        return list(arms), list(runs)
    target = run_cost(runs[base], vocab_size)
    new_arms, new_runs = [], []
    for index, (arm, run) in enumerate(zip(arms, runs, strict=True)):
        if index != base:
            _refuse_set(arm, match)
            run = matched(run, target, on=match, vocab_size=vocab_size, label=arm.label)
        spec = arm.variant.spec
        new_arms.append(dataclasses.replace(arm, mixer=restore(spec.Config, run.mixer, where=spec.name)))
        new_runs.append(run)
    return new_arms, new_runs


def _refuse_set(arm: Arm, match: str) -> None:
    moved = ["model.mlp_dim"] + ([arm.variant.spec.state_knob] if match == "state" else [])
    for field in moved:
        if field in arm.fields:
            raise UsageError(f"--match {match} moves {field}, which the arm {arm.label!r} sets; leave one of them out")


def equal_budget(
    arms: Sequence[Arm],
    runs: Sequence[RunConfig],
    base: int,
    budget: str,
    vocab_size: int,
    step_ms: Mapping[str, float] | None,
) -> list[RunConfig]:
    """Runs that stop where the baseline's budget is spent.

        steps = steps of the baseline * its FLOPs a step / FLOPs a step of the arm    (or milliseconds)

    Args:
        arms, runs: in table order.
        base: index of the baseline.
        budget: one of `BUDGETS`.
        vocab_size: V of the data.
        step_ms: time of a training step by arm, for `seconds`; empty leaves the runs as they are, to be timed.

    Raises:
        UsageError: arms that would mix two budgets in one table, no cost formulas, no step time.
    """
    if budget == "tokens":
        _refuse_mixed(arms, runs)
        return list(runs)
    if budget == "seconds" and step_ms is not None and not step_ms:
        return list(runs)
    spent = [_per_step(arm, run, budget, vocab_size, step_ms) for arm, run in zip(arms, runs, strict=True)]
    found = []
    for index, (arm, run) in enumerate(zip(arms, runs, strict=True)):
        if index != base and "train.steps" in arm.fields:
            raise UsageError(f"--budget {budget} sets the steps of {arm.label!r}; leave its train.steps out")
        steps = round(runs[base].train.steps * spent[base] / spent[index])
        if steps < 1:
            raise UsageError(f"--budget {budget}: {arm.label} would not get a single step; give more (train.steps)")
        found.append(dataclasses.replace(run, train=dataclasses.replace(run.train, steps=steps)))
    return found


def tokens(run: RunConfig) -> int:
    """Tokens a run trains on."""
    return run.train.steps * run.train.batch_size * run.data.length


def _refuse_mixed(arms: Sequence[Arm], runs: Sequence[RunConfig]) -> None:
    counts = {arm.label: tokens(run) for arm, run in zip(arms, runs, strict=True)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{label} {count:,}" for label, count in counts.items())
        raise UsageError(
            f"these arms train on different numbers of tokens ({told}) and belong in tables of their own; "
            "drop train.steps and train.batch_size, or take --budget flops or seconds"
        )


def _per_step(arm: Arm, run: RunConfig, budget: str, vocab_size: int, step_ms: Mapping[str, float] | None) -> float:
    if budget == "flops":
        return run_cost(run, vocab_size).training * run.train.batch_size * run.data.length
    if step_ms is None or arm.label not in step_ms:
        raise UsageError(
            f"--budget seconds needs the step time of {arm.label}, which is not measured here: a dry run measures "
            "nothing, and an arm that cannot train has none"
        )
    return step_ms[arm.label]


def costs(arms: Sequence[Arm], runs: Sequence[RunConfig], vocab_size: int) -> dict[str, dict[str, Any]]:
    """What each arm costs, as the experiment's file keeps it; arms without formulas are left out.

    Returns:
        By label: `parameters`, `forward_flops`, `training_flops` and `decode_flops` a token, `state_bytes`, `steps`.
    """
    found = {}
    for arm, run in zip(arms, runs, strict=True):
        if all(mixer.spec.cost is not None for mixer in mixers(run)):
            cost = run_cost(run, vocab_size)
            found[arm.label] = {
                "parameters": cost.parameters,
                "forward_flops": cost.forward.total,
                "training_flops": cost.training,
                "decode_flops": cost.decode.total,
                "state_bytes": cost.state_bytes,
                "steps": run.train.steps,
            }
    return found
