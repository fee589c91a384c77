"""A run on disk: what it needs to go on to the same bits, and its final weights."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import nn

from harness.errors import UsageError
from harness.records import write_whole


def save(path: Path, *, key: str, model: nn.Module, optimiser: torch.optim.Optimizer, progress: dict[str, Any]) -> None:
    """Write a checkpoint whole or not at all.

    Args:
        path: the file.
        key: what the run and its code are; another key's checkpoint is not loaded.
        model, optimiser: their whole state, buffers that a state dict leaves out included.
        progress: the loop's own state; `step` is the data cursor.

    Raises:
        RecordError: it cannot be written.
    """
    state = {
        "key": key,
        "model": model.state_dict(),
        "buffers": dict(model.named_buffers()),
        "optimiser": optimiser.state_dict(),
        "progress": progress,
        "random": random.getstate(),
        "numpy": _numpy_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_whole(path, content.getvalue())


def load(path: Path, *, key: str, model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Put a checkpoint back.

    Returns:
        The loop's own state, or None where there is no checkpoint of this key.
    """
    try:
        state = torch.load(path, weights_only=True)
    except FileNotFoundError:
        return None
    # A file of another program or one that a full disk cut short: the run starts from its beginning instead.
    except Exception:
        return None
    if not isinstance(state, dict) or state.get("key") != key:
        return None
    buffers = dict(model.named_buffers())
    # A module that made a buffer while it trained cannot take it back: the run starts from its beginning.
    if _shapes(state["model"]) != _shapes(model.state_dict()) or _shapes(state["buffers"]) != _shapes(buffers):
        return None
    model.load_state_dict(state["model"])
    with torch.no_grad():
        for name, buffer in buffers.items():
            buffer.copy_(state["buffers"][name])
    optimiser.load_state_dict(state["optimiser"])
    random.setstate(state["random"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    progress: dict[str, Any] = state["progress"]
    return progress


def _numpy_state() -> tuple[Any, ...]:
    # An array would not be loaded by a reader that takes weights alone; a list of whole numbers is.
    name, keys, *rest = np.random.get_state(legacy=True)
    return (name, [int(key) for key in keys], *rest)


def _shapes(tensors: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the weights as safetensors, whole or not at all.

    Raises:
        RecordError: they cannot be written.
    """
    write_whole(path, safetensors.save(_tensors(model)))


def load_weights(path: Path, model: nn.Module) -> None:
    """Put weights back in place.

    Raises:
        UsageError: there are none, or they are another model's.
    """
    try:
        stored = safetensors.load_file(path)
        own = _tensors(model)
        if stored.keys() != own.keys():
            raise ValueError(f"they hold {', '.join(sorted(stored.keys() ^ own.keys())[:3])} otherwise than the model")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(stored[name])
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"no usable weights at {path}: {str(error).splitlines()[0]}") from error


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    # Named parameters come once each, so that tied matrices are stored once.
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
