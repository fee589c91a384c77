"""Claims about single passes of a layer: shape, repetition, the input, dtype and device, strides, parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from harness.contract.finding import AXES, LAYER, Absent, Broken, compare, described, first, strided, where
from harness.contract.stack import Stack
from harness.contract.subject import NOISE, Subject, told


def shape(subject: Subject) -> str:
    """[B, T, M] becomes [B, T, M], finite, at every length; as training starts the gradients are finite too."""
    for length in subject.lengths:
        with torch.no_grad():
            _finite(subject.run(subject.x(length)), f"at length {length} the output")
    start = subject.build(noise=0.0).train()
    x = subject.x(subject.longest).requires_grad_()
    y = subject.run(x, layer=start)
    _finite(y, "the output at the initial values")
    for name, gradient in _gradients(y, x, start, subject.like(y, "g")).items():
        if gradient is not None:
            _finite(gradient, f"the gradient of {name} at the initial values")
    return f"lengths {', '.join(map(str, subject.lengths))}"


def _finite(y: Tensor, what: str) -> None:
    wrong = ~torch.isfinite(y)
    if wrong.any():
        at = first(wrong, _axes(y))
        raise Broken(f"{what} has entries that are not finite: {where(at, _axes(y))} is {float(y[at])}")


def _axes(x: Tensor) -> tuple[str, ...]:
    return AXES[3] if x.dim() == 3 else tuple("entry" for _ in range(x.dim()))


def _gradients(y: Tensor, x: Tensor, layer: Stack, g: Tensor) -> dict[str, Tensor | None]:
    named = {"x": x, **{name.partition("layers.")[2]: p for name, p in layer.named_parameters() if p.requires_grad}}
    if not y.requires_grad:
        return dict.fromkeys(named)
    return dict(zip(named, torch.autograd.grad(y, list(named.values()), g, allow_unused=True), strict=True))


def deterministic(subject: Subject) -> str:
    """The same input gives the same bits, forward and backward, also after a pass of another length."""
    layer = subject.build(noise=NOISE)
    kept: dict[tuple[int, str], Tensor | None] = {}
    for length in (7, subject.longest, 7, subject.longest):
        x = subject.x(length).requires_grad_()
        y = subject.run(x, layer=layer)
        found = {
            "the output": y,
            **{
                f"the gradient of {name}": value
                for name, value in _gradients(y, x, layer, subject.like(y, "g")).items()
            },
        }
        for name, value in found.items():
            before = kept.setdefault((length, name), value)
            if (value is None) != (before is None):
                raise Broken(f"at length {length}, {name} is there in one call and missing in the next")
            if value is not None and before is not None and not torch.equal(value, before):
                raise Broken(f"at length {length}, {name} {_changes(before.detach(), value.detach())}")
    return ""


def _changes(before: Tensor, after: Tensor) -> str:
    off, at = float((after - before).abs().max()), first(after != before, _axes(after))
    return (
        f"changes by up to {off:.3g} from one call to the next: {where(at, _axes(after))} is {float(before[at]):.6g}, "
        f"then {float(after[at]):.6g}"
    )


def untouched(subject: Subject) -> str:
    """The input tensor is as it was after the pass."""
    x = subject.x(subject.longest)
    given = x.clone()
    try:
        with torch.no_grad(), subject.autocast():
            subject.layer.layers[0](given, {})
    except Exception as error:
        raise Absent("forward raises: see `shape`") from error
    if not torch.equal(given, x):
        compare(given, x, share=0.0, axes=AXES[3], what="the input after the pass")
    return ""


def dtype(subject: Subject) -> str:
    """float32 stays float32, bfloat16 autocast runs, and every tensor is made on the input's device."""
    x = subject.x(subject.longest)
    with torch.no_grad():
        y = subject.run(x)
        if y.dtype != torch.float32 and not subject.narrow:
            raise Broken(f"{y.dtype} came out for torch.float32".replace("torch.", ""))
        try:
            with subject.autocast(True):
                y = subject.layer(x)
        except Exception as error:
            raise Broken(f"under bfloat16 autocast forward raises {told(error)}") from error
        if y.dtype not in (torch.float32, torch.bfloat16):
            raise Broken(f"{y.dtype} came out under bfloat16 autocast".replace("torch.", ""))
        _finite(y, "the output under bfloat16 autocast")
        return _elsewhere(subject, x) if subject.device == "cpu" else ""


class _Elsewhere(TorchFunctionMode):
    """A tensor made without naming a device lands on another device than the input's, as it would on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the call; move what it made out of nothing. Numbers stay: torch takes them on any device."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [
            item
            for value in (*args, *kwargs.values())
            for item in (value if isinstance(value, (list, tuple)) else (value,))
        ]
        made = isinstance(result, Tensor) and result.dim() > 0 and not any(isinstance(x, Tensor) for x in given)
        return result.to("meta") if made and kwargs.get("device") is None else result


def _elsewhere(subject: Subject, x: Tensor) -> str:
    try:
        with _Elsewhere():
            subject.layer(x)
    except Exception as error:
        if "expected device" in str(error) or "same device" in str(error):
            raise Broken("a tensor is made on torch's default device, not on the input's") from error
        return f"device not tried: {told(error)}"
    return ""


def strides(subject: Subject) -> str:
    """An input and an output gradient that are not contiguous give what contiguous ones give."""
    plain = subject.x(subject.longest)
    g: Tensor | None = None
    wanted: dict[str, Tensor | None] = {}
    for layout in ("", "swapped axes", "gaps"):
        x = (strided(plain, layout) if layout else plain).detach().requires_grad_()
        y = subject.run(x)
        g = subject.like(y, "g") if g is None else g
        after = _gradients(y, x, subject.layer, strided(g, layout) if layout else g)
        found = {"the output": y.detach(), **{f"the gradient of {name}": value for name, value in after.items()}}
        wanted = wanted or found
        for name, want in wanted.items():
            if want is not None:
                what = f"{name} in memory with {layout}"
                compare(found[name], want, share=subject.share(LAYER), axes=_axes(want), what=what)
    return ""


def trained(subject: Subject) -> str:
    """Every parameter gets a gradient that is not zero everywhere."""
    x = subject.x(subject.longest).requires_grad_()
    y = subject.run(x)
    named = _gradients(y, x, subject.layer, subject.like(y, "g"))
    if len(named) == 1:
        raise Absent("the layer has no parameters")
    for name, gradient in named.items():
        if name != "x" and (gradient is None or not bool(gradient.any())):
            parameter = dict(subject.layer.named_parameters())[f"layers.{name}"]
            raise Broken(f"{name} {described(parameter)} never gets a gradient: it is not trained")
    return ""
