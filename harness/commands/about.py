"""What `list` and `doctor` do: what there is, what it costs, and what runs here."""

from __future__ import annotations

from typing import Any

import torch

from harness import environment, registry
from harness.config import SECTIONS, DataConfig, ModelConfig
from harness.cost import layer_cost, rest_of_block
from harness.errors import UsageError
from harness.fields import resolved, settings
from harness.spec import Cost, Dims


def costs(length: int | None) -> dict[str, Any]:
    """What one layer of each shipped variant costs in a model of the default shape, and what stands around it.

    Args:
        length: tokens of the sequence; that of the default data unless given.

    Returns:
        `model_dim`, `num_heads`, `length`; `variants` and `rest_of_block`, each with FLOPs a token, bytes, parameters.

    Raises:
        UsageError: a length below 1.
    """
    model, length = ModelConfig(), DataConfig().length if length is None else length
    if length < 1:
        raise UsageError(f"--length {length}: allowed is a whole number of at least 1")
    dims = Dims(model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=length)
    specs = [variant.spec for variant in registry.shipped().values()]
    return {
        "model_dim": model.model_dim,
        "num_heads": model.num_heads,
        "length": length,
        "variants": [
            {"name": spec.name, **_plain(layer_cost(spec, spec.Config(), dims, length))} for spec in specs if spec.cost
        ],
        "rest_of_block": {"mlp_dim": model.mlp_dim, **_plain(rest_of_block(model))},
    }


def _plain(cost: Cost) -> dict[str, float]:
    return {
        "forward_flops": cost.forward.total,
        "backward_flops": cost.backward.total,
        "decode_flops": cost.decode.total,
        "state_bytes": cost.state_bytes,
        "parameters": cost.parameters,
    }


def listing() -> dict[str, Any]:
    """Every variant with its switches, knobs and backends here, and every declared experiment."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "variants": [_described(variant, device) for variant in registry.shipped().values()],
        "settings": {name: resolved(section()) for name, section in SECTIONS.items()},
        "experiments": [
            {"name": name, "question": declared.question} for name, declared in registry.experiments().items()
        ],
    }


def _described(variant: registry.Variant, device: str) -> dict[str, Any]:
    model = ModelConfig()
    dims = Dims(
        model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=DataConfig().length
    )
    known = settings(variant.spec.Config).items()
    backends = registry.backends_here(variant.spec, device, dims)
    return {
        "name": variant.spec.name,
        "source": variant.spec.source,
        "switches": [
            {"name": name, "default": s.default, "removes": s.role.removes, "equals": s.role.equals}
            for name, s in known
            if s.role.kind == "switch"
        ],
        "knobs": [{"name": name, "default": s.default} for name, s in known if s.role.kind == "knob"],
        "choices": [
            {"name": name, "default": s.default, "options": list(s.role.options)}
            for name, s in known
            if s.role.kind == "choice"
        ],
        "sizes": [{"name": name, "default": s.default} for name, s in known if s.role.kind == "size"],
        "backends": [{"name": backend.name, "available": here, "reason": reason} for backend, here, reason in backends],
        "aliases": sorted(variant.spec.aliases),
    }


def doctor() -> dict[str, Any]:
    """This machine, and each optional backend with the reason why it cannot run here."""
    backends = [
        {"variant": found["name"], **backend} for found in listing()["variants"] for backend in found["backends"]
    ]
    return {"environment": environment.describe(), **environment.commit(), "backends": backends}
