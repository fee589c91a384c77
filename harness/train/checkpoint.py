"""A run on disk: what it needs to go on to the same bits, and its final weights."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn

from harness.errors import RecordError, UsageError


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
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    _replace(path, lambda temporary: torch.save(state, temporary))


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
    model.load_state_dict(state["model"])
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(state["buffers"][name])
    optimiser.load_state_dict(state["optimiser"])
    random.setstate(state["random"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    progress: dict[str, Any] = state["progress"]
    return progress


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the weights as safetensors, whole or not at all.

    Raises:
        RecordError: they cannot be written.
    """
    _replace(path, lambda temporary: save_model(model, str(temporary)))


def load_weights(path: Path, model: nn.Module) -> None:
    """Put weights back in place.

    Raises:
        UsageError: there are none, or they are another model's.
    """
    try:
        load_model(model, str(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UsageError(f"no usable weights at {path}: {str(error).splitlines()[0]}") from error


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    # torch reports a full disk as RuntimeError, safetensors as its own error.
    except (OSError, RuntimeError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(f"cannot write {path}: {str(error).splitlines()[0]}") from error
