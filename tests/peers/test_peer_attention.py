"""Attention against independent packages: fla-core's plain functions, and x-transformers.

fla-core needs triton and transformers to be imported, though its plain functions do not: they are loaded by their file.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from harness import ops
from harness.contract.subject import generator
from variants import lazy, sigmoid, softmax, stick_breaking

pytestmark = pytest.mark.peers

HEADS, DEPTH = 4, 6


def fla_file(*parts: str) -> Path:
    """A file of fla-core, found without importing the package."""
    found = importlib.util.find_spec("fla")
    if found is None or not found.submodule_search_locations:
        pytest.skip("fla-core is not installed (extra `peers`)")
    return Path(next(iter(found.submodule_search_locations))).joinpath(*parts)


def fla(operation: str) -> ModuleType:
    """The plain functions of one of fla-core's operations."""
    spec = importlib.util.spec_from_file_location(f"fla_naive_{operation}", fla_file("ops", operation, "naive.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def x_transformers(name: str):
    """x-transformers, whose plain path calls no kernel."""
    return pytest.importorskip(name, reason="x-transformers is not installed (extra `peers`)")


def leaves(length: int, groups: int = HEADS, width: int = DEPTH) -> list[Tensor]:
    """q, k, v in float64."""
    shapes = (length, HEADS, DEPTH), (length, groups, DEPTH), (length, groups, width)
    return [
        torch.randn(2, *shape, generator=generator(shape, key), dtype=torch.float64).requires_grad_()
        for shape, key in zip(shapes, "qkv", strict=True)
    ]


def same(mine: list[Tensor], theirs: list[Tensor], inputs: list[Tensor]) -> None:
    """Outputs agree, and the gradients of every input for random gradients of the outputs."""
    cotangents = [torch.randn(y.shape, generator=generator(tuple(y.shape)), dtype=y.dtype) for y in mine]
    found = [[*outputs, *torch.autograd.grad(outputs, inputs, cotangents)] for outputs in (mine, theirs)]
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def heads_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


@pytest.mark.parametrize("core", [stick_breaking.reference, stick_breaking.blocked])
@pytest.mark.parametrize("attend_current", [False, True])
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_stick_breaking_is_that_of_fla(core, attend_current: bool, groups: int) -> None:
    naive = fla("stickbreaking_attn").naive_stickbreaking_attn
    inputs = leaves(70, groups, 5)
    mine, theirs = (function(*inputs, attend_current=attend_current) for function in (core, naive))
    same(list(mine), list(theirs), inputs)


def test_the_call_of_fla_names_arguments_its_kernel_has_and_keeps_its_limits() -> None:
    tree = ast.parse(fla_file("ops", "stickbreaking_attn", "parallel.py").read_text())
    (kernel,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "parallel_stickbreaking_attn"
    )
    assert [argument.arg for argument in kernel.args.args][:3] == ["q", "k", "v"]
    assert "attend_current" in [argument.arg for argument in kernel.args.args]
    limits = {
        node.comparators[0].value
        for node in ast.walk(kernel)
        if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant)
    }
    assert 256 in limits
    exported = ast.parse(fla_file("ops", "stickbreaking_attn", "__init__.py").read_text())
    assert "parallel_stickbreaking_attn" in {
        alias.name for node in ast.walk(exported) if isinstance(node, ast.ImportFrom) for alias in node.names
    }


@pytest.mark.parametrize("core", [softmax.reference, lazy.reference])
@pytest.mark.parametrize(("groups", "window"), [(4, None), (2, None), (1, 5)])
def test_softmax_and_lazy_without_its_parts_are_that_of_fla(core, groups: int, window: int | None) -> None:
    naive = fla("attn").naive_parallel_attn
    inputs = leaves(19, groups, 5)
    options = {"window": window} if core is softmax.reference else {}
    window = window if options else None
    same([core(*inputs, **options)], [naive(*inputs, window_size=window)[0]], inputs)


@pytest.mark.parametrize("core", [sigmoid.reference, sigmoid.blocked])
@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("alibi", [False, True])
def test_sigmoid_is_that_of_x_transformers(core, groups: int, alibi: bool) -> None:
    attend = x_transformers("x_transformers.attend").Attend(causal=True, sigmoid=True, heads=HEADS)
    inputs, scalar = leaves(70, groups), -math.log(70)
    term = torch.full((HEADS, 70, 70), scalar, dtype=torch.float64)
    if alibi:
        position = x_transformers("x_transformers.x_transformers").AlibiPositionalBias(HEADS, HEADS)
        term = term + position(70, 70).double()
    theirs = attend(*heads_first(*inputs), attn_bias=term)[0].transpose(1, 2)
    same([core(*inputs, bias=scalar, alibi=alibi)], [theirs], inputs)


@pytest.mark.parametrize("heads", range(1, 17))
def test_slopes_of_alibi_are_those_of_x_transformers(heads: int) -> None:
    theirs = x_transformers("x_transformers.x_transformers").AlibiPositionalBias(heads, heads)
    torch.testing.assert_close(ops.alibi_slopes(heads), theirs.slopes.flatten())
