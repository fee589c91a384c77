"""The layer under examination: how it is made, fed and run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from harness.contract.finding import Absent, Broken
from harness.contract.stack import Stack, same_shape
from harness.spec import Backend, Dims, MixerSpec

LENGTHS = (1, 7, 63, 130)
FAR = 259
NOISE = 0.2


def lengths(past: int) -> tuple[int, ...]:
    """Lengths to try: 1, 7, 63, 130, and one past a window or chunk of that many tokens, past two where it is short."""
    beyond = past + min(past, 64) + 2
    return (*LENGTHS, beyond) if beyond > LENGTHS[-1] else LENGTHS


def generator(*key: object) -> torch.Generator:
    """A stream of random numbers that depends on the key alone."""
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


class Subject:
    """A mixer, its config and one backend, with everything a claim needs to try it.

    Args:
        spec, config: the mixer.
        dims: the model around it; its length is raised to the longest that is tried.
        backend: name of the backend; `own` for a mixer that has none.
        seed: of parameters and inputs.
        device: kind of device.
        doc: docstring of the mixer's file; taken from the module of its config unless given.
    """

    def __init__(
        self,
        spec: MixerSpec,
        config: Any,
        *,
        dims: Dims,
        backend: str,
        seed: int = 0,
        device: str = "cpu",
        doc: str = "",
    ) -> None:
        self.spec, self.config, self.backend = spec, config, backend
        self.seed, self.device, self.doc = seed, device, doc
        self.past = spec.checks_past(config)
        self.lengths = lengths(self.past)
        self.longest = max(self.lengths)
        self.far = max(FAR, self.longest)
        self.dims = Dims(
            model_dim=dims.model_dim,
            num_heads=dims.num_heads,
            num_layers=dims.num_layers,
            length=max(dims.length, self.far),
        )
        self._truth: dict[int, Truth] = {}

    @cached_property
    def way(self) -> Backend | None:
        """The backend itself, None for a mixer that has none."""
        return None if self.backend == "own" else self.spec.backend(self.backend)

    @property
    def narrow(self) -> bool:
        """Whether the backend takes bfloat16 alone; its layer then runs under autocast."""
        return self.way is not None and "float32" not in self.way.dtypes

    def share(self, share: float) -> float:
        """The error allowed between two passes of the layer: wider in bfloat16."""
        return max(share, self.spec.bf16_output) if self.narrow else share

    def x(self, length: int, *, batch: int = 2, key: str = "x") -> Tensor:
        """Random input [B, T, M] of unit variance."""
        shape = (batch, length, self.dims.model_dim)
        return torch.randn(shape, generator=generator(self.seed, key, length)).to(self.device)

    def like(self, y: Tensor, key: str) -> Tensor:
        """Random values of a tensor's shape, for the gradient of an output."""
        return torch.randn(y.shape, generator=generator(self.seed, key)).to(y)

    @cached_property
    def layer(self) -> Stack:
        """The layer, every parameter moved off its start, so that no table is zero and nothing sits on a kink."""
        return self.build(noise=NOISE)

    def build(self, *, noise: float, core: Any = None) -> Stack:
        """A fresh layer of the same parameters; two of them in a row where the first leaves a later one something.

        Args:
            noise: standard deviation of what is added to every parameter's start, as a share of a vector's size.
            core: taken in place of the backend's function.
        """
        layers = [self._one(0, noise, core)]
        if self._deep:
            layers.append(self._one(1, noise, core))
        return Stack(layers).eval()

    @cached_property
    def _deep(self) -> bool:
        # A layer that reads `shared` or its own index behaves as published only above another one.
        if self.dims.num_layers < 2:
            return False
        shared: dict[str, Any] = {}
        x = self.x(7)
        try:
            pair = [self._one(index, NOISE, None, salt=0).eval() for index in (0, 1)]
            with torch.no_grad(), self.autocast():
                first = same_shape(pair[0](x.clone(), shared), x)
                alone, other = (layer(x.clone(), {}) for layer in pair)
        except Exception:
            return False  # the claims say so, each at its own place
        names = [{name: p.shape for name, p in layer.named_parameters()} for layer in pair]
        return bool(shared) or names[0] != names[1] or (torch.equal(first, alone) and not torch.equal(first, other))

    def _one(self, index: int, noise: float, core: Any, salt: int | None = None) -> Any:
        core = core or (self.way.run if self.way else None)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.seed)
            try:
                layer = self.spec.Layer(self.dims, self.config, layer_index=index, core=core)
            except Exception as error:
                raise Broken(f"Layer(...) raises {told(error)}") from error
            if not isinstance(layer, nn.Module):
                raise Broken(f"Layer(...) is {type(layer).__name__}, no torch.nn.Module")
            salt = index if salt is None else salt
            for name, module in layer.named_modules():
                for inner, parameter in module.named_parameters() if hasattr(module, "draw") else ():
                    values = module.draw(inner, parameter, generator(self.seed, salt, "start", name, inner))
                    if values is not None:
                        parameter.copy_(values)
            for name, parameter in layer.named_parameters():
                moved = torch.randn(parameter.shape, generator=generator(self.seed, salt, "noise", name))
                # A vector keeps its scale, thresholds of -0.01 or a bias of -5; a matrix mixes more for being moved.
                size = float(parameter.square().mean().sqrt()) if parameter.dim() < 2 else 0.0
                parameter.add_(moved.to(parameter) * noise * (size or 1.0))
        return layer.to(self.device)

    def autocast(self, enabled: bool | None = None) -> torch.autocast:
        """bfloat16 autocast, where it is enabled or the backend takes nothing else."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.narrow if enabled is None else enabled)

    def run(self, x: Tensor, *, layer: Stack | None = None) -> Tensor:
        """The layer's output, [B, T, M] to [B, T, M].

        Raises:
            Broken: it raises, or returns something of another shape.
        """
        layer = layer or self.layer
        place = f"at length {x.shape[1]}{' in training mode' if layer.training else ''}"
        try:
            with self.autocast():
                y: Tensor = layer(x)
        except Broken as error:
            raise Broken(f"{place}: {error}") from error
        except Exception as error:
            raise Broken(f"{place} forward raises {told(error)}") from error
        return y

    def arguments(self, x: Tensor, *, narrow: bool = False) -> dict[str, Any]:
        """The arguments of the core for x, tensors detached.

        Raises:
            Absent: the mixer has no reference or no `inputs`.
        """
        if self.spec.reference is None:
            raise Absent("no reference is given")
        if not hasattr(self.layer.last, "inputs"):
            raise Absent("Layer.inputs is not given")
        shared: dict[str, Any] = {}
        with torch.no_grad(), self.autocast(narrow):
            found: Mapping[str, Any] = self.layer.last.inputs(self.layer.below(x, shared), shared)
        return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in found.items()}

    def truth(self, length: int) -> Truth:
        """Outputs and gradients of the reference in float64 at a length."""
        if length not in self._truth:
            self._truth[length] = Truth(self, self.arguments(self.x(length)), torch.float64)
        return self._truth[length]


class Truth:
    """What the reference says of some arguments.

    Args:
        subject: whose reference it is.
        arguments: of the core, by name.
        dtype: to compute in.
        cotangents: gradients of the outputs; random unless given.

    Raises:
        Broken: the reference does not keep the dtype.
    """

    def __init__(
        self,
        subject: Subject,
        arguments: Mapping[str, Any],
        dtype: torch.dtype,
        cotangents: Sequence[Tensor] | None = None,
    ) -> None:
        self.arguments = arguments
        self.outputs, leaves = call(subject.spec.reference, arguments, dtype=dtype)
        for y in self.outputs:
            if y.dtype != dtype:
                raise Broken(f"the reference turns {dtype} into {y.dtype}".replace("torch.", ""))
        self.cotangents = [subject.like(y, f"cotangent {i}") for i, y in enumerate(self.outputs)]
        if cotangents is not None:
            self.cotangents = [g.to(dtype) for g in cotangents]
        self.gradients = pullback(self.outputs, leaves, self.cotangents)


def call(
    core: Any, arguments: Mapping[str, Any], *, dtype: torch.dtype | None = None
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Run a core on fresh leaves.

    Args:
        core: signature of the mixer's reference.
        arguments: by name; tensors of real numbers become leaves that want a gradient.
        dtype: of the leaves; their own unless given.

    Returns:
        Its outputs, and the leaves by name.
    """
    leaves = {
        name: value.detach().to(dtype or value.dtype).requires_grad_()
        for name, value in arguments.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    result = core(**{**arguments, **leaves})
    return [result] if isinstance(result, Tensor) else list(result), leaves


def pullback(
    outputs: Sequence[Tensor], leaves: Mapping[str, Tensor], cotangents: Sequence[Tensor]
) -> dict[str, Tensor | None]:
    """Gradient of each leaf, None for one that no output depends on."""
    pairs = [(y, g.to(y.dtype)) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return dict.fromkeys(leaves)
    found = torch.autograd.grad([y for y, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True)
    return dict(zip(leaves, found, strict=True))


def told(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
