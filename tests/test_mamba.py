"""What the scan computes, in both forms, and the kernel of another package behind the same signature."""

from __future__ import annotations

import math
import sys
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.ops.scan import BLOCK, mamba_ssm, mamba_ssm_probe, scan_in_blocks
from harness.spec import Dims
from variants.mamba import SPEC, Config, reference


def arguments(
    rows: int = 2,
    length: int = 5,
    channels: int = 3,
    states: int = 2,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    stream = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=stream, dtype=dtype)

    return {
        "u": normal(rows, length, channels),
        "delta": torch.nn.functional.softplus(normal(rows, length, channels)),
        "A": -normal(channels, states).exp(),
        "B": normal(rows, length, states),
        "C": normal(rows, length, states),
        "D": normal(channels),
    }


def cotangent(rows: int, length: int, channels: int) -> Tensor:
    """Output gradient with the channels outermost in memory."""
    stream = torch.Generator().manual_seed(1)
    return torch.randn(rows, channels, length, dtype=torch.float64, generator=stream).mT


def gradients(run, values: dict[str, Tensor], dy: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    y = run(**leaves)
    return y.detach(), dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy), strict=True))


def assert_same(run, values: dict[str, Tensor], dy: Tensor, *, share: float) -> None:
    want, want_gradients = gradients(reference, values, dy)
    got, got_gradients = gradients(run, values, dy)
    pairs = {"y": (got, want)} | {name: (got_gradients[name], want_gradients[name]) for name in values}
    for name, (left, right) in pairs.items():
        assert (left - right).abs().max() <= share * right.abs().max(), name


