"""What a run is: everything that decides its numbers, resolved, with a JSON round trip and an id."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError, unknown
from harness.fields import identity, resolved, restore
from harness.spec import choice, knob, size


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The decoder around the mixer.

    Args:
        num_layers: layers, L.
        model_dim: width of the residual stream, M; divisible by `num_heads`.
        num_heads: query heads, H.
        mlp_dim: hidden width of the SwiGLU block.
        positions: positions added at the model's input, beside what the mixer does with its own.
        tie_embeddings: one matrix for reading and predicting tokens.
        init_std: standard deviation of the matrices' normal start; none is 1 / sqrt(inputs of the matrix).
        pattern: variants that the layers repeat in turn, `lazy,softmax`: the run's own by its name and with its
            config, others with their defaults; none is the run's own in every layer.
    """

    num_layers: int = size(2, least=1)
    model_dim: int = size(64, least=1)
    num_heads: int = size(4, least=1)
    mlp_dim: int = size(176, least=1)
    positions: str = choice("none", "learned")
    tie_embeddings: bool = choice(False, True)
    init_std: float | None = size(None, above=0)
    pattern: str | None = size(None, absent=None)

    def __post_init__(self) -> None:
        if self.model_dim % self.num_heads:
            raise ValueError(
                f"model_dim={self.model_dim} is not divisible by num_heads={self.num_heads}; "
                "change one of them (--set model.num_heads=...)"
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The recipe: steps, batches, optimiser, precision, place.

    The rate rises over the warm-up (step 1 already runs at a part of it), then falls along a cosine to
    `final_rate` of its peak. Decay acts on matrices alone.

    Args:
        steps: optimiser steps.
        batch_size: sequences a step, over all its micro-batches.
        accumulate: micro-batches a step is cut into; divides `batch_size` and changes no result but rounding.
        learning_rate: peak rate of AdamW.
        final_rate: share of the peak rate at the last step.
        warmup: share of the steps.
        weight_decay, beta1, beta2: of AdamW.
        clip: largest norm of the whole gradient.
        seed: of the initial values and of the data order.
        init_seed: of the initial values alone; none is `seed`.
        dtype: `bfloat16` computes under autocast, weights stay float32.
        device: kind of device; `auto` is CUDA where there is one.
        backend: of the mixer's core; `auto` is the fastest correct one here.
        compile: torch.compile for the model.
        threads: CPU threads of the process that trains.
    """

    steps: int = size(240, least=1)
    batch_size: int = size(8, least=1)
    accumulate: int = size(1, least=1)
    learning_rate: float = knob(1e-2, low=1e-4, high=3e-2, log=True, above=0)
    final_rate: float = size(0.1, least=0, most=1)
    warmup: float = knob(0.1, low=0.0, high=0.3, least=0, most=1)
    weight_decay: float = knob(0.1, low=1e-3, high=1.0, log=True, least=0)
    beta1: float = size(0.9, least=0, most=0.9999)
    beta2: float = knob(0.95, low=0.9, high=0.999, least=0, most=0.99999)
    clip: float = size(1.0, above=0)
    seed: int = size(0, least=0)
    init_seed: int | None = size(None, least=0, absent=None)
    dtype: str = choice("float32", "bfloat16")
    device: str = choice("auto", "cpu", "cuda")
    backend: str = size("auto")
    compile: bool = choice(False, True)
    threads: int = size(1, least=1)

    def __post_init__(self) -> None:
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size={self.batch_size} is not divisible by accumulate={self.accumulate}")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is read, and how much of it is scored.

    Args:
        corpus: `kjv`, or another name or path that the data room knows.
        tokenizer: `bytes`, or another that it knows.
        length: tokens of a sequence, T.
        report_tokens: tokens of the report split that the last step's loss is taken on.
        curve_tokens: tokens of the selection split behind each point of the curve.
        curve_points: points of the curve, evenly spread, the last one at the last step.
    """

    corpus: str = size("kjv")
    tokenizer: str = size("bytes")
    length: int = size(128, least=2)
    report_tokens: int = size(49_152, least=1)
    curve_tokens: int = size(8_192, least=1)
    curve_points: int = size(8, least=1, most=10_000)


SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training at one seed, resolved: no `auto` is left in it.

    Args:
        variant: a variant's name, or the path of a user's file.
        mixer: the fields of the variant's config that identify it (`fields.identity`).
        model, train, data: the sections.
        fingerprint: SHA-256 of the data.
        file_hash: SHA-256 of the user's file and what it imports beside it; none for a shipped variant.
    """

    variant: str
    mixer: Mapping[str, Any] = field(default_factory=dict)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    data: DataConfig = field(default_factory=DataConfig)
    fingerprint: str = ""
    file_hash: str | None = None

    @property
    def id(self) -> str:
        """Name of the run: 16 hexadecimal digits over all that decides its numbers, and over nothing else."""
        data = {name: value for name, value in identity(self.data).items() if name != "corpus"}
        decides = {
            # A user's file is known by its content: where it lies changes nothing.
            "variant": self.file_hash or self.variant,
            "mixer": dict(self.mixer),
            "model": identity(self.model),
            "train": identity(self.train),
            "data": {**data, "fingerprint": self.fingerprint},
        }
        return hashlib.sha256(canonical(decides).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The run as plain JSON types."""
        sections = {name: resolved(getattr(self, name)) for name in SECTIONS}
        return {
            "variant": self.variant,
            "mixer": dict(self.mixer),
            **sections,
            "fingerprint": self.fingerprint,
            "file_hash": self.file_hash,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The run that `to_dict` wrote.

        Raises:
            UsageError: an unknown key, or a value that no run has.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in names:
                raise unknown("part of a run", name, names)
        variant = values.get("variant")
        if not isinstance(variant, str) or "\0" in variant:
            raise UsageError("a run needs the name of its variant")
        for name in ("mixer", *SECTIONS):
            if not isinstance(values.get(name, {}), Mapping):
                raise UsageError(f"{name} of a run must be fields with values, not {values[name]!r}")
        sections: dict[str, Any] = {
            name: restore(section, values.get(name, {}), where=name) for name, section in SECTIONS.items()
        }
        return cls(
            variant=values["variant"],
            mixer=dict(values.get("mixer", {})),
            **sections,
            fingerprint=values.get("fingerprint", ""),
            file_hash=values.get("file_hash"),
        )


def canonical(value: Any) -> str:
    """JSON text that is the same for the same value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
