"""All measures of a model: which there are, what each looks at, and their findings in one go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.config import RunConfig
from harness.data import Evaluation, Source
from harness.errors import unknown
from harness.measures import (
    collapse,
    example,
    extrapolation,
    focus,
    mass,
    recall,
    redundancy,
    repeated,
    scalars,
    scale,
    sink,
    sparsity,
)
from harness.measures.block import Block
from harness.measures.finding import Array, Finding, NotDefinedError, not_defined
from harness.measures.inside import Inside, look
from harness.measures.maps import attention_map, gives_maps, rows_at_once
from harness.model import Decoder
from harness.registry import find
from harness.spec import MixerSpec

MAPS: tuple[Any, ...] = (sink, mass, sparsity, focus, redundancy)
STATES: tuple[Any, ...] = (collapse, scale)
PROBED = tuple(module.NAME for module in (*MAPS, *STATES))
"""Measures that look at sequences, fewer of them while a run trains."""

WHILE_TRAINING = (*PROBED, repeated.NAME, scalars.NAME)
"""Measures that are cheap enough for a callback; the others want the trained model and more data."""

NAMES = (*WHILE_TRAINING, extrapolation.NAME, recall.NAME, example.NAME)
NEED_MAPS = (*(module.NAME for module in MAPS), example.NAME)

ROWS = 16
LENGTH = 256
"""Sequences, and their longest length, for every measure but the sink's, whose definition fixes both."""

SMALL_ROWS = 4
"""Sequences while a run trains, so that looking costs under a tenth of it; the sink's stay as many as they are."""

CHANNEL_ROWS, CHANNEL_LENGTH = 2, 64
"""The same for a mixer with a map for every channel: thirty times as many maps as heads."""

VERSIONS: Mapping[str, int] = {
    module.NAME: module.VERSION
    for module in (*MAPS, *STATES, repeated, scalars, extrapolation, recall, example)
}


def chosen(names: Collection[str]) -> tuple[str, ...]:
    """The measures of these names in their order; all where none is named.

    Raises:
        UsageError: there is no such measure.
    """
    for name in names:
        if name not in NAMES:
            raise unknown("measure", name, NAMES)
    return tuple(name for name in NAMES if not names or name in names)


def measure(
    model: Decoder, run: RunConfig, source: Source, names: Collection[str], *, small: bool = False
) -> dict[str, Finding]:
    """Take measures of a model on fixed sequences of the selection split.

    Args:
        model: the decoder of the run; left as it was.
        run: its config.
        source: its data.
        names: which measures.
        small: whether this interrupts a training: then fewer sequences are looked at.

    Returns:
        Name to finding; one that means nothing here says so in `not_defined`.
    """
    spec = find(run.variant).spec
    found: dict[str, Finding] = {}
    if sink.NAME in names:
        probe = _probe(source, run, sink.SEQUENCES, sink.LENGTH)
        found |= _of_blocks(model, spec, probe, (sink,), (), small=small)
    maps = tuple(module for module in MAPS[1:] if module.NAME in names)
    states = tuple(module for module in STATES if module.NAME in names)
    probe = _probe(source, run, SMALL_ROWS if small else ROWS, LENGTH)
    if maps or states:
        found |= _of_blocks(model, spec, probe, maps, states, small=small)
    whole: dict[str, Callable[[], Finding]] = {
        repeated.NAME: lambda: repeated.measure(model, probe.inputs, length=probe.inputs.shape[1]),
        scalars.NAME: lambda: scalars.measure(model),
        extrapolation.NAME: lambda: extrapolation.measure(model, run, source),
        recall.NAME: lambda: recall.measure(model, run, source),
        example.NAME: lambda: example.measure(model, spec, source, length=run.data.length),
    }
    for name, take in whole.items():
        if name in names:
            try:
                found[name] = take()
            except NotDefinedError as reason:
                found[name] = not_defined(str(reason))
    return found


def _probe(source: Source, run: RunConfig, rows: int, length: int) -> Evaluation:
    length = min(length, run.data.length)
    # As many tokens as each point of the curve reads are there for certain.
    return source.evaluation("selection", length=length, tokens=min(rows * length, run.data.curve_tokens))


def _of_blocks(
    model: Decoder,
    spec: MixerSpec,
    probe: Evaluation,
    maps: tuple[ModuleType, ...],
    states: tuple[ModuleType, ...],
    *,
    small: bool,
) -> dict[str, Finding]:
    reason = gives_maps(spec)
    found = {module.NAME: not_defined(reason) for module in maps if reason is not None}
    maps = maps if reason is None else ()
    gathered: dict[str, list[dict[str, Array]]] = {}
    for inside, groups in _looks(model, spec if maps else None, probe, small=small):
        for module in states:
            gathered.setdefault(module.NAME, []).append(_numbers(module.reduce(inside)))
        layers = [_reduced(spec, inputs, groups, maps, found) for inputs in inside.inputs] if maps else []
        for module in maps:
            if module.NAME not in found:
                stats = [layer[module.NAME] for layer in layers]
                stacked = {name: np.stack([layer[name] for layer in stats], axis=1) for name in stats[0]}
                gathered.setdefault(module.NAME, []).append(stacked)
    for module in (*maps, *states):
        if module.NAME in gathered and module.NAME not in found:
            blocks = gathered[module.NAME]
            found[module.NAME] = module.summarise(
                {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
            )
    return found


def _looks(
    model: Decoder, spec: MixerSpec | None, probe: Evaluation, *, small: bool
) -> Iterator[tuple[Inside, dict[str, Tensor]]]:
    """The probe in blocks whose maps fit into memory; without a spec all at once."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(probe.inputs).to(device)
    groups = {name: torch.from_numpy(mask).to(device) for name, mask in probe.groups.items()}
    rows = len(tokens)
    if spec is not None:
        first = look(model, tokens[:1]).inputs[0]
        rows = rows_at_once(first, spec, tokens.shape[1])
        if small and first[spec.linear_in or ""].ndim != 4:
            tokens = tokens[:CHANNEL_ROWS, :CHANNEL_LENGTH]
            groups = {name: mask[:, :CHANNEL_LENGTH] for name, mask in groups.items()}
    for start in range(0, len(tokens), rows):
        part = slice(start, start + rows)
        yield look(model, tokens[part]), {name: mask[part] for name, mask in groups.items()}


def _reduced(
    spec: MixerSpec,
    inputs: Mapping[str, Any],
    groups: Mapping[str, Tensor],
    maps: tuple[ModuleType, ...],
    found: dict[str, Finding],
) -> dict[str, dict[str, Array]]:
    """Statistics of each map measure in one layer; those that are not defined go to `found`."""
    weights = attention_map(spec, inputs)
    wanted = any(module is sparsity for module in maps)
    plain = attention_map(spec, inputs, plain=True) if wanted and spec.plain is not None else None
    block = Block(weights, plain, groups)
    stats = {}
    for module in maps:
        if module.NAME in found:
            continue
        try:
            stats[module.NAME] = _numbers(module.reduce(block))
        except NotDefinedError as reason:
            found[module.NAME] = not_defined(str(reason))
    return stats


def _numbers(stats: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: values.double().cpu().numpy() for name, values in stats.items()}
