"""All measures of a model: which there are, what each looks at, and their findings in one go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from harness.measures.finding import Array, Finding, NotDefinedError, failed, not_defined, require_finite
from harness.measures.inside import Inside, look
from harness.measures.maps import attention_map, channels, gives_maps, rows_at_once
from harness.model import Decoder
from harness.spec import MixerSpec
from harness.train.build import mixers

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
    module.NAME: module.VERSION for module in (*MAPS, *STATES, repeated, scalars, extrapolation, recall, example)
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
        Name to finding; one that means nothing here says so in `not_defined`, and one that broke off in `failed` too:
        what goes wrong in one measure costs neither the others nor the run.
    """
    specs = [mixer.spec for mixer in mixers(run)]
    found: dict[str, Finding] = {}
    if sink.NAME in names:
        probe = _probe(source, run, sink.SEQUENCES, sink.LENGTH)
        _of_blocks(model, specs, probe, (sink,), (), found, small=small)
    maps = tuple(module for module in MAPS[1:] if module.NAME in names)
    states = tuple(module for module in STATES if module.NAME in names)
    probe = _probe(source, run, SMALL_ROWS if small else ROWS, LENGTH)
    if maps or states:
        _of_blocks(model, specs, probe, maps, states, found, small=small)
    whole: dict[str, Callable[[], Finding]] = {
        repeated.NAME: lambda: repeated.measure(model, probe.inputs, length=probe.inputs.shape[1]),
        scalars.NAME: lambda: scalars.measure(model),
        extrapolation.NAME: lambda: extrapolation.measure(model, run, source),
        recall.NAME: lambda: recall.measure(model, run, source),
        example.NAME: lambda: example.measure(model, specs, source, length=run.data.length),
    }
    for name, take in whole.items():
        if name in names:
            with _noting(found, name):
                found[name] = take()
    return {name: found[name] for name in NAMES if name in found}


@contextlib.contextmanager
def _noting(found: dict[str, Finding], *names: str) -> Iterator[None]:
    """What is not defined, or goes wrong, within the block stands for these measures; what they found already stays."""
    try:
        yield
    except NotDefinedError as reason:
        found |= {name: not_defined(str(reason)) for name in names if name not in found}
    # A mixer may fail in any way it likes where it is only looked at, by leaving the process too.
    except (Exception, SystemExit) as error:
        found |= {name: failed(error) for name in names if name not in found}


def _probe(source: Source, run: RunConfig, rows: int, length: int) -> Evaluation:
    length = min(length, run.data.length)
    # As many tokens as each point of the curve reads are there for certain.
    return source.evaluation("selection", length=length, tokens=min(rows * length, run.data.curve_tokens))


def _of_blocks(
    model: Decoder,
    specs: Sequence[MixerSpec],
    probe: Evaluation,
    maps: tuple[ModuleType, ...],
    states: tuple[ModuleType, ...],
    found: dict[str, Finding],
    *,
    small: bool,
) -> None:
    """Add to `found` what the probe shows of these measures."""
    reason = next(filter(None, map(gives_maps, specs)), None)
    if reason is not None:
        found |= {module.NAME: not_defined(reason) for module in maps}
        maps = ()
    gathered: dict[str, list[dict[str, Array]]] = {}
    length = 0
    with _noting(found, *(module.NAME for module in (*maps, *states))):
        for inside, groups in _looks(model, specs if maps else (), probe, small=small):
            length = inside.residual[0].shape[1]
            for module in states:
                with _noting(found, module.NAME):
                    gathered.setdefault(module.NAME, []).append(_numbers(module.reduce(inside)))
            layers = [
                _reduced(spec, inputs, groups, maps, found)
                for spec, inputs in zip(specs, inside.inputs, strict=True)
                if maps
            ]
            for module in maps:
                if module.NAME not in found:
                    gathered.setdefault(module.NAME, []).append(_stacked([layer[module.NAME] for layer in layers]))
    for module in (*maps, *states):
        if module.NAME not in found:
            with _noting(found, module.NAME):
                blocks = gathered[module.NAME]
                whole = module.summarise({name: np.concatenate([part[name] for part in blocks]) for name in blocks[0]})
                found[module.NAME] = Finding({"length_tokens": length, **whole.values}, whole.arrays)


def _stacked(layers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Statistics [B, L, ...] that every layer has."""
    names = [name for name in layers[0] if all(name in layer for layer in layers)]
    # A hybrid may have heads in one layer and channels in another: their means over heads are put side by side.
    if len({layer[name].shape for layer in layers for name in names[:1]}) > 1:
        layers = [{name: layer[name].mean(1, keepdims=True) for name in names} for layer in layers]
    return {name: np.stack([layer[name] for layer in layers], axis=1) for name in names}


def _looks(
    model: Decoder, specs: Sequence[MixerSpec], probe: Evaluation, *, small: bool
) -> Iterator[tuple[Inside, dict[str, Tensor]]]:
    """The probe in blocks whose maps fit into memory; without specs all at once."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(probe.inputs).to(device)
    groups = {name: torch.from_numpy(mask).to(device) for name, mask in probe.groups.items()}
    rows = len(tokens)
    if specs:
        first = look(model, tokens[:1]).inputs
        if small and any(channels(inputs, spec) for inputs, spec in zip(first, specs, strict=True)):
            tokens = tokens[:CHANNEL_ROWS, :CHANNEL_LENGTH]
            groups = {name: mask[:, :CHANNEL_LENGTH] for name, mask in groups.items()}
        rows = min(rows_at_once(inputs, spec, tokens.shape[1]) for inputs, spec in zip(first, specs, strict=True))
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
    stats: dict[str, dict[str, Array]] = {}
    with _noting(found, *(module.NAME for module in maps)):
        weights = attention_map(spec, inputs)
        require_finite("attention maps", weights)
        wanted = any(module is sparsity for module in maps)
        plain = attention_map(spec, inputs, plain=True) if wanted and spec.plain is not None else None
        block = Block(weights, plain, groups)
        for module in maps:
            if module.NAME not in found:
                with _noting(found, module.NAME):
                    stats[module.NAME] = _numbers(module.reduce(block))
    return stats


def _numbers(stats: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: values.double().cpu().numpy() for name, values in stats.items()}
