"""The core of stick-breaking: its product form, the rest of the stick, and blocks of scores that change no number."""

from __future__ import annotations

import inspect
import math
import sys
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.contract.subject import generator
from harness.ops import blocks, stick_blocks
from variants.stick_breaking import blocked, fla, reference

HEADS, DEPTH = 4, 6
CORES = pytest.mark.parametrize("core", [reference, blocked])
CURRENT = pytest.mark.parametrize("attend_current", [False, True])


def randn(*shape: int, key: str = "") -> Tensor:
    return torch.randn(shape, generator=generator(shape, key), dtype=torch.float64)


def inputs(queries: int, keys: int, groups: int = HEADS, width: int = DEPTH) -> list[Tensor]:
    """q, k, v in float64."""
    return [
        randn(2, queries, HEADS, DEPTH, key="q"),
        randn(2, keys, groups, DEPTH, key="k"),
        randn(2, keys, groups, width, key="v"),
    ]


def gradients(core, leaves: list[Tensor], g: Tensor, c: Tensor, **options: bool) -> list[Tensor]:
    """Output, rest of the stick, and the gradient of each leaf, for gradients g and c of the two."""
    leaves = [x.detach().requires_grad_() for x in leaves]
    out, rest = core(*leaves, **options)
    return [out.detach(), rest.detach(), *torch.autograd.grad([out, rest], leaves, [g, c])]


