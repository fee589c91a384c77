"""Claims about a core: its backend against the reference, gradients against the slope, bfloat16."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from harness.contract.finding import (
    GRADIENT,
    OUTPUT,
    SLOPE,
    SLOPE_WIDE,
    SMALL_HEAD,
    Absent,
    Broken,
    axes_of,
    compare,
    described,
    strided,
)
from harness.contract.stack import Stack
from harness.contract.subject import NOISE, Subject, Truth, call, pullback

# Long steps drown rounding, short ones step over fewer kinks: a right gradient agrees with one of them.
STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


def inputs(subject: Subject) -> str:
    """`Layer.inputs` returns what forward hands the core."""
    x = subject.x(subject.longest)
    expected = subject.arguments(x)
    reference, heads = subject.spec.reference, subject.dims.num_heads
    if subject.way is None or reference is None:
        raise Absent("the layer has no backends to hand its arguments to")
    backend, signature, handed = subject.way.run, inspect.signature(reference), []

    def record(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        handed.append(bound.arguments)
        return backend(*args, **kwargs)

    with torch.no_grad():
        subject.run(x, layer=subject.build(noise=NOISE, core=record))
    if not handed:
        raise Broken("forward never calls the core it was given")
    claimed = signature.bind(**expected)
    claimed.apply_defaults()
    for name, want in claimed.arguments.items():
        got = handed[-1][name]
        if isinstance(want, Tensor):
            compare(got, want, share=0.0, axes=axes_of(want, heads), what=f"argument {name} in forward")
        elif isinstance(got, Tensor) or got != want:
            raise Broken(
                f"argument {name} in forward is {got if not isinstance(got, Tensor) else described(got)}, "
                f"inputs says {want}"
            )
    return ""


def values(subject: Subject) -> str:
    """The backend's outputs in float32 are the reference's in float64, at every length."""
    for length in subject.lengths:
        truth, core = subject.truth(length), _core(subject)
        outputs, _ = call(core, truth.arguments)
        _outputs(subject, outputs, truth, OUTPUT, f"at length {length}, ")
    return f"lengths {', '.join(map(str, subject.lengths))}"


def gradients(subject: Subject) -> str:
    """The backend's gradient of every argument is the reference's, head by head, at every length."""
    for length in subject.lengths:
        truth, core = subject.truth(length), _core(subject)
        outputs, leaves = call(core, truth.arguments)
        _gradients(subject, outputs, leaves, truth.cotangents, truth, GRADIENT, f"at length {length}, ")
    return f"lengths {', '.join(map(str, subject.lengths))}"


def strides(subject: Subject) -> str:
    """Arguments and output gradients that are not contiguous in memory, or one number spread out, change nothing."""
    truth, core = subject.truth(subject.longest), _core(subject)
    for layout in ("swapped axes", "gaps"):
        loose = {
            name: strided(value, layout) if isinstance(value, Tensor) else value
            for name, value in truth.arguments.items()
        }
        outputs, leaves = call(core, loose)
        what = f"in memory with {layout}: "
        _outputs(subject, outputs, truth, OUTPUT, what)
        cotangents = [strided(g.to(y.dtype), layout) for g, y in zip(truth.cotangents, outputs, strict=True)]
        _gradients(subject, outputs, leaves, cotangents, truth, GRADIENT, what)
    # The gradient of a plain sum is a single number with strides of zero.
    summed = Truth(subject, truth.arguments, torch.float64, [g.new_ones(()).expand(g.shape) for g in truth.cotangents])
    outputs, leaves = call(core, truth.arguments)
    _gradients(subject, outputs, leaves, summed.cotangents, summed, GRADIENT, "output gradient of a plain sum: ")
    return ""


def bfloat16(subject: Subject) -> str:
    """In bfloat16 the backend stays near the reference in float32 on the same rounded inputs."""
    if subject.way is not None and "bfloat16" not in subject.way.dtypes:
        raise Absent("the backend takes no bfloat16")
    spec = subject.spec
    # Nearly equal scores are how training starts, and where small differences of weights are rounded away.
    for scale in (1.0, 0.1):
        arguments = subject.arguments(subject.x(subject.longest) * scale, narrow=True)
        outputs, leaves = call(_core(subject, narrow=True), arguments)
        cotangents = [subject.like(y, f"cotangent {i}") for i, y in enumerate(outputs)]
        truth = Truth(subject, arguments, torch.float32, cotangents)
        what = "" if scale == 1 else f"x times {scale}: "
        _outputs(subject, outputs, truth, spec.bf16_output, what)
        # Later positions see more keys and have smaller outputs: they are held against their own largest entry.
        half = subject.longest // 2
        for i, (y, want) in enumerate(zip(outputs, truth.outputs, strict=True)):
            if want.dim() > 2:
                compare(
                    y[:, half:],
                    want[:, half:],
                    share=spec.bf16_output,
                    axes=axes_of(want, subject.dims.num_heads),
                    what=f"{what}second half of {_output(i, outputs)}",
                )
        _gradients(subject, outputs, leaves, cotangents, truth, spec.bf16_gradient, what)
    return spec.bf16_reason


def slope(subject: Subject) -> str:
    """The gradient of the input and of every parameter is the slope that small steps measure."""
    if subject.narrow:
        raise Absent("the backend takes no float32")
    layer, x = _wide(subject)
    x.requires_grad_()
    y = subject.run(x, layer=layer)
    g = subject.like(y, "g").double()
    named = {"x": x, **{name.partition("layers.")[2]: p for name, p in layer.named_parameters()}}
    found = torch.autograd.grad((y.double() * g).sum(), list(named.values()), allow_unused=True)
    share = SLOPE_WIDE if x.dtype == torch.float64 else SLOPE
    for (name, tensor), gradient in zip(named.items(), found, strict=True):
        # One direction may lie across what is wrong.
        for along in (subject.like(tensor, f"along {name}"), subject.like(tensor, f"across {name}")):
            given = 0.0 if gradient is None else float((gradient * along).sum())
            size = 0.0 if gradient is None else float(gradient.norm())
            rises = []
            for step in STEPS:
                rises.append(_rise(subject, layer, x, tensor, along * step, g) / (2 * step))
                if abs(rises[-1] - given) <= share * max(size, abs(rises[-1])):
                    break
            else:
                raise Broken(
                    f"along a random direction of {name} the output rises by {rises[len(rises) // 2]:.6g}, "
                    f"its gradient says {given:.6g}"
                )
    return ""


def _rise(subject: Subject, layer: Stack, x: Tensor, tensor: Tensor, by: Tensor, g: Tensor) -> float:
    at = tensor.detach().clone()
    sums = []
    with torch.no_grad():
        for moved in (at + by, at - by):
            tensor.copy_(moved)
            sums.append(float((subject.run(x, layer=layer).double() * g).sum()))
        tensor.copy_(at)
    return sums[0] - sums[1]


def _wide(subject: Subject) -> tuple[Stack, Tensor]:
    # float64 where every part of the layer keeps it, float32 where one does not.
    x = subject.x(subject.longest, batch=1)
    layer = subject.build(noise=NOISE).double()
    try:
        with torch.no_grad():
            y = subject.run(x.double(), layer=layer)
    except Broken:
        return subject.layer, x
    return (layer, x.double()) if y.dtype == torch.float64 else (subject.layer, x)


def _core(subject: Subject, *, narrow: bool = False) -> Any:
    if subject.way is None:
        raise Absent("no backends are given")
    if subject.narrow and not narrow:
        raise Absent("the backend takes no float32")
    return subject.way.run


def _output(index: int, outputs: list[Tensor]) -> str:
    return "the output" if len(outputs) == 1 else f"output {index}"


def _outputs(subject: Subject, outputs: list[Tensor], truth: Truth, share: float, what: str) -> None:
    if len(outputs) != len(truth.outputs):
        raise Broken(f"{what}{len(outputs)} outputs instead of {len(truth.outputs)}")
    for i, (y, want) in enumerate(zip(outputs, truth.outputs, strict=True)):
        compare(y, want, share=share, axes=axes_of(want, subject.dims.num_heads), what=what + _output(i, outputs))


def _gradients(
    subject: Subject,
    outputs: list[Tensor],
    leaves: dict[str, Tensor],
    cotangents: list[Tensor],
    truth: Truth,
    share: float,
    what: str,
) -> None:
    found = pullback(outputs, leaves, cotangents)
    # One argument's gradient may cancel to nothing where another's does not: rounding is judged by the larger.
    largest = max((float(g.abs().max()) for g in truth.gradients.values() if g is not None), default=0.0)
    for name, want in truth.gradients.items():
        got, axes = found[name], axes_of(leaves[name], subject.dims.num_heads)
        if want is None or not bool(want.any()):
            want = torch.zeros_like(leaves[name])
            got = want if got is None else got
        elif got is None:
            raise Broken(f"{what}the gradient of {name} is missing, expected up to {float(want.abs().max()):.6g}")
        compare(got, want, share=share, axes=axes, what=f"{what}the gradient of {name}", least=SMALL_HEAD * largest)
