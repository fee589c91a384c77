"""One small decoder around any mixer, and initial values that depend on a parameter's name alone."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.config import ModelConfig
from harness.spec import Dims

MixerFactory = Callable[[Dims, int], nn.Module]
EPSILON = 1e-6


class RMSNorm(nn.Module):
    """w * x / sqrt(mean(x^2) + 1e-6), [B, T, M] to [B, T, M]. Source: arXiv 1910.07467."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(model_dim))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, M] to [B, T, M]."""
        if x.device.type == "cpu":
            y: Tensor = _CpuNorm.apply(x, self.weight)  # type: ignore[no-untyped-call]
        else:
            y = F.rms_norm(x, self.weight.shape, self.weight, EPSILON)
        return y


class _CpuNorm(torch.autograd.Function):
    """The norm in half the passes over memory that torch takes on a CPU.

    With u = x / r, r the root, and g the gradient of y = w u:  dw = sum g u,  dx = (w g - u mean(w g u)) / r.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square().div_(len(weight)).add_(EPSILON).rsqrt_()
        unit: Tensor = x * inverse
        ctx.save_for_backward(unit, inverse, weight)
        return unit * weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        unit, inverse, weight = ctx.saved_tensors
        parts = g * unit
        along = (parts @ weight).div_(len(weight)).unsqueeze(-1)
        return (g * weight).addcmul_(unit, along, value=-1).mul_(inverse), parts.flatten(0, -2).sum(0)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), [B, T, M] to [B, T, M]. Source: arXiv 2002.05202."""

    def __init__(self, model_dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(model_dim, hidden, bias=False)
        self.up = nn.Linear(model_dim, hidden, bias=False)
        self.down = nn.Linear(hidden, model_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, M] to [B, T, M]."""
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


class Block(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig, mixer: Any) -> None:
        super().__init__()
        self.mixer_norm = RMSNorm(config.model_dim)
        self.mixer = mixer
        self.mlp_norm = RMSNorm(config.model_dim)
        self.mlp = SwiGLU(config.model_dim, config.mlp_dim)

    def forward(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        """[B, T, M] to [B, T, M].

        Raises:
            ValueError: the mixer returned something of another shape, even one that would broadcast.
        """
        mixed = self.mixer(self.mixer_norm(x), shared)
        if not isinstance(mixed, Tensor) or mixed.shape != x.shape:
            got = f"{list(mixed.shape)}" if isinstance(mixed, Tensor) else type(mixed).__name__
            raise ValueError(f"the mixer returned {got} for an input of {list(x.shape)}; it must return the same shape")
        if not mixed.is_floating_point():
            raise ValueError(f"the mixer returned {mixed.dtype}; it must return floating point numbers")
        x = x + mixed
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y

    def step(self, x: Tensor, state: Any, shared: dict[str, Any]) -> tuple[Tensor, Any]:
        """One token, [B, 1, M], and the mixer's state before and after it."""
        mixed, state = self.mixer.step(self.mixer_norm(x), state, shared)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), state


