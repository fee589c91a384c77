"""The decoder's own parts."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from harness.model import EPSILON, RMSNorm


@pytest.mark.parametrize("shape", [(1, 1, 8), (2, 5, 8), (3, 7, 64)])
def test_norm_equals_torchs_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = RMSNorm(shape[-1]).double()
    with torch.no_grad():
        norm.weight.normal_()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    wanted = F.rms_norm(x, shape[-1:], norm.weight, EPSILON)
    g = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(norm(x), wanted, rtol=1e-12, atol=1e-12)
    inputs = (x, norm.weight)
    got = torch.autograd.grad(norm(x), inputs, g)
    for one, two in zip(got, torch.autograd.grad(wanted, inputs, g), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_norm_of_a_zero_row_and_of_a_strided_gradient_is_exact() -> None:
    norm = RMSNorm(4).double()
    x = torch.tensor([[[0.0, 0.0, 0.0, 0.0], [1.0, -2.0, 3.0, -4.0]]], dtype=torch.float64, requires_grad=True)
    g = torch.arange(8, dtype=torch.float64).view(1, 4, 2).transpose(1, 2)
    (got,) = torch.autograd.grad(norm(x), x, g)
    (wanted,) = torch.autograd.grad(F.rms_norm(x, (4,), norm.weight, EPSILON), x, g)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-9)
