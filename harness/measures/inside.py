"""One look into a model: what each layer's mixer is given, and the residual stream between the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.model import Decoder


@dataclass(frozen=True, eq=False)
class Inside:
    """What one forward pass showed.

    Args:
        residual: the stream before the first layer and after each, L + 1 of [B, T, M].
        inputs: arguments of the mixer's `reference` in each layer; empty where the mixer does not give them.
    """

    residual: tuple[Tensor, ...]
    inputs: tuple[Mapping[str, Any], ...]


@torch.no_grad()
def look(model: Decoder, tokens: Tensor) -> Inside:
    """Run the model over tokens in the precision of its weights, and keep what passes by.

    The model is left as it was found: mode, weights, gradients and random streams.

    Args:
        model: the decoder.
        tokens: [B, T].
    """
    residual: list[Tensor] = []
    inputs: list[Mapping[str, Any]] = []

    def block(module: Any, arguments: tuple[Any, ...]) -> None:
        residual.append(arguments[0])

    def mixer(module: Any, arguments: tuple[Any, ...]) -> None:
        x, shared = arguments
        # A copy: what `inputs` may hand on must not meet the same layer's forward pass.
        inputs.append(module.inputs(x, dict(shared)) if hasattr(module, "inputs") else {})

    hooks = [layer.register_forward_pre_hook(block) for layer in model.layers]
    hooks += [layer.mixer.register_forward_pre_hook(mixer) for layer in model.layers]
    hooks.append(model.norm.register_forward_pre_hook(block))
    training = model.training
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.autocast(tokens.device.type, enabled=False):
            model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)
    return Inside(tuple(residual), tuple(inputs))
