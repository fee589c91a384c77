"""The block around the scan: its start, its switches, its precision, and one token at a time."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.model import initialise
from harness.ops.scan import BLOCK, scan_in_blocks
from harness.spec import Dims, role_of
from variants.mamba import Config, Layer, State, reference

DIMS = Dims(model_dim=32, num_heads=2, num_layers=1, length=64)
SWITCHES = [f.name for f in dataclasses.fields(Config) if role_of(f).kind == "switch"]
CONFIGS = {
    "all on": {},
    **{f"{name} off": {name: False} for name in SWITCHES},
    "all off": dict.fromkeys(SWITCHES, False),
    "conv of one token": {"conv_width": 1},
}


def make(core=scan_in_blocks, *, seed: int = 0, dims: Dims = DIMS, **fields) -> Layer:
    layer = Layer(dims, Config(**fields), layer_index=0, core=core)
    initialise(layer, seed=seed, std=None)
    return layer


def tokens(length: int, *, rows: int = 2) -> Tensor:
    return torch.randn(rows, length, DIMS.model_dim, generator=torch.Generator().manual_seed(3))


def test_there_is_a_switch_for_each_part_of_the_block() -> None:
    assert SWITCHES == ["conv", "gate", "skip", "selective_delta", "selective_b", "selective_c"]


@pytest.mark.parametrize("fields", CONFIGS.values(), ids=CONFIGS)
def test_token_by_token_is_the_parallel_pass_beyond_a_block(fields: dict) -> None:
    layer, x = make(**fields), tokens(2 * BLOCK + 3)
    state, steps = None, []
    with torch.no_grad():
        for token in range(x.shape[1]):
            y, state = layer.step(x[:, token : token + 1], state, {})
            steps.append(y)
        whole = layer(x, {})
    assert (torch.cat(steps, 1) - whole).abs().max() <= 1e-5 * whole.abs().max()


@pytest.mark.parametrize("fields", CONFIGS.values(), ids=CONFIGS)
def test_no_token_sees_a_later_one(fields: dict) -> None:
    layer, x, at = make(**fields), tokens(3 * BLOCK).requires_grad_(), BLOCK + 1
    reach = torch.autograd.grad(layer(x, {})[:, at].sum(), x)[0].abs().sum((0, 2))
    assert reach[at + 1 :].eq(0).all() and reach[: at + 1].gt(0).all()


def test_state_is_one_scan_and_the_tokens_the_convolution_still_needs() -> None:
    layer = make()
    state: State | None = None
    for token in tokens(6).unbind(1):
        _, state = layer.step(token[:, None], state, {})
    assert state is not None
    assert state.scan.shape == (2, 64, 16) and state.inputs.shape == (2, 3, 64)
    assert make(conv=False).step(tokens(1), None, {})[1].inputs.numel() == 0


def test_block_is_the_formula_written_out() -> None:
    layer, x = make(reference), tokens(9)
    inner, gate = (x @ layer.in_proj.weight.T).chunk(2, -1)
    u = torch.zeros_like(inner)
    for token in range(9):
        for back in range(min(4, token + 1)):
            u[:, token] += layer.conv.weight[:, 0, 3 - back] * inner[:, token - back]
    u = F.silu(u + layer.conv.bias)
    r, B, C = (u @ layer.x_proj.weight.T).split([2, 16, 16], -1)
    delta = torch.log1p(torch.exp(r @ layer.dt_proj.weight.T + layer.dt_bias))
    y = reference(u, delta, -layer.A_log.exp(), B, C, layer.D)
    want = (y * gate * torch.sigmoid(gate)) @ layer.out_proj.weight.T
    assert (layer(x, {}) - want).abs().max() <= 1e-5 * want.abs().max()


def test_start_is_the_published_one() -> None:
    wide = dataclasses.replace(DIMS, model_dim=256)
    layer = make(dims=wide)
    step = F.softplus(layer.dt_bias)
    assert 1e-3 * 0.999 <= step.min() < 2e-3 and 0.05 < step.max() <= 0.1 * 1.001
    assert abs(step.log().mean() - math.log(1e-2)) < 0.25  # log-uniform, not uniform
    assert torch.allclose(layer.A_log.exp(), torch.arange(1.0, 17.0).expand(512, 16))
    assert layer.D.eq(1).all()
    bound = 16**-0.5
    assert 0.98 * bound < layer.dt_proj.weight.abs().max() <= bound
    assert 0.95 * 0.5 < layer.conv.weight.abs().max() <= 0.5  # 1 / sqrt(4 inputs of a channel)


def test_steps_under_the_floor_start_at_the_floor() -> None:
    step = F.softplus(make(dt_min=1e-7, dt_max=1e-6).dt_bias)
    assert torch.allclose(step, torch.full_like(step, 1e-4), rtol=1e-2)


def test_start_depends_on_the_seed_and_not_on_the_other_parts() -> None:
    whole, other = make(), make(seed=1)
    bare = make(conv=False, selective_b=False, selective_c=False, skip=False)
    for name in ("dt_bias", "dt_proj.weight", "out_proj.weight"):
        assert torch.equal(whole.get_parameter(name), bare.get_parameter(name))
        assert not torch.equal(whole.get_parameter(name), other.get_parameter(name))


def test_parameters_of_another_kind_are_outside_weight_decay() -> None:
    layer = make()
    found = dict(layer.named_parameters())
    assert set(found) - set(layer.undecayed) == {"in_proj.weight", "x_proj.weight", "out_proj.weight"}
    constant = dict(make(selective_b=False, selective_c=False).named_parameters())
    assert set(layer.undecayed) <= set(found) | set(constant)


@pytest.mark.parametrize(
    ("field", "gone", "made"),
    [
        ("conv", {"conv.weight", "conv.bias"}, set()),
        ("gate", set(), set()),
        ("skip", {"D"}, set()),
        ("selective_delta", {"dt_proj.weight"}, set()),
        ("selective_b", set(), {"B"}),
        ("selective_c", set(), {"C"}),
    ],
)
def test_switch_removes_its_part_and_no_other(field: str, gone: set[str], made: set[str]) -> None:
    whole, cut = dict(make().named_parameters()), dict(make(**{field: False}).named_parameters())
    assert set(whole) - set(cut) == gone and set(cut) - set(whole) == made
    resized = {name for name in set(whole) & set(cut) if whole[name].shape != cut[name].shape}
    assert resized == {"gate": {"in_proj.weight"}, "conv": set(), "skip": set()}.get(field, {"x_proj.weight"})


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("selective_delta", "delta"),
        ("selective_b", "B"),
        ("selective_c", "C"),
    ],
)
def test_what_is_not_selective_is_the_same_at_every_token(field: str, name: str) -> None:
    fixed = make(**{field: False}).inputs(tokens(7), {})
    for argument in ("delta", "B", "C"):
        value = fixed[argument]
        constant = bool(value.eq(value[:1, :1]).all())
        assert value.shape[:2] == (2, 7) and constant == (argument == name)


def test_under_autocast_the_scan_stays_in_float32() -> None:
    seen: list[tuple[torch.dtype, bool]] = []

    def core(u, delta, A, B, C, D):
        seen.append((delta.dtype, torch.is_autocast_enabled("cpu")))
        return scan_in_blocks(u, delta, A, B, C, D)

    layer, x = make(core), tokens(40)
    plain = layer(x, {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = layer(x, {})
        state = layer.step(x[:, :1], None, {})[1]
    assert seen == [(torch.float32, False)] * 2 and state.scan.dtype == torch.float32
    assert (narrow - plain).abs().max() <= 2e-2 * plain.abs().max()


def test_float64_stays_float64_all_the_way() -> None:
    layer, x = make().double(), tokens(5).double()
    assert layer(x, {}).dtype == torch.float64
    assert layer.step(x[:, :1], None, {})[1].scan.dtype == torch.float64


def test_steps_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dt_min=0\.2 is above dt_max=0\.1"):
        Config(dt_min=0.2)


def test_every_module_of_the_block_is_a_projection_or_the_convolution() -> None:
    kinds = {name: type(module) for name, module in make().named_children()}
    assert kinds.pop("conv") is nn.Conv1d and set(kinds.values()) == {nn.Linear}
