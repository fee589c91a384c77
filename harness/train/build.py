"""From a run's config to a model with its initial values, and to an optimiser with its schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from harness.config import RunConfig, TrainConfig
from harness.fields import restore
from harness.model import Decoder, initialise, seed_everything
from harness.registry import core_of, find
from harness.spec import Dims, MixerSpec


@dataclass(frozen=True)
class Mixer:
    """The mixer of a layer: its specification, its config, the name of its backend."""

    spec: MixerSpec
    config: Any
    backend: str


def mixers(run: RunConfig) -> tuple[Mixer, ...]:
    """The mixer of each layer of a run: its own, or those that its pattern repeats, the others at their defaults.

    Raises:
        UsageError: a variant cannot be found or configured.
    """
    own = find(run.variant).spec
    names = (run.model.pattern or own.name).split(",")
    backends = dict(zip(dict.fromkeys(names), run.train.backend.split(","), strict=True))
    specs = {name: own if name == own.name else find(name).spec for name in backends}
    kinds = {
        name: Mixer(
            spec,
            restore(spec.Config, run.mixer, where=spec.name) if spec is own else spec.Config(),
            backends[name],
        )
        for name, spec in specs.items()
    }
    return tuple(kinds[names[index % len(names)]] for index in range(run.model.num_layers))


def build_model(run: RunConfig, *, vocab_size: int) -> Decoder:
    """The model of a run at step 0, on its device.

    Args:
        run: resolved config.
        vocab_size: V of the data.

    Raises:
        UsageError: the variant cannot be found or configured.
        ValueError: the layer refuses these dimensions.
    """
    kinds = mixers(run)
    seed = run.train.seed if run.train.init_seed is None else run.train.init_seed

    def mixer(dims: Dims, index: int) -> nn.Module:
        # What a constructor draws by itself depends on the seed and the layer, not on what was built before.
        seed_everything("layer", seed, index)
        kind = kinds[index]
        core = core_of(kind.spec, kind.backend)
        layer: nn.Module = kind.spec.Layer(dims, kind.config, layer_index=index, core=core)
        return layer

    model = Decoder(run.model, vocab_size=vocab_size, length=run.data.length, mixer=mixer)
    initialise(model, seed=seed, std=run.model.init_std)
    return model.to(run.train.device)


def optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW that decays matrices alone, and none that its layer lists in `undecayed`."""
    spared = {
        f"{name}.{inner}" if name else inner
        for name, module in model.named_modules()
        for inner in getattr(module, "undecayed", ())
    }
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (decayed if parameter.ndim >= 2 and name not in spared else free).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)


def rate(step: int, config: TrainConfig) -> float:
    """Learning rate of a step: linear to the peak over the warm-up, then a cosine to `final_rate` of it.

    Args:
        step: from 0; the first step already runs at a part of the peak, the last one at `final_rate` of it.
        config: the recipe.
    """
    warmup = round(config.warmup * config.steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    after = max(1, config.steps - 1 - warmup)
    share = min(1.0, (step - warmup) / after)
    floor = config.final_rate
    return config.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2)
