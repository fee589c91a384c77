"""Mamba against two independent packages: mambapy's block, and the scan of transformers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from harness.ops.scan import scan_in_blocks
from harness.spec import Dims
from variants.mamba import Config, Layer, reference

pytestmark = pytest.mark.peers

DIMS = Dims(model_dim=32, num_heads=2, num_layers=1, length=64)
THEIRS = {"conv.weight": "conv1d.weight", "conv.bias": "conv1d.bias", "dt_bias": "dt_proj.bias"}


def both() -> tuple[Layer, nn.Module]:
    """Our block with the parameters of mambapy's."""
    mamba = pytest.importorskip("mambapy.mamba", reason="mambapy is not installed (extra `peers`)")
    torch.manual_seed(0)
    theirs = mamba.MambaBlock(mamba.MambaConfig(d_model=32, n_layers=1))
    ours = Layer(DIMS, Config(), layer_index=0, core=scan_in_blocks)
    state = theirs.state_dict()
    ours.load_state_dict({name: state[THEIRS.get(name, name)] for name in ours.state_dict()})
    assert len(state) == len(ours.state_dict())
    return ours, theirs


def close(left: Tensor, right: Tensor) -> bool:
    return bool((left - right).abs().max() <= 1e-5 * right.abs().max())


@pytest.mark.parametrize("length", [1, 7, 37])
def test_block_is_that_of_mambapy_in_values_and_gradients(length: int) -> None:
    ours, theirs = both()
    x = torch.randn(2, length, 32)
    dy = torch.randn(2, length, 32)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, want = ours(mine, {}), theirs(other)
    assert close(y, want)
    y.backward(dy)
    want.backward(dy)
    assert close(mine.grad, other.grad)
    for name, parameter in ours.named_parameters():
        assert close(parameter.grad, theirs.get_parameter(THEIRS.get(name, name)).grad), name


def test_decoding_is_that_of_mambapy() -> None:
    ours, theirs = both()
    state, cache = None, (None, torch.zeros(2, 64, 3))
    for token in torch.randn(12, 2, 32):
        y, state = ours.step(token[:, None], state, {})
        want, cache = theirs.step(token, cache)
        assert close(y[:, 0], want)


@pytest.mark.parametrize("run", [reference, scan_in_blocks])
def test_scan_is_that_of_transformers(run) -> None:
    module = pytest.importorskip(
        "transformers.models.mamba.modeling_mamba", reason="transformers is not installed (extra `peers`)"
    )
    # Called unwrapped: the wrapper hands the work to whatever kernel package it can import.
    theirs = module.mamba_selective_scan.__wrapped__
    u, dy = torch.randn(2, 2, 21, 6)
    delta, (B, C) = torch.rand(2, 21, 6), torch.randn(2, 2, 21, 4)
    leaves = [x.requires_grad_() for x in (u, delta, -torch.rand(6, 4), B, C, torch.randn(6))]
    y = run(*leaves)
    u, delta, A, B, C, D = leaves
    found = theirs(u.mT, delta.mT, A, B.mT, C.mT, D)
    want = (found[0] if isinstance(found, tuple) else found).mT
    assert close(y, want)
    pairs = zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(want, leaves, dy), strict=True)
    assert all(close(mine, other) for mine, other in pairs)
