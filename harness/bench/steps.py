"""Cases of the training step: the harness, a bare loop over the same model and batches, bfloat16, a peer's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.bench import peers
from harness.bench.case import Case, Group
from harness.config import RunConfig
from harness.cost import run_cost
from harness.data import Source
from harness.experiment import Request, plan
from harness.model import initialise
from harness.train import build_model, step_function
from harness.train.build import optimiser

PRESET = "small"
BATCHES = 8
VARIANTS = ("softmax", "lazy", "mamba")


def groups(device: str, *, threads: int) -> list[Group]:
    """One group: the step of some variants beside softmax, softmax beside a bare loop, bfloat16 and Llama.

    Args:
        device: `cpu` or `cuda`.
        threads: of the process.
    """
    request = Request(
        name="bench",
        arms=VARIANTS,
        seeds=1,
        preset=PRESET,
        sets={"train.device": device, "train.threads": str(threads)},
    )
    planned = plan(request, cuda=device == "cuda")
    source, runs = planned.source, {arm.label: arm.runs[0] for arm in planned.arms}
    softmax = runs["softmax"]
    cases = [_harness(name, run, source) for name, run in runs.items()]
    pairs = [(index, 0) for index in range(len(cases))]
    cases.append(_bare("bare loop", softmax, source))
    pairs += [(0, len(cases) - 1), (len(cases) - 1, 0)]
    if narrow(device):
        run = dataclasses.replace(softmax, train=dataclasses.replace(softmax.train, dtype="bfloat16"))
        cases.append(_harness("softmax", run, source))
        pairs.append((len(cases) - 1, 0))
    if peers.missing("transformers") is None:
        cases.append(_llama(softmax, source))
        pairs += [(0, len(cases) - 1), (len(cases) - 1, 0)]
    return [Group(cases, pairs)]


def narrow(device: str) -> bool:
    """Whether the device multiplies bfloat16 in hardware."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _shape(run: RunConfig) -> str:
    model = run.model
    return f"B{run.train.batch_size} T{run.data.length} M{model.model_dim} L{model.num_layers}"


def _harness(name: str, run: RunConfig, source: Source) -> Case:
    tokens = run.train.batch_size * run.data.length
    return Case(
        name=name,
        shape=_shape(run),
        dtype=run.train.dtype,
        part="step",
        backend=run.train.backend,
        make=lambda: step_function(run, source),
        flops=tokens * run_cost(run, source.vocab_size).training,
    )


def _bare(name: str, run: RunConfig, source: Source) -> Case:
    def make() -> Callable[[], Any]:
        model = build_model(run, vocab_size=source.vocab_size)
        initialise(model, seed=0, std=run.model.init_std)
        return loop(model, model, optimiser(model, run.train), run, source)

    return Case(name=name, shape=_shape(run), dtype="float32", part="step", backend=run.train.backend, make=make)


def _llama(run: RunConfig, source: Source) -> Case:
    def make() -> Callable[[], Any]:
        model, logits = peers.llama(
            model_dim=run.model.model_dim,
            layers=run.model.num_layers,
            heads=run.model.num_heads,
            mlp_dim=run.model.mlp_dim,
            vocab_size=source.vocab_size,
            length=run.data.length,
            device=run.train.device,
        )
        return loop(model, logits, optimiser(model, run.train), run, source)

    return Case(name="Llama", shape=_shape(run), dtype="float32", part="step", backend="transformers", make=make)


def loop(
    model: nn.Module, logits: Callable[[Tensor], Tensor], optim: torch.optim.Optimizer, run: RunConfig, source: Source
) -> Callable[[], Any]:
    """A step of the shortest loop that trains: batches at hand, loss, gradient, clip, AdamW."""
    drawn = [
        source.training_batch(seed=0, step=step, rows=run.train.batch_size, length=run.data.length)
        for step in range(BATCHES)
    ]
    batches = [tuple(torch.from_numpy(x).to(run.train.device) for x in (b.inputs, b.targets)) for b in drawn]
    at = iter(range(10**9))

    def step() -> float:
        inputs, targets = batches[next(at) % BATCHES]
        optim.zero_grad()
        loss = F.cross_entropy(logits(inputs).float().flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), run.train.clip)
        optim.step()
        return loss.item()

    return step
