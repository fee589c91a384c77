"""What the measures of maps are given: a block of maps of one layer, and which pairs of it are visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Block:
    """Maps of one layer over a few sequences.

    Args:
        weights: [B, H, T, T]; 0 above the diagonal.
        plain: weights of the plain softmax over the same scores, [B, H, T, T]; none where there is none.
        groups: queries to be told apart, name to bool [B, T].
    """

    weights: Tensor
    plain: Tensor | None = None
    groups: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """T."""
        return self.weights.shape[-1]

    @property
    def causal(self) -> Tensor:
        """Pairs with the key not after the query, bool [T, T]."""
        return torch.ones(self.length, self.length, dtype=torch.bool, device=self.weights.device).tril()

    @property
    def visible(self) -> Tensor:
        """Keys up to each query: 1 to T, float [T]."""
        return torch.arange(1, self.length + 1, device=self.weights.device, dtype=self.weights.dtype)

    @property
    def mass(self) -> Tensor:
        """Sum of absolute weights of each row, [B, H, T]; the plain sum where no weight is negative."""
        return self.weights.abs().sum(-1)
