"""The layers a claim is tried on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from harness.contract.finding import Broken, described


class Stack(nn.Module):
    """The layers a claim is tried on: one, or two in a row with a residual between, which share one dict."""

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @property
    def last(self) -> Any:
        """The layer whose output is examined."""
        return self.layers[-1]

    def below(self, x: Tensor, shared: dict[str, Any]) -> Tensor:
        """What enters the last layer, [B, T, M]."""
        for layer in self.layers[:-1]:
            x = x + same_shape(layer(x, shared), x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, M] to [B, T, M]."""
        shared: dict[str, Any] = {}
        x = self.below(x, shared)
        # A copy: a layer that writes into its input fails the claim made for that, and no other.
        return same_shape(self.last(x.clone(), shared), x)

    def step(self, x: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """One token [B, 1, M] and the state of each layer, None at the start."""
        shared: dict[str, Any] = {}
        new: list[Any] = []
        layers: list[Any] = list(self.layers)
        for layer, state in zip(layers, states, strict=True):
            y, state = layer.step(x.clone(), state, shared)
            new.append(state)
            x = same_shape(y, x) if layer is layers[-1] else x + same_shape(y, x)
        return x, new


def same_shape(y: Any, x: Tensor) -> Tensor:
    """What a layer returned, if it is a tensor of its input's shape.

    Raises:
        Broken: it is not, even where it would broadcast.
    """
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise Broken(f"{described(y)} came out for {described(x)}; the shape must stay")
    return y
