"""Runs small enough for a test: one layer, a few tokens, a source that needs no corpus."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.arms import parse
from harness.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from harness.data import Batch, Evaluation
from harness.errors import DataError
from harness.fields import build, identity
from harness.registry import choose_backend
from harness.spec import Dims


@dataclass(frozen=True)
class Letters:
    """A stream in which each token is the one before it plus 1 or 2, modulo the vocabulary."""

    vocab_size: int = 16
    name: str = "letters"
    description: str = "letters of a test"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"letters {self.vocab_size}".encode()).hexdigest()

    def training_batch(self, *, seed: int, step: int, rows: int, length: int) -> Batch:
        tokens = self._stream([1, seed, step], rows, length)
        return Batch(tokens[:, :-1], tokens[:, 1:])

    def evaluation(self, split: str, *, length: int, tokens: int) -> Evaluation:
        drawn = self._stream([2, *split.encode()], -(-tokens // length), length)
        return Evaluation(drawn[:, :-1], drawn[:, 1:], np.ones_like(drawn[:, 1:]))

    def check(self, *, length: int, tokens: int) -> None:
        if length > 1000:
            raise DataError("split report has 1000 tokens")

    def _stream(self, key: list[int], rows: int, length: int) -> Any:
        generator = np.random.default_rng(key)
        steps = generator.integers(1, 3, size=(rows, length + 1))
        return steps.cumsum(1) % self.vocab_size


SOURCE = Letters()


def run(arm: str = "softmax", *, seed: int = 0, **sets: Any) -> RunConfig:
    """A resolved run of an arm: width 16, 2 heads, 1 layer, 6 steps unless `section__field=value` says otherwise."""
    values: dict[str, dict[str, Any]] = {
        "model": {"num_layers": 1, "model_dim": 16, "num_heads": 2, "mlp_dim": 24},
        "train": {"steps": 6, "batch_size": 4, "device": "cpu"},
        "data": {"length": 12, "report_tokens": 96, "curve_tokens": 48, "curve_points": 3},
    }
    parsed = parse(arm)
    for section, fields in parsed.sections.items():
        values[section].update(fields)
    for path, value in sets.items():
        section, _, field = path.partition("__")
        values[section][field] = value
    model = build(ModelConfig, values["model"], where="model")
    train = build(TrainConfig, values["train"], where="train")
    data = build(DataConfig, values["data"], where="data")
    dims = Dims(model_dim=model.model_dim, num_heads=model.num_heads, num_layers=model.num_layers, length=data.length)
    backend = choose_backend(
        parsed.variant.spec, train.backend, device="cpu", dtype=train.dtype, dims=dims, config=parsed.mixer
    )
    return RunConfig(
        variant=parsed.variant.key,
        mixer=identity(parsed.mixer),
        model=model,
        train=dataclasses.replace(train, seed=seed, backend=backend),
        data=data,
        fingerprint=SOURCE.fingerprint,
        file_hash=parsed.variant.file_hash,
    )
