"""What `list --cost` and `--budget seconds` do: what variants cost, and how long their steps take here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from harness import registry
from harness.config import DataConfig, ModelConfig
from harness.cost import layer_cost, rest_of_block
from harness.errors import UsageError
from harness.events import Event
from harness.execute import time_arms
from harness.experiment import Request, plan
from harness.records import Store
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


def timed(request: Request, store: Store, notify: Callable[[Event], None], *, cuda: bool) -> Request:
    """A request for equal seconds with the step time of each arm, measured now unless this machine has done so.

    Raises:
        UsageError: anything in it cannot be done, or an arm has no step time because it cannot train.
    """
    # An empty mapping asks for the arms as they are: the ones to be timed.
    planned = plan(dataclasses.replace(request, step_ms={}), cuda=cuda)
    store.check_writable()
    key = time_arms(planned, store, notify)
    record = store.timing(key) if key else None
    measured = record.arms if record else {}
    step_ms = {arm.label: measured[arm.timing_key]["step_ms"] for arm in planned.arms if arm.timing_key in measured}
    return dataclasses.replace(request, step_ms=step_ms)
