"""Calls of packages that need a GPU, held against what these packages publish; no GPU is needed for that.

Each stand-in has the signature of the package's source, argument by argument, refuses what that source refuses, and
computes the answer slowly in the package's own layout.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.contract.subject import generator
from harness.ops import kernels
from harness.ops.scan import mamba_ssm
from harness.registry import shipped
from harness.spec import Dims
from variants import mamba, softmax, stick_breaking


def randn(*shape: int, key: str) -> Tensor:
    return torch.randn(shape, generator=generator(shape, key))


def attention(q: Tensor, k: Tensor, v: Tensor, scale: Any, left: int | None) -> Tensor:
    """[B, T, H, D] with the causal mask aligned to the last key."""
    assert scale is None
    assert q.dtype == k.dtype == v.dtype
    window = None if left in (None, -1) else left + 1
    return softmax.reference(q, k, v, window=window)


def flash(q: Tensor, k: Tensor, v: Tensor, scale: Any, causal: bool, sides: tuple[Any, Any]) -> Tensor:
    assert causal and q.dtype == torch.bfloat16 and q.shape[-1] <= 256 and q.shape[2] % k.shape[2] == 0
    assert sides[1] in (sides[0], 0)
    return attention(q, k, v, scale, sides[0])


# flash-attn 2.8.3: flash_attn/flash_attn_interface.py
def flash_attn_2(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                 alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    assert not dropout_p and alibi_slopes is None
    return flash(q, k, v, softmax_scale, causal, window_size)


# flash-attn 2.8.3: hopper/flash_attn_interface.py
def flash_attn_3(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                 window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
                 deterministic=False, sm_margin=0):  # fmt: skip
    assert qv is None and q.shape[-1] % 8 == 0
    return flash(q, k, v, softmax_scale, causal, window_size)


# flash-attn-4 4.0.0b36: flash_attn/cute/interface.py
def flash_attn_4(q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, window_size=(None, None),
                 learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, score_mod=None,
                 score_mod_bwd=None, mask_mod=None, aux_tensors=None, aux_scalars=None, block_sparse_tensors=None,
                 block_sparse_tensors_bwd=None, return_lse=False, gather_bwd_recompute_p=False,
                 gather_bwd_token_chunk=None):  # fmt: skip
    assert qv is None and window_size[0] != -1 and 8 <= q.shape[-1] <= 128 and q.shape[-1] % 8 == 0
    return flash(q, k, v, softmax_scale, causal, window_size), None


class LowerTriangularFromBottomRightMask:
    pass


# xformers 0.0.35: xformers/ops/fmha/__init__.py
def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None, *, op=None, output_dtype=None):
    assert isinstance(attn_bias, LowerTriangularFromBottomRightMask) and not p
    assert query.shape[2] == key.shape[2], "grouped heads come as a fifth axis"
    assert query.shape[-1] % 8 == 0
    return attention(query, key, value, scale, None)


# fla-core 0.6.0: fla/ops/stickbreaking_attn/parallel.py
def parallel_stickbreaking_attn(q, k, v, scale=None, attend_current=False, cu_seqlens=None):
    assert q.shape[:2] == k.shape[:2] and scale is None and max(q.shape[-1], v.shape[-1]) <= 256
    return stick_breaking.reference(q, k, v, attend_current=attend_current)


# mamba-ssm 2.3.2: mamba_ssm/ops/selective_scan_interface.py
def selective_scan_fn(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
):
    batch, channels, length = u.shape
    states = A.shape[1]
    assert delta.shape == u.shape and A.shape == (channels, states) and B.shape == C.shape == (batch, states, length)
    assert A.dtype == torch.float32 and (D is None or (D.dtype, D.shape) == (torch.float32, (channels,)))
    assert states <= 256 and not delta_softplus and delta_bias is None and z is None
    time_first = [x.transpose(1, 2) for x in (u, delta, B, C)]
    return mamba.reference(*time_first[:2], A, *time_first[2:], D).transpose(1, 2)


PACKAGES: dict[str, dict[str, Any]] = {
    "flash_attn": {"flash_attn_func": flash_attn_2},
    "flash_attn_interface": {"flash_attn_func": flash_attn_3},
    "flash_attn.cute": {"flash_attn_func": flash_attn_4},
    "xformers": {},
    "xformers.ops": {"memory_efficient_attention": memory_efficient_attention},
    "xformers.ops.fmha": {},
    "xformers.ops.fmha.attn_bias": {"LowerTriangularFromBottomRightMask": LowerTriangularFromBottomRightMask},
    "fla": {},
    "fla.ops": {},
    "fla.ops.stickbreaking_attn": {"parallel_stickbreaking_attn": parallel_stickbreaking_attn},
    "mamba_ssm": {},
    "mamba_ssm.ops": {},
    "mamba_ssm.ops.selective_scan_interface": {"selective_scan_fn": selective_scan_fn},
}


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in PACKAGES.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def inputs(queries: int, keys: int, *, heads: int = 4, groups: int = 4, width: int = 16) -> list[Tensor]:
    shapes = [(2, queries, heads, width), (2, keys, groups, width), (2, keys, groups, width)]
    return [randn(*shape, key=f"{place}").bfloat16() for place, shape in enumerate(shapes)]


FLASH = (kernels.flash_attn, kernels.flash_attn_3, kernels.flash_attn_4)


@pytest.mark.parametrize(
    ("kernel", "window"), [(kernels.xformers, None), *((one, window) for one in FLASH for window in (None, 1, 3))]
)
@pytest.mark.parametrize(("queries", "groups"), [(9, 4), (9, 2), (3, 2), (1, 4)])
def test_softmax_kernels_are_called_as_published(
    kernel: Callable[..., Tensor], window: int | None, queries: int, groups: int
) -> None:
    q, k, v = inputs(queries, 9, groups=groups)
    torch.testing.assert_close(kernel(q, k, v, window=window), softmax.reference(q, k, v, window=window))


@pytest.mark.parametrize("attend_current", [False, True])
@pytest.mark.parametrize(("queries", "groups"), [(9, 4), (9, 2), (1, 4)])
def test_the_stick_breaking_kernel_is_called_as_published(attend_current: bool, queries: int, groups: int) -> None:
    q, k, v = inputs(queries, 9, groups=groups)
    found = stick_breaking.fla(q, k, v, attend_current=attend_current)
    for one, two in zip(found, stick_breaking.reference(q, k, v, attend_current=attend_current), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_scan_kernel_is_called_as_published(dtype: torch.dtype) -> None:
    u, delta = (randn(2, 7, 6, key=name).to(dtype) for name in ("u", "delta"))
    B, C = (randn(2, 7, 3, key=name).to(dtype) for name in ("B", "C"))
    A, D = -randn(6, 3, key="A").exp(), randn(6, key="D")
    step = delta.float().abs()
    torch.testing.assert_close(mamba_ssm(u, step, A, B, C, D), mamba.reference(u, step, A, B, C, D))


@pytest.mark.parametrize(
    ("variant", "backend", "width", "config", "words"),
    [
        ("softmax", "flash_attn", 264, {}, "at most 256"), ("softmax", "flash_attn_3", 264, {}, "at most 256"),
        ("softmax", "flash_attn_3", 12, {}, "multiple of 8"), ("softmax", "flash_attn_4", 136, {}, "at most 128"),
        ("softmax", "flash_attn_4", 12, {}, "multiple of 8"), ("softmax", "xformers", 12, {}, "multiple of 8"),
        ("softmax", "xformers", 16, {"window": 4}, "window"), ("softmax", "flash_attn", 16, {"positions": "alibi"}, "ALiBi"),
        ("stick_breaking", "fla", 264, {}, "at most 256"), ("mamba", "mamba_ssm", 16, {"state": 257}, "at most 256"),
    ],
)  # fmt: skip
def test_what_a_kernel_cannot_do_is_refused_before_it_is_called(
    variant: str, backend: str, width: int, config: dict[str, Any], words: str
) -> None:
    spec = shipped()[variant].spec
    (found,) = (one for one in spec.backends if one.name == backend)
    dims = Dims(model_dim=4 * width, num_heads=4, num_layers=1, length=16)
    reason = found.refuses("cuda", "bfloat16", dims=dims, config=spec.Config(**config))
    assert reason is not None and words in reason


@pytest.mark.parametrize("backend", ["flash_attn", "flash_attn_3", "flash_attn_4", "fla"])
def test_kernels_for_half_precision_refuse_float32(backend: str) -> None:
    found = [one for variant in shipped().values() for one in variant.spec.backends if one.name == backend]
    assert [one.refuses("cuda", "float32") for one in found] == ["takes bfloat16, not float32"]


def test_the_scale_is_the_packages_own_default() -> None:
    q, k, v = inputs(5, 5, width=64)
    expected = torch.softmax((q[0, -1, 0].float() @ k[0, :, 0].float().T) / math.sqrt(64), -1) @ v[0, :, 0].float()
    torch.testing.assert_close(kernels.flash_attn(q, k, v)[0, -1, 0].float(), expected, atol=2e-2, rtol=0)
