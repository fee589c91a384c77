"""Scalars of a variant: the numbers that its layers declare (`scalars`), by layer and head, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.measures.finding import Finding, NotDefinedError
from harness.model import Decoder

NAME = "scalars"
VERSION = 1


def measure(model: Decoder) -> Finding:
    """What the layers declare, as it is now.

    Returns:
        Values: names, and mean, smallest and largest of each. Arrays: each as [L, H, ...], and `<name>_gradient`
        where training has just left one.

    Raises:
        NotDefinedError: the layers declare nothing, or not all of them the same.
    """
    declared: list[dict[str, Tensor]] = [
        layer.mixer.scalars() if hasattr(layer.mixer, "scalars") else {} for layer in model.layers
    ]
    names = list(declared[0])
    if not names:
        raise NotDefinedError("the variant declares no scalars in this configuration")
    values: dict[str, Any] = {"names": names}
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        stacked = np.stack([_numbers(found[name]) for found in declared])
        arrays[name] = stacked
        values[f"{name}_mean"] = float(stacked.mean())
        values[f"{name}_smallest"] = float(stacked.min())
        values[f"{name}_largest"] = float(stacked.max())
        # A buffer, or weights that were loaded, have no gradient.
        gradients = [found[name].grad for found in declared if found[name].is_leaf]
        there = [_numbers(gradient) for gradient in gradients if gradient is not None]
        if len(there) == len(declared):
            arrays[f"{name}_gradient"] = np.stack(there)
            values[f"{name}_gradient_norm"] = float(np.linalg.norm(arrays[f"{name}_gradient"]))
    return Finding(values, arrays)


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return found