def test_reference_is_the_recurrence_written_out_in_numbers() -> None:
    a = arguments()
    want = torch.zeros(2, 5, 3, dtype=torch.float64)
    for row in range(2):
        for channel in range(3):
            state = [0.0, 0.0]
            for token in range(5):
                u, step = float(a["u"][row, token, channel]), float(a["delta"][row, token, channel])
                y = float(a["D"][channel]) * u
                for n in range(2):
                    decay = math.exp(step * float(a["A"][channel, n]))
                    state[n] = decay * state[n] + step * float(a["B"][row, token, n]) * u
                    y += float(a["C"][row, token, n]) * state[n]
                want[row, token, channel] = y
    assert torch.allclose(reference(**a), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("run", [reference, scan_in_blocks])
def test_first_token_writes_delta_b_u_not_the_exact_integral(run) -> None:
    a = arguments(length=1)
    euler = (a["C"] * a["B"]).sum(-1, keepdim=True) * a["delta"] * a["u"] + a["D"] * a["u"]
    held = torch.expm1(a["delta"][..., None] * a["A"]) / a["A"] * a["B"][:, :, None, :]  # zero-order hold
    exact = (held * a["C"][:, :, None, :]).sum(-1) * a["u"] + a["D"] * a["u"]
    assert torch.allclose(run(**a), euler, rtol=1e-13)
    assert (euler - exact).abs().max() > 0.1


@pytest.mark.parametrize("run", [reference, scan_in_blocks])
def test_step_of_zero_keeps_the_state_and_writes_nothing(run) -> None:
    a = arguments(length=2 * BLOCK)
    a["delta"][:, 3:] = 0.0
    a["C"][:, 3:] = a["C"][:, 2:3]
    a["D"].zero_()
    y = run(**a)
    assert torch.allclose(y[:, 3:], y[:, 2:3].expand_as(y[:, 3:]), rtol=1e-13)


@pytest.mark.parametrize("length", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_are_the_reference_in_values_and_all_six_gradients(length: int) -> None:
    a = arguments(3, length, 5, 4)
    assert_same(scan_in_blocks, a, cotangent(3, length, 5), share=1e-13)


@settings(max_examples=40, derandomize=True)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 3 * BLOCK),
    channels=st.integers(1, 5),
    states=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_blocks_are_the_reference_for_any_shape(rows: int, length: int, channels: int, states: int, seed: int) -> None:
    a = arguments(rows, length, channels, states, seed=seed)
    one = torch.ones((), dtype=torch.float64)
    assert_same(scan_in_blocks, a, one.expand(rows, length, channels), share=1e-12)


def test_blocks_in_float32_are_the_reference_to_rounding() -> None:
    narrow = {name: value.float() for name, value in arguments(2, 70, 8, 4).items()}
    wide = {name: value.double() for name, value in narrow.items()}
    dy = cotangent(2, 70, 8).float()
    want, want_gradients = gradients(reference, wide, dy.double())
    got, got_gradients = gradients(scan_in_blocks, narrow, dy)
    assert got.dtype == torch.float32
    assert (got - want).abs().max() <= 1e-6 * want.abs().max()
    for name, right in want_gradients.items():
        assert (got_gradients[name] - right).abs().max() <= 1e-6 * right.abs().max(), name


def test_blocks_pass_gradcheck() -> None:
    a = {name: value.requires_grad_() for name, value in arguments(1, BLOCK + 2, 2, 2).items()}
    assert torch.autograd.gradcheck(scan_in_blocks, tuple(a.values()))


@pytest.mark.parametrize("run", [reference, scan_in_blocks])
def test_without_d_only_the_state_is_read(run) -> None:
    a = arguments(length=BLOCK + 1)
    zero = run(**{**a, "D": torch.zeros_like(a["D"])})
    assert torch.equal(run(**{**a, "D": None}), zero)


def test_strong_decay_leaves_finite_and_right_gradients() -> None:
    a = {name: value.float() for name, value in arguments(2, 3 * BLOCK, 4, 3).items()}
    a["A"].fill_(-1.0)
    a["delta"][:, 4:10] = 60.0
    dy = cotangent(2, 3 * BLOCK, 4)
    y, found = gradients(scan_in_blocks, a, dy.float())
    assert all(torch.isfinite(x).all() for x in (y, *found.values()))
    assert_same(scan_in_blocks, {name: value.double() for name, value in a.items()}, dy, share=1e-12)


def test_bfloat16_inputs_are_scanned_in_float32() -> None:
    a = {name: value.bfloat16() for name, value in arguments(2, 40, 4, 3).items()}
    wide = reference(**{name: value.float() for name, value in a.items()})
    assert torch.equal(scan_in_blocks(**a), scan_in_blocks(**{n: v.float() for n, v in a.items()}).bfloat16())
    assert (scan_in_blocks(**a).float() - wide).abs().max() <= 2**-8 * wide.abs().max()


def test_blocks_keep_one_state_a_block_for_the_backward_pass() -> None:
    rows, length, channels, states = 2, 4 * BLOCK, 8, 16
    a = {name: value.requires_grad_() for name, value in arguments(rows, length, channels, states).items()}

    def kept(run) -> int:
        sizes: dict[int, int] = {}

        def pack(x: Tensor) -> Tensor:
            sizes[x.untyped_storage().data_ptr()] = x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            run(**a)
        return sum(sizes.values())

    given_to_it = sum(value.numel() for value in a.values())
    assert kept(scan_in_blocks) <= given_to_it + length // BLOCK * rows * channels * states
    assert kept(reference) > length * rows * channels * states


def test_mamba_ssm_is_called_with_time_last_and_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def selective_scan_fn(
        u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
    ):
        assert (z, delta_bias, delta_softplus, return_last_state) == (None, None, False, False)
        assert u.shape == delta.shape == (2, 3, 9) and B.shape == C.shape == (2, 2, 9) and A.shape == (3, 2)
        assert {x.dtype for x in (u, delta, A, B, C, D)} == {torch.float32}
        return reference(u.mT, delta.mT, A, B.mT, C.mT, D).mT

    interface = ModuleType("interface")
    interface.selective_scan_fn = selective_scan_fn
    monkeypatch.setitem(sys.modules, "mamba_ssm", ModuleType("mamba_ssm"))
    monkeypatch.setitem(sys.modules, "mamba_ssm.ops", ModuleType("ops"))
    monkeypatch.setitem(sys.modules, "mamba_ssm.ops.selective_scan_interface", interface)
    a = {
        name: value.bfloat16() if name in ("u", "B", "C") else value.float()
        for name, value in arguments(length=9).items()
    }
    assert torch.equal(mamba_ssm(**a), reference(**a))


def test_mamba_ssm_says_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mamba_ssm.ops.selective_scan_interface", None)
    mamba_ssm_probe.cache_clear()
    kernel = SPEC.backend("mamba_ssm")
    dims = Dims(model_dim=32, num_heads=2, num_layers=1, length=8)
    assert "mamba_ssm" in (mamba_ssm_probe("cpu") or "")
    assert "cuda" in (kernel.refuses("cpu", "float32") or "")
    assert "256" in (kernel.refuses("cuda", "float32", dims=dims, config=Config(state=257)) or "")
    mamba_ssm_probe.cache_clear()
