"""A model that cheats is a failed run whatever it peeks at; one that is honest but random is not."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.data import Evaluation
from harness.errors import RunFailed
from harness.train.evaluate import ROWS
from harness.train.leaks import refuse_leaks

VOCAB = 24
Fault = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Model(nn.Module):
    """Logits from the mean of what was, altered by a fault."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        self.norm, self.fault, self.calls = nn.BatchNorm1d(16), fault, 0.0

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        y = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return self.out(y if self.fault is None else self.fault(self, y, x))


def following(x: Tensor) -> Tensor:
    return F.pad(x[:, 1:], (0, 0, 0, 1))


def in_chunks(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    """The last position of each chunk of 48 sees the first of the next one."""
    last = (torch.arange(x.shape[1]) % 48 == 47)[:, None]
    return y + following(x) * last


def at_one_position(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + following(x) * (torch.arange(x.shape[1]) == 101)[:, None]


def at_the_end(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + following(x) * (torch.arange(x.shape[1]) == x.shape[1] - 2)[:, None]


def in_training(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + following(x) if self.training else y


def in_long_sequences(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + following(x) if x.shape[1] > 127 else y


def in_batches_of_a_score(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + following(x) if len(x) == ROWS else y


def of_the_mean(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return y + x.mean(0)


def of_the_row_before(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return torch.cat([y[:1], y[1:] + y[:-1]])


def of_the_last_row(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return torch.cat([y[:1] + y[-1:], y[1:]])


def of_the_batch_in_training(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return self.norm(y.transpose(1, 2)).transpose(1, 2)


def dropout(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    y = F.dropout(y, 0.3, training=self.training)
    return y * float(np.random.rand()) * random.random() if self.training else y


def counts_calls(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    self.calls += 1.0
    return y + self.calls


def counts_calls_in_training(self: nn.Module, y: Tensor, x: Tensor) -> Tensor:
    return counts_calls(self, y, x) if self.training else y


def tried(fault: Fault | None, *, length: int = 128, rows: int = 20, dtype: str = "float32") -> str:
    tokens = np.random.default_rng(0).integers(0, VOCAB, size=(rows, length))
    try:
        refuse_leaks(Model(fault), Evaluation(tokens, tokens, tokens), device="cpu", dtype=dtype)
    except RunFailed as failed:
        return f"{failed.status}: {failed.reason}"
    return ""


@pytest.mark.parametrize(
    ("fault", "at", "mode"),
    [
        (in_chunks, 47, "evaluation"),
        (at_one_position, 101, "evaluation"),
        (at_the_end, 126, "evaluation"),
        (in_long_sequences, 0, "evaluation"),
        (in_batches_of_a_score, 0, "evaluation"),
        (in_training, None, "training"),
    ],
)
def test_a_peek_is_found_wherever_it_is(fault: Fault, at: int | None, mode: str) -> None:
    said = tried(fault)
    assert said.startswith("leaks: it sees the future: logits at position ") and said.endswith(f", in {mode} mode")
    assert at is None or said.startswith(
        f"leaks: it sees the future: logits at position {at} depend on tokens from {at + 1} on"
    )


@pytest.mark.parametrize("fault", [in_chunks, in_training, in_long_sequences])
def test_a_peek_is_found_in_a_sequence_too_long_for_every_position(fault: Fault) -> None:
    assert "sees the future" in tried(fault, length=400, rows=3)


@pytest.mark.parametrize("fault", [of_the_mean, of_the_row_before, of_the_last_row, of_the_batch_in_training])
def test_rows_that_see_each_other_are_no_peek(fault: Fault) -> None:
    mode = "training" if fault is of_the_batch_in_training else "evaluation"
    said = "leaks: rows of a batch see each other: logits at position 0 depend on another row"
    assert tried(fault) == f"{said}, in {mode} mode"


@pytest.mark.parametrize("fault", [None, dropout, counts_calls_in_training])
@pytest.mark.parametrize("length", [2, 17, 128])
def test_an_honest_model_passes_though_its_training_is_random(fault: Fault | None, length: int) -> None:
    assert tried(fault, length=length, rows=1) == tried(fault, length=length, dtype="bfloat16") == ""


def test_logits_that_change_by_themselves_are_said_to() -> None:
    assert tried(counts_calls) == "leaks: the same tokens give other logits from call to call"


def test_the_test_leaves_random_streams_buffers_and_mode_as_they_were() -> None:
    model = Model(lambda self, y, x: self.norm(y.transpose(1, 2)).transpose(1, 2) * 0 + y + np.random.rand() * 0)
    tokens = np.random.default_rng(0).integers(0, VOCAB, size=(16, 20))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    mean, count = model.norm.running_mean.clone(), int(model.norm.num_batches_tracked)
    model.eval()
    refuse_leaks(model, Evaluation(tokens, tokens, tokens), device="cpu", dtype="float32")
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert torch.equal(model.norm.running_mean, mean) and int(model.norm.num_batches_tracked) == count
    assert not model.training