def attention_map(core, q: Tensor, k: Tensor, **options: bool) -> tuple[Tensor, Tensor]:
    """Weights [B, H, T, S] and the rest of the stick [B, H, T]."""
    keys = k.shape[1]
    eye = torch.eye(keys, dtype=k.dtype)[None, :, None, :].expand(k.shape[0], keys, k.shape[2], keys)
    weights, rest = core(q, k, eye, **options)
    return weights.transpose(1, 2), rest.transpose(1, 2)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four positions, two key heads at a time: short sequences cross many edges."""
    monkeypatch.setattr(blocks, "block_size", lambda keys, **_: min(keys, 4))
    monkeypatch.setattr(blocks, "SCORES", 32)


@CORES
@CURRENT
@pytest.mark.usefixtures("small_blocks")
def test_cores_are_the_product_form_written_with_loops(core, attend_current: bool) -> None:
    q, k, v = inputs(5, 9, 2)
    out, rest = core(q, k, v, attend_current=attend_current)
    for head in range(HEADS):
        for t in range(5):
            stick, want = 1.0, torch.zeros(DEPTH, dtype=torch.float64)
            for j in reversed(range(9 - 5 + t + attend_current)):
                share = 1 / (1 + math.exp(-float(q[1, t, head] @ k[1, j, head // 2]) / math.sqrt(DEPTH)))
                want += stick * share * v[1, j, head // 2]
                stick *= 1 - share
            torch.testing.assert_close(out[1, t, head], want, rtol=0, atol=1e-14)
            assert float(rest[1, t, head]) == pytest.approx(stick, abs=1e-14)


@CORES
@CURRENT
@pytest.mark.usefixtures("small_blocks")
def test_weights_and_the_rest_make_one_stick_and_no_key_to_come_gets_a_share(core, attend_current: bool) -> None:
    q, k, _ = inputs(7, 11, 2)
    weights, rest = attention_map(core, 3 * q, k, attend_current=attend_current)
    torch.testing.assert_close(weights.sum(-1) + rest, torch.ones_like(rest), rtol=0, atol=1e-13)
    assert not bool(weights.triu(11 - 7 + attend_current).any())
    assert bool((weights >= 0).all() and (rest >= 0).all())


@CORES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_row_is_zero_and_keeps_the_whole_stick(core, dtype: torch.dtype) -> None:
    leaves = [x.to(dtype).requires_grad_() for x in inputs(3, 3)]
    out, rest = core(*leaves)
    assert not bool(out[:, 0].any())
    assert torch.equal(rest[:, 0], torch.ones(2, HEADS, dtype=dtype))
    found = torch.autograd.grad((out.sum() + rest.sum()), leaves)
    assert all(bool(torch.isfinite(x).all()) for x in found)
    assert not bool(found[0][:, 0].any())


@CORES
def test_the_first_row_with_itself_takes_its_own_share(core) -> None:
    q, k, v = inputs(3, 3)
    out, rest = core(q, k, v, attend_current=True)
    share = torch.sigmoid((q[:, 0] * k[:, 0]).sum(-1) / math.sqrt(DEPTH))
    torch.testing.assert_close(out[:, 0], share[..., None] * v[:, 0])
    torch.testing.assert_close(rest[:, 0], 1 - share)


@CORES
def test_equal_scores_of_zero_halve_the_stick_at_each_key(core) -> None:
    q, k, _ = inputs(70, 70)
    weights, rest = attention_map(core, 0 * q, k)
    distance = torch.arange(70)[:, None] - torch.arange(70)
    torch.testing.assert_close(weights[0, 0], torch.where(distance > 0, 0.5 ** distance.double(), 0.0))
    torch.testing.assert_close(rest[0, 0], 0.5 ** torch.arange(70, dtype=torch.float64))


@CORES
@CURRENT
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("small_blocks")
def test_with_scores_of_400_the_nearest_open_key_takes_all_and_gradients_stay_finite(
    core, attend_current: bool, dtype: torch.dtype
) -> None:
    q = torch.zeros(1, 9, 1, 4, dtype=dtype)
    k, v = torch.zeros_like(q), randn(1, 9, 1, 4, key="v").to(dtype)
    q[..., 0] = 2.0
    opened = torch.tensor([False, True, False, False, False, False, True, True, False])
    k[0, :, 0, 0] = torch.where(opened, 400.0, -400.0)
    out, rest, *found = gradients(
        core, [q, k, v], torch.ones_like(q), torch.ones_like(q[..., 0]), attend_current=attend_current
    )
    for t in range(9):
        before = [j for j in range(t + attend_current) if opened[j]]
        want = v[0, before[-1], 0] if before else torch.zeros(4, dtype=dtype)
        torch.testing.assert_close(out[0, t, 0], want)
        assert float(rest[0, t, 0]) == pytest.approx(0.0 if before else 1.0, abs=1e-15)
    assert all(bool(torch.isfinite(x).all()) for x in found)


@settings(max_examples=60)
@given(
    st.integers(2, 13),
    st.integers(0, 11),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 7),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([1.0, 30.0]),
)
def test_blocks_give_the_values_and_gradients_of_the_reference(
    queries: int, prefix: int, groups: int, width: int, block: int, attend_current: bool, sharp: float
) -> None:
    q, *rest = inputs(queries, queries + prefix, groups, width)
    cotangents = randn(2, queries, HEADS, width, key="g"), randn(2, queries, HEADS, key="c")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_size", lambda keys, **_: min(keys, block))
        patch.setattr(blocks, "SCORES", 3 * block * block)
        found = gradients(blocked, [sharp * q, *rest], *cotangents, attend_current=attend_current)
    wanted = gradients(reference, [sharp * q, *rest], *cotangents, attend_current=attend_current)
    for mine, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, want, rtol=0, atol=1e-13 * max(1.0, float(want.abs().max())))


@pytest.mark.parametrize(
    ("queries", "keys", "shift"),
    [
        (65, 65, 0.0),
        (512, 512, -4.0),
        (520, 520, 0.0),
        (7, 700, -6.0),
        (150, 2100, -8.0),
    ],
)
def test_each_size_of_a_block_gives_the_values_and_gradients_of_the_reference(
    queries: int, keys: int, shift: float
) -> None:
    q, k, v = (x[:1].float() for x in inputs(queries, keys, 2))
    # A channel that shifts every score: under a negative one the stick lasts over all keys.
    q, k = (torch.cat([x, torch.full_like(x[..., :1], c)], -1) for x, c in ((q, 1.0), (k, shift * DEPTH**0.5)))
    cotangents = randn(1, queries, HEADS, DEPTH, key="g").float(), randn(1, queries, HEADS, key="c").float()
    for mine, want in zip(*(gradients(core, [q, k, v], *cotangents) for core in (blocked, reference)), strict=True):
        torch.testing.assert_close(mine, want, rtol=0, atol=1e-5 * float(want.abs().max()))


def test_a_stick_used_up_ends_the_walk_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "block_size", lambda keys, **_: 8)
    visits = []
    plain = stick_blocks._Tile.break_off

    def counted(self, *args):
        visits.append(0)
        return plain(self, *args)

    monkeypatch.setattr(stick_blocks._Tile, "break_off", counted)
    q, k, v = (x.float() for x in inputs(96, 96))
    ones = torch.cat([torch.ones_like(q[..., :1]), q], -1), torch.cat([torch.full_like(k[..., :1], 40.0), k], -1)
    cotangents = randn(2, 96, HEADS, DEPTH, key="g").float(), randn(2, 96, HEADS, key="c").float()
    found = gradients(blocked, [*ones, v], *cotangents)
    # 12 blocks forward and backward: each in its own tile and the two before it, not in all before.
    assert len(visits) <= 2 * 3 * 12 < 2 * (12 * 13 // 2)
    for mine, want in zip(found, gradients(reference, [*ones, v], *cotangents), strict=True):
        torch.testing.assert_close(mine, want, rtol=0, atol=1e-5 * float(want.abs().max()))


@CORES
def test_what_little_is_left_of_a_stick_is_right_relative_to_itself(core) -> None:
    q, k, v = (x.float() for x in inputs(130, 130))
    k = k + 0.3 * q.sign()
    _, rest = core(q, k, v)
    want = reference(*(x.double() for x in (q, k, v)))[1].float()
    assert float(want.min()) < 1e-30
    torch.testing.assert_close(rest, want, rtol=1e-4, atol=1e-44)


@CURRENT
@pytest.mark.usefixtures("small_blocks")
def test_gradients_in_blocks_are_the_slope(attend_current: bool) -> None:
    leaves = [x[:1, :, :2].clone().requires_grad_() for x in inputs(5, 6)]
    assert torch.autograd.gradcheck(lambda *x: blocked(*x, attend_current=attend_current), leaves)


@CORES
@CURRENT
def test_the_last_queries_alone_give_the_last_rows(core, attend_current: bool) -> None:
    q, k, v = inputs(70, 70, 2)
    whole = core(q, k, v, attend_current=attend_current)
    for queries in (1, 2, 69):
        found = core(q[:, -queries:], k, v, attend_current=attend_current)
        for part, all_rows in zip(found, whole, strict=True):
            torch.testing.assert_close(part, all_rows[:, -queries:])


def test_the_order_of_the_keys_is_position_enough() -> None:
    q, k, v = inputs(1, 6)
    swapped = [x[:, [0, 3, 2, 1, 4, 5]] for x in (k, v)]
    assert float((reference(q, k, v)[0] - reference(q, *swapped)[0]).abs().max()) > 1e-2


def published(q, k, v, scale=None, attend_current=False, cu_seqlens=None):
    """The signature of fla-core 0.6 around our reference, which returns the rest of the stick in the dtype of q."""
    if q.shape[:2] != k.shape[:2]:
        raise ValueError("queries and keys of one length")
    out, rest = reference(q, k, v, attend_current=attend_current)
    return out, rest.to(q.dtype)


def test_the_call_of_fla_fits_its_signature_and_decoding_goes_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("fla.ops.stickbreaking_attn")
    module.parallel_stickbreaking_attn = published
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "fla.ops.stickbreaking_attn", module)
    q, k, v = (x.bfloat16() for x in inputs(4, 9, 2))
    for queries, keys in ((q, k[:, 5:]), (q, k)):
        values = v[:, -keys.shape[1] :]
        out, rest = fla(queries, keys, values, attend_current=True)
        want = reference(queries, keys, values, attend_current=True)
        assert (out.dtype, rest.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(out, want[0])
        torch.testing.assert_close(rest, want[1], rtol=1e-2, atol=1e-2)
    assert list(inspect.signature(fla).parameters) == list(inspect.signature(reference).parameters)
