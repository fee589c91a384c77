from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import measures
from harness.arms import parse
from harness.measures.inside import look
from harness.measures.maps import attention_map
from harness.registry import shipped
from harness.spec import Dims, MixerSpec
from harness.train import build_model
from tests import tiny

EXTRA = [
    "lazy[elastic=off]",
    "lazy[renormalise=on,tau_start=-0.5]",
    "lazy[tau_start=0.3]",
    "softmax[positions=alibi]",
    "softmax[window=4]",
    "softmax[kv_heads=1]",
    "stick_breaking[remainder=value]",
    "mamba[skip=off]",
]
ARMS = [*shipped(), *EXTRA]
DIMS = Dims(model_dim=8, num_heads=2, num_layers=1, length=12)


def through_map(spec: MixerSpec) -> Any:
    """A core that makes the map first and then applies it to the values."""
    reference: Any = spec.reference

    def core(*given: Any, **named: Any) -> Any:
        inputs = inspect.signature(reference).bind(*given, **named).arguments
        weights = attention_map(spec, inputs)
        values = inputs[spec.linear_in or ""]
        whole = reference(**inputs)
        if values.ndim == 4:
            spread = values.repeat_interleave(weights.shape[1] // values.shape[2], dim=2)
            out = torch.einsum("bhts,bshd->bthd", weights, spread)
        else:
            out = torch.einsum("bets,bse->bte", weights, values)
        return (out, *whole[1:]) if isinstance(whole, tuple) else out

    return core


def layer(arm: str, core: Any) -> torch.nn.Module:
    found = parse(arm)
    torch.manual_seed(0)
    built: torch.nn.Module = found.variant.spec.Layer(DIMS, found.mixer, layer_index=0, core=core)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return built.double()


@pytest.mark.parametrize("arm", ARMS)
def test_the_map_times_the_values_is_the_layers_output(arm: str) -> None:
    spec = parse(arm).variant.spec
    if spec.linear_in is None or spec.reference is None:
        pytest.skip("its output is linear in nothing")
    x = torch.randn(3, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        straight, mapped = (layer(arm, core)(x, {}) for core in (spec.reference, through_map(spec)))
    assert straight.abs().max() > 1e-3
    torch.testing.assert_close(mapped, straight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("arm", ARMS)
def test_no_query_has_weight_on_a_later_key(arm: str) -> None:
    spec = parse(arm).variant.spec
    if spec.linear_in is None or spec.reference is None:
        pytest.skip("its output is linear in nothing")
    x = torch.randn(2, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    inputs: Any = layer(arm, spec.reference).inputs  # type: ignore[union-attr]
    weights = attention_map(spec, inputs(x, {}))
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    assert weights.shape[-2:] == (12, 12) and weights.abs().sum() > 0


def test_the_plain_map_of_lazy_attention_is_the_softmax_before_the_cut() -> None:
    spec = parse("lazy").variant.spec
    x = torch.randn(2, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    inputs: dict[str, Tensor] = layer("lazy", spec.reference).inputs(x, {})  # type: ignore[operator]
    plain, cut = attention_map(spec, inputs, plain=True), attention_map(spec, inputs)
    torch.testing.assert_close(plain.sum(-1), torch.ones_like(plain.sum(-1)), rtol=0, atol=1e-12)
    n = torch.arange(1.0, 13.0, dtype=torch.float64)[:, None]
    expected = (plain + inputs["tau"][:, None, None] / n).clamp_min(0).tril()
    torch.testing.assert_close(cut, expected, rtol=0, atol=1e-12)


def test_looking_changes_nothing_in_the_model() -> None:
    run = tiny.run("lazy")
    model = build_model(run, vocab_size=tiny.SOURCE.vocab_size)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    model.train()
    measures.measure(model, run, tiny.SOURCE, measures.NAMES)
    assert model.training
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.norm._forward_pre_hooks and not model.layers[0]._forward_pre_hooks


def test_a_look_sees_the_residual_stream_at_every_depth() -> None:
    run = tiny.run("softmax", model__num_layers=3)
    model = build_model(run, vocab_size=tiny.SOURCE.vocab_size)
    tokens = torch.arange(8)[None]
    inside = look(model, tokens)
    assert len(inside.residual) == 4 and len(inside.inputs) == 3
    torch.testing.assert_close(inside.residual[0], model.embedding(tokens))
    torch.testing.assert_close(model.unembedding(model.norm(inside.residual[-1])), model(tokens))
