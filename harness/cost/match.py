"""The sizes at which an arm costs what the baseline costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.config import RunConfig
from harness.cost.model import run_cost
from harness.errors import UsageError
from harness.fields import build, identity, restore, settings
from harness.registry import find
from harness.spec import Cost, Dims

MATCHES: Mapping[str, Callable[[Cost], float]] = {
    "parameters": lambda cost: cost.parameters,
    "flops": lambda cost: cost.training,
    "state": lambda cost: cost.state_bytes,
}
"""What arms can be matched on: trained numbers, FLOPs of a token in training, bytes of state."""

_WORDS = {"parameters": "parameters", "flops": "FLOPs a token"}
MOST = 1 << 16
"""Largest value of a state knob that is tried."""


def matched(run: RunConfig, target: Cost, *, on: str, vocab_size: int, label: str) -> RunConfig:
    """A run of about the same cost as another.

    For parameters and FLOPs the hidden width of the MLP moves, to the nearest whole number. For the state the
    variant's declared knob moves, to the nearest size that its layer accepts, then the MLP evens out the parameters as
    far as it can; a variant without a knob keeps its state.

    Args:
        run: of the arm.
        target: cost of the baseline.
        on: a key of `MATCHES`.
        vocab_size: V of the data.
        label: the arm, for the message.

    Raises:
        UsageError: no width meets the target, or a mixer without formulas.
    """
    if on != "state":
        return _width(run, target, on, vocab_size, label)
    run = _state(run, target, vocab_size)
    try:
        return _width(run, target, "parameters", vocab_size, label)
    except UsageError:
        # Parameters come second here: what is left stands in the table.
        return _with_width(run, 1)


def _width(run: RunConfig, target: Cost, on: str, vocab_size: int, label: str) -> RunConfig:
    value = MATCHES[on]
    one, two = (value(run_cost(_with_width(run, width), vocab_size)) for width in (1, 2))
    # Both grow linearly with the width.
    width = round(1 + (value(target) - one) / (two - one))
    if width < 1:
        raise UsageError(
            f"--match {on}: {label} has {one:,.0f} {_WORDS[on]} with an MLP of width 1, and the baseline "
            f"{value(target):,.0f}: no width can meet that; take a larger baseline or a smaller mixer"
        )
    return _with_width(run, width)


def _with_width(run: RunConfig, width: int) -> RunConfig:
    return dataclasses.replace(run, model=dataclasses.replace(run.model, mlp_dim=width))


def _state(run: RunConfig, target: Cost, vocab_size: int) -> RunConfig:
    wanted, spec = target.state_bytes, find(run.variant).spec
    at = run_cost(run, vocab_size).state_bytes
    if not spec.state_knob or at == wanted:
        return run
    reached: list[tuple[int, int, RunConfig]] = [(abs(at - wanted), 0, run)]
    last = -1
    for value in range(1, MOST):
        other = _with_knob(run, spec.state_knob, value)
        if other is None:
            continue
        size = run_cost(other, vocab_size).state_bytes
        reached.append((abs(size - wanted), value, other))
        # Past the sequence's length a window holds no more, and past twice the target nothing is nearer.
        if size == last or size > 2 * wanted:
            break
        last = size
    return next(
        other for _, value, other in sorted(reached, key=lambda found: found[:2]) if not value or _accepted(other)
    )


def _with_knob(run: RunConfig, knob: str, value: int) -> RunConfig | None:
    spec = find(run.variant).spec
    config: Any = restore(spec.Config, run.mixer, where=spec.name)
    values = {name: getattr(config, name) for name in settings(spec.Config)}
    try:
        return dataclasses.replace(run, mixer=identity(build(spec.Config, {**values, knob: value}, where=spec.name)))
    except UsageError:
        return None


def _accepted(run: RunConfig) -> bool:
    """Whether the layer takes its config: it says so in its constructor."""
    spec, model = find(run.variant).spec, run.model
    dims = Dims(
        model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=run.data.length
    )
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            spec.Layer(dims, restore(spec.Config, run.mixer, where=spec.name), layer_index=0, core=None)
    except ValueError:
        return False
    return True
