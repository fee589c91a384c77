"""The claim about what a mixer's file says it costs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from harness.contract.finding import Absent, Broken
from harness.contract.subject import Subject
from harness.spec import Cost

MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d)


def cost(subject: Subject) -> str:
    """`cost` gives the layer's own parameters, the bytes of its live state, and no more products than torch counts."""
    if subject.spec.cost is None:
        raise Absent("no cost is given")
    length, layer = subject.longest, subject.layer.last
    found = subject.spec.cost(subject.dims, subject.config, length)
    least = 2 * sum(part.weight.numel() for part in layer.modules() if isinstance(part, MATRICES))
    _plausible(found, least)
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    if found.parameters != parameters:
        raise Broken(f"it says {found.parameters:,} parameters, the layer has {parameters:,}")
    tried = ["parameters exact"]
    if hasattr(layer, "step") and not subject.narrow:
        held = _held(_state(subject, layer, length))
        if found.state_bytes != held:
            raise Broken(f"it says {found.state_bytes:,} bytes of state after {length} tokens, step holds {held:,}")
        tried.append("state exact")
    if subject.spec.reference is not None and not subject.narrow:
        most = _products(subject, found.forward.products, length)
        # What lies below the diagonal only the file knows, so that products are held between two limits.
        tried.append(f"products {found.forward.products:,.0f} of {least:,} to {most:,.0f} possible")
    else:
        tried.append(f"products at least {least:,}")
    return ", ".join((*tried, "element-wise work not held"))


def _plausible(found: Cost, least: int) -> None:
    """Refuse what no layer costs: what is not finite or below 0, and fewer products than its matrices take."""
    for what, work in {"forward": found.forward, "decode": found.decode}.items():
        for kind, value in {"products": work.products, "element-wise work": work.elementwise}.items():
            if not 0 <= value < math.inf:
                raise Broken(f"it says {value} FLOPs of {kind} a token ({what})")
        if work.products < least:
            raise Broken(
                f"it says {work.products:,.0f} FLOPs a token in matrix products ({what}); the layer's matrices alone "
                f"take {least:,}"
            )
    if found.state_bytes < 0:
        raise Broken(f"it says {found.state_bytes:,} bytes of state")


def _state(subject: Subject, layer: Any, length: int) -> Any:
    state, x = None, subject.x(length, batch=1)
    with torch.no_grad():
        for t in range(length):
            _, state = layer.step(x[:, t : t + 1], state, {})
    return state


def _held(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (tuple, list)) else ()
    return sum(_held(part) for part in parts)


def _products(subject: Subject, said: float, length: int) -> float:
    # The explicit form computes the whole square of pairs, hidden ones too: a cost lies at or below it.
    layer = subject.build(noise=0.0, core=subject.spec.reference).last
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(subject.x(length, batch=1), {})
    counted: float = counter.get_total_flops() / length
    if said > counted * (1 + 1e-9):
        raise Broken(
            f"it says {said:,.0f} FLOPs a token in matrix products; "
            f"its explicit form takes {counted:,.0f} with every pair of {length} tokens"
        )
    return counted
