"""The loop: batches by step, AdamW, a curve on the selection split, the loss of the last step on the report split."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.config import RunConfig
from harness.data import IGNORED, Source
from harness.errors import RunFailed
from harness.model import Decoder, seed_everything
from harness.train import checkpoint as files
from harness.train.build import build_model, optimiser, rate
from harness.train.evaluate import evaluate, precision
from harness.train.leaks import refuse_leaks
from harness.train.memory import keep_freed_memory

SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class Moment:
    """What a callback sees after each step.

    Args:
        step: steps done, from 1.
        steps: steps of the run.
        loss: training loss of this step in nats per token.
        model: the model as it is now.
        run: the run's config.
        selection_loss_nats: loss on the selection split, at the points of the curve alone.
    """

    step: int
    steps: int
    loss: float
    model: nn.Module
    run: RunConfig
    selection_loss_nats: float | None = None


@dataclass
class Outcome:
    """How a run ended.

    Args:
        status: `ok`, `stopped` by a callback, or the status of its failure.
        error: one line about the failure.
        metrics: report-split metrics of the last step, units in their names; empty for a run that broke off.
        curve: points with `step`, `train_loss_nats` (mean since the last point) and `selection_loss_nats`.
        parameters: trained numbers of the model.
        seconds: spent in the loop, over all its restarts.
        model: the trained model.
    """

    status: str = "ok"
    error: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    parameters: int = 0
    seconds: float = 0.0
    model: Decoder | None = None


Callback = Callable[[Moment], "bool | None"]
"""Called after each step; a true answer ends the run there."""


def train(
    run: RunConfig,
    source: Source,
    *,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    code: str = "",
    report: bool = True,
) -> Outcome:
    """Train one run, or go on with one that was killed: both end in the same bits.

    Args:
        run: resolved config.
        source: its data.
        callbacks: called after each step, in order.
        checkpoint: file that keeps the run's state; it is removed by whoever has recorded the outcome.
        code: hash of the code that decides numbers; a checkpoint of other code is not continued.
        report: score the report split at the end; a search must not see it.

    Returns:
        The outcome. A loss that is not finite, or that ends above the uniform one, is `diverged`; a model that sees
        later tokens or other rows `leaks`.
    """
    config = run.train
    torch.set_num_threads(config.threads)
    keep_freed_memory()
    model = build_model(run, vocab_size=source.vocab_size)
    seed_everything("training", config.seed)
    outcome = Outcome(parameters=sum(parameter.numel() for parameter in model.parameters()), model=model)
    state = _Loop(run, source, model, optimiser(model, config))
    started = time.monotonic()
    key = f"{run.id}:{code}"
    if checkpoint is not None:
        state.restore(files.load(checkpoint, key=key, model=model, optimiser=state.optimiser))
    before = state.seconds
    saved = started
    try:
        while state.step < config.steps:
            loss = state.advance()
            now = time.monotonic()
            state.seconds = before + now - started
            point = state.curve[-1]["selection_loss_nats"] if state.step in state.marks else None
            moment = Moment(state.step, config.steps, loss, model, run, point)
            answers = [callback(moment) for callback in callbacks]
            if any(answers):
                outcome.status = "stopped"
                break
            if checkpoint is not None and now - saved > SECONDS_BETWEEN_CHECKPOINTS:
                files.save(checkpoint, key=key, model=model, optimiser=state.optimiser, progress=state.progress())
                saved = time.monotonic()
        if outcome.status == "ok":
            refuse_leaks(model, state.selection, device=config.device, dtype=config.dtype)
        if outcome.status == "ok" and report:
            _report(run, source, model, outcome)
        elif outcome.status == "ok":
            _refuse_useless(state.curve[-1]["selection_loss_nats"], source)
    except RunFailed as failure:
        outcome.status, outcome.error = failure.status, failure.reason
    outcome.curve, outcome.seconds = state.curve, before + time.monotonic() - started
    return outcome


def step_function(run: RunConfig, source: Source) -> Callable[[], float]:
    """A function that does one training step of a run and nothing else, for whoever times it.

    Returns:
        The function; it gives the training loss in nats per token.
    """
    torch.set_num_threads(run.train.threads)
    keep_freed_memory()
    # One point at a step that is never reached: no evaluation falls into a step.
    endless = replace(run, train=replace(run.train, steps=1_000_000), data=replace(run.data, curve_points=1))
    model = build_model(endless, vocab_size=source.vocab_size)
    return _Loop(endless, source, model, optimiser(model, endless.train)).advance


def _report(run: RunConfig, source: Source, model: nn.Module, outcome: Outcome) -> None:
    data = source.evaluation("report", length=run.data.length, tokens=run.data.report_tokens)
    score = evaluate(model, data, device=run.train.device, dtype=run.train.dtype)
    groups = {f"{name}_loss_nats": nats for name, nats in score.groups.items()}
    outcome.metrics = {"val_loss_nats": score.nats, "val_bits_per_byte": score.bits_per_byte, **groups}
    _refuse_useless(score.nats, source)


def _refuse_useless(nats: float, source: Source) -> None:
    uniform = math.log(source.vocab_size)
    if not nats <= uniform:
        raise RunFailed("diverged", f"the last loss, {nats:.4g}, lies above the uniform one, {uniform:.4g}")


class _Loop:
    """State of a run between two steps."""

    def __init__(self, run: RunConfig, source: Source, model: Decoder, optim: torch.optim.Optimizer) -> None:
        self.run, self.source, self.model, self.optimiser = run, source, model, optim
        self.forward: Any = torch.compile(model) if run.train.compile else model
        points = run.data.curve_points
        self.marks = {round(run.train.steps * (point + 1) / points) for point in range(points)}
        self.selection = source.evaluation("selection", length=run.data.length, tokens=run.data.curve_tokens)
        self.step = 0
        self.curve: list[dict[str, float]] = []
        self.recent: list[float] = []
        self.seconds = 0.0

    def progress(self) -> dict[str, Any]:
        """What a checkpoint keeps of the loop."""
        return {"step": self.step, "curve": self.curve, "recent": self.recent, "seconds": self.seconds}

    def restore(self, progress: dict[str, Any] | None) -> None:
        """Go on from what `progress` gave."""
        if progress is not None:
            self.step, self.curve = progress["step"], progress["curve"]
            self.recent, self.seconds = progress["recent"], progress["seconds"]

    def advance(self) -> float:
        """One optimiser step; its training loss.

        Raises:
            RunFailed: the loss or the gradient is not finite.
        """
        config, data = self.run.train, self.run.data
        batch = self.source.training_batch(seed=config.seed, step=self.step, rows=config.batch_size, length=data.length)
        inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        inputs, targets = inputs.to(config.device), targets.to(config.device)
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.step, config)
        self.optimiser.zero_grad()
        loss = self._backward(inputs, targets)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        if not math.isfinite(loss) or not math.isfinite(float(norm)):
            raise RunFailed("diverged", self._where(inputs, loss))
        self.optimiser.step()
        self.step += 1
        self.recent.append(loss)
        if self.step in self.marks:
            self._mark()
        return loss

    def _backward(self, inputs: Tensor, targets: Tensor) -> float:
        config = self.run.train
        scored = int((targets != IGNORED).sum())
        total = 0.0
        rows = len(inputs) // config.accumulate
        for start in range(0, len(inputs), rows):
            part = slice(start, start + rows)
            with precision(config.device, config.dtype):
                logits = self.forward(inputs[part])
            # Sums over one count make the micro-batches add up to the mean of the whole batch.
            loss = (
                F.cross_entropy(
                    logits.float().flatten(0, 1), targets[part].flatten(), ignore_index=IGNORED, reduction="sum"
                )
                / scored
            )
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def _mark(self) -> None:
        score = evaluate(self.model, self.selection, device=self.run.train.device, dtype=self.run.train.dtype)
        self.curve.append(
            {
                "step": self.step,
                "train_loss_nats": sum(self.recent) / len(self.recent),
                "selection_loss_nats": score.nats,
            }
        )
        self.recent = []

    @torch.no_grad()
    def _where(self, inputs: Tensor, loss: float) -> str:
        """The step, and the first module whose output or gradient is not finite."""
        step = f"step {self.step + 1}"
        if math.isfinite(loss):
            names = (
                name
                for name, parameter in self.model.named_parameters()
                if parameter.grad is not None and not parameter.grad.isfinite().all()
            )
            return f"the gradient is not finite at {step}, first in {next(names, 'none alone, but their norm')}"
        first: list[str] = []

        def watch(name: str) -> Any:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                if isinstance(output, Tensor) and not output.isfinite().all():
                    first.append(name)

            return hook

        hooks = [module.register_forward_hook(watch(name)) for name, module in self.model.named_modules() if name]
        try:
            self.model(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return f"the loss is {loss} at {step}, first in {first[0] if first else 'the loss itself'}"