class Decoder(nn.Module):
    """Pre-norm decoder: embedding, blocks, norm, unembedding.

    Args:
        config: its shape.
        vocab_size: V.
        length: tokens of a training sequence; the reach of learned positions.
        mixer: makes the mixer of a layer from the dims and the layer's index.
    """

    def __init__(self, config: ModelConfig, *, vocab_size: int, length: int, mixer: MixerFactory) -> None:
        super().__init__()
        self.config = config
        self.dims = Dims(
            model_dim=config.model_dim, num_heads=config.num_heads, num_layers=config.num_layers, length=length
        )
        self.embedding = nn.Embedding(vocab_size, config.model_dim)
        self.positions = nn.Embedding(length, config.model_dim) if config.positions == "learned" else None
        self.layers: Any = nn.ModuleList(Block(config, mixer(self.dims, index)) for index in range(config.num_layers))
        self.norm = RMSNorm(config.model_dim)
        self.unembedding = nn.Linear(config.model_dim, vocab_size, bias=False)
        if config.tie_embeddings:
            self.unembedding.weight = self.embedding.weight

    def draw(self, name: str, parameter: Tensor, generator: torch.Generator) -> Tensor | None:
        """Start of the two embeddings where `init_std` is not set: N(0, 1), and half a matrix's std for the last one.

        The first logits are then small, so that the first loss is close to the uniform one.
        """
        config = self.config
        own = {"embedding.weight": 1.0, "unembedding.weight": 0.5 * config.model_dim**-0.5}
        if name not in own or config.init_std is not None or config.tie_embeddings:
            return None
        start: Tensor = torch.randn(parameter.shape, generator=generator) * own[name]
        return start

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, T, V] of the token after each of tokens [B, T]."""
        x = self.embed(tokens, 0)
        shared: dict[str, Any] = {}
        for layer in self.layers:
            x = layer(x, shared)
        logits: Tensor = self.unembedding(self.norm(x))
        return logits

    def embed(self, tokens: Tensor, start: int) -> Tensor:
        """Token embeddings [B, T, M], learned positions from `start` on added where the model has them."""
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(start, start + tokens.shape[1], device=tokens.device))
        return x

    def step(self, token: Tensor, states: list[Any] | None, position: int) -> tuple[Tensor, list[Any]]:
        """One token of decoding.

        Args:
            token: [B, 1].
            states: one state a layer, as the last step returned them; None at the start.
            position: of the token, from 0.

        Returns:
            Logits [B, 1, V] and the new states.
        """
        x = self.embed(token, position)
        shared: dict[str, Any] = {}
        new: list[Any] = []
        for layer, state in zip(self.layers, states or [None] * len(self.layers), strict=True):
            x, after = layer.step(x, state, shared)
            new.append(after)
        return self.unembedding(self.norm(x)), new


def keyed_seed(*key: object) -> int:
    """A seed of 63 bits from any key: the same key gives the same stream, another one an independent stream."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1


def seed_everything(*key: object) -> None:
    """Seed the global generators of torch, its devices, Python and NumPy by key."""
    seed = keyed_seed(*key)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@torch.no_grad()
def initialise(model: nn.Module, *, seed: int, std: float | None) -> None:
    """Give each parameter its start from a generator keyed by (seed, name), never by the order of drawing.

    Matrices of `nn.Linear` get N(0, std²), std = 1 / sqrt(inputs) unless given, and 0 for their bias; embeddings get
    the std of a matrix of the model's width. A module with `draw(name, parameter, generator)` chooses for all
    parameters below it, None leaving one to this rule; any other module is reset by its own `reset_parameters`
    under a keyed stream; a parameter without either keeps what its constructor gave it.

    Args:
        model: the module whose parameters are set in place.
        seed: the run's seed.
        std: standard deviation of matrices and embeddings.
    """
    drawn: set[str] = set()
    for name, module in model.named_modules():
        draw = getattr(module, "draw", None)
        if draw is not None:
            for inner, parameter in module.named_parameters():
                full = f"{name}.{inner}" if name else inner
                values = draw(inner, parameter, _generator(seed, full))
                if values is not None:
                    parameter.copy_(values)
                    drawn.add(full)
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            width = module.weight.shape[1]
            _normal(module.weight, f"{name}.weight", seed, std or width**-0.5, drawn)
            bias = getattr(module, "bias", None)
            if bias is not None and f"{name}.bias" not in drawn:
                bias.zero_()
        elif hasattr(module, "reset_parameters"):
            _reset(module, name, seed, drawn)


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(keyed_seed("parameter", seed, name))


def _normal(weight: Tensor, name: str, seed: int, std: float, drawn: set[str]) -> None:
    if name not in drawn:
        weight.copy_(torch.randn(weight.shape, generator=_generator(seed, name)) * std)


def _reset(module: Any, name: str, seed: int, drawn: set[str]) -> None:
    kept = {
        inner: parameter.clone()
        for inner, parameter in module.named_parameters(recurse=False)
        if f"{name}.{inner}" in drawn
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed("module", seed, name))
        module.reset_parameters()
    for inner, values in kept.items():
        module.get_parameter(inner).copy_(values)
