"""What the variants' files say they cost, held against torch's counter, a count by scalars and the live cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness import registry
from harness.contract import option_configs, switch_configs
from harness.fields import build, resolved, settings
from harness.spec import Dims

DIMS = Dims(model_dim=24, num_heads=4, num_layers=2, length=16)
LENGTH = 9
convolution_backward = torch.ops.aten.convolution_backward


def cases() -> list[Any]:
    found = []
    for name, variant in registry.shipped().items():
        configs = {**switch_configs(variant.spec), **option_configs(variant.spec)}
        known = settings(variant.spec.Config)
        for field, value in {"kv_heads": 2, "window": 5, "state": 3, "conv_width": 2, "expand": 3}.items():
            if field in known:
                values = {**resolved(variant.spec.Config()), field: value}
                configs[f"{field}={value}"] = build(variant.spec.Config, values, where=name)
        found += [pytest.param(variant.spec, config, id=f"{name} {label}") for label, config in configs.items()]
    return found


def layer(spec: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return spec.Layer(DIMS, config, layer_index=0, core=spec.reference).eval()


def counted(module: Any, length: int) -> tuple[int, int]:
    """FLOPs a sequence that torch counts forward and backward in the explicit form, all pairs of the square."""
    x = torch.randn(1, length, DIMS.model_dim, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = module(x, {})
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    # Of a convolution by channels torch counts a backward pass of all channels on all: it is left out.
    passes = backward.get_flop_counts()["Global"]
    return forward.get_total_flops(), backward.get_total_flops() - passes.get(convolution_backward, 0)


def projections(module: Any, *, conv: bool = True) -> int:
    """FLOPs of a token in matrices and convolutions, read from the live weights."""
    kinds = (torch.nn.Linear, torch.nn.Conv1d) if conv else torch.nn.Linear
    return 2 * sum(part.weight.numel() for part in module.modules() if isinstance(part, kinds))


def shares(spec: Any, config: Any, length: int) -> float:
    """Pairs of the causal sequence over pairs of the square, one by one."""
    window = getattr(config, "window", None) or length
    own = getattr(config, "attend_current", spec.name != "stick_breaking")
    pairs = sum(1 for i in range(length) for j in range(length) if 0 <= i - j < window and (own or j < i))
    return pairs / length**2


@pytest.mark.parametrize(("spec", "config"), cases())
def test_matrix_products_are_those_torch_counts_times_the_causal_share(spec: Any, config: Any) -> None:
    module, cost, share = layer(spec, config), spec.cost(DIMS, config, LENGTH), shares(spec, config, LENGTH)
    forward, backward = counted(module, LENGTH)
    around, matrices = projections(module), projections(module, conv=False)
    core = (forward / LENGTH - around) * share
    assert cost.forward.products == pytest.approx(around + core, rel=1e-12)
    core = (backward / LENGTH - 2 * matrices) * share
    assert cost.backward.products == pytest.approx(2 * around + core, rel=1e-12)


@pytest.mark.parametrize(("spec", "config"), cases())
@pytest.mark.parametrize("length", [1, LENGTH])
def test_state_bytes_are_those_of_the_live_cache(spec: Any, config: Any, length: int) -> None:
    module, state = layer(spec, config), None
    with torch.no_grad():
        for _ in range(length):
            _, state = module.step(torch.randn(1, 1, DIMS.model_dim), state, {})
    held = sum(part.nelement() * part.element_size() for part in state if isinstance(part, torch.Tensor))
    assert spec.cost(DIMS, config, length).state_bytes == held


@pytest.mark.parametrize(("spec", "config"), cases())
def test_parameters_are_those_of_the_layer(spec: Any, config: Any) -> None:
    assert spec.cost(DIMS, config, LENGTH).parameters == sum(p.numel() for p in layer(spec, config).parameters())


@pytest.mark.parametrize(("spec", "config"), cases())
def test_decoding_a_sequence_costs_what_its_forward_pass_costs(spec: Any, config: Any) -> None:
    steps = [spec.cost(DIMS, config, n).decode for n in range(1, LENGTH + 1)]
    forward = spec.cost(DIMS, config, LENGTH).forward
    assert sum(step.products for step in steps) == pytest.approx(LENGTH * forward.products)
    assert sum(step.elementwise for step in steps) == pytest.approx(LENGTH * forward.elementwise)
