"""Scalars of a variant: the numbers that its layers declare (`scalars`), by layer and head, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.measures.finding import Finding, NotDefinedError
from harness.model import Decoder

NAME = "scalars"
VERSION = 1


def measure(model: Decoder) -> Finding:
    """What the layers declare, as it is now.

    Returns:
        Values: `names`, and of each its mean, smallest and largest, `<name>_layers` (which layers declare it, from 1)
        and `<name>_gradient_norm`. Arrays: each as [L, H] or [L, H, W] over those layers, and `<name>_gradient`
        where training has just left one: that of the last step, after clipping. A scalar that cannot be put side by
        side says why in the place of its values.

    Raises:
        NotDefinedError: no layer declares anything.
    """
    declared: list[dict[str, Any]] = [
        layer.mixer.scalars() if hasattr(layer.mixer, "scalars") else {} for layer in model.layers
    ]
    names = list(dict.fromkeys(name for found in declared for name in found))
    if not names:
        raise NotDefinedError("the variant declares no scalars in this configuration")
    values: dict[str, Any] = {"names": names}
    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        layers = [place for place, found in enumerate(declared, 1) if name in found]
        tensors = [torch.as_tensor(declared[place - 1][name]) for place in layers]
        try:
            arrays[name] = _together(tensors)
        except NotDefinedError as reason:
            values[name] = f"not defined: {reason}"
            continue
        values[f"{name}_layers"] = layers
        values[f"{name}_mean"] = float(arrays[name].mean())
        values[f"{name}_smallest"] = float(arrays[name].min())
        values[f"{name}_largest"] = float(arrays[name].max())
        # A buffer, weights that were loaded, and what was computed from a parameter have no gradient.
        gradients = [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
        if len(gradients) == len(tensors) and all(bool(gradient.isfinite().all()) for gradient in gradients):
            arrays[f"{name}_gradient"] = _together(gradients)
            values[f"{name}_gradient_norm"] = float(np.linalg.norm(arrays[f"{name}_gradient"]))
    return Finding(values, arrays)


def _together(tensors: list[torch.Tensor]) -> NDArray[np.float32]:
    """One scalar of several layers: [L, H], or [L, H, W] where a head has several."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(set(shapes)) > 1:
        raise NotDefinedError(f"its shape is not the same in each layer: {', '.join(map(str, shapes))}")
    found: NDArray[np.float32] = np.stack([tensor.detach().float().cpu().numpy() for tensor in tensors])
    if not found.size:
        raise NotDefinedError("it holds no number")
    if not np.isfinite(found).all():
        raise NotDefinedError("not finite")
    if found.ndim == 1:
        return found[:, None]
    return found if found.ndim < 4 else found.reshape(*found.shape[:2], -1)
