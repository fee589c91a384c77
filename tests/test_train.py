from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness import registry
from harness.arms import parse
from harness.model import initialise
from harness.train import Moment, build_model, load_weights, save_weights, train
from harness.train import loop as loop_module
from harness.train.build import optimiser, rate
from harness.train.evaluate import evaluate
from tests.tiny import SOURCE, run


class _Killed(Exception):
    pass


def _result(outcome: Any) -> Any:
    return outcome.metrics, outcome.curve, outcome.status


def _weights(outcome: Any) -> dict[str, torch.Tensor]:
    return dict(outcome.model.named_parameters())


def test_the_same_run_twice_gives_the_same_bits() -> None:
    assert _result(train(run("lazy"), SOURCE)) == _result(train(run("lazy"), SOURCE))


def test_another_seed_gives_another_result() -> None:
    assert train(run(), SOURCE).metrics != train(run(seed=1), SOURCE).metrics


def test_training_lowers_the_loss_below_the_uniform_one() -> None:
    outcome = train(run(train__steps=60, train__learning_rate=0.03), SOURCE)
    assert outcome.metrics["val_loss_nats"] < 0.6 * math.log(SOURCE.vocab_size)
    assert outcome.status == "ok"


@pytest.mark.parametrize("arm", sorted(registry.shipped()))
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_run_killed_after_any_step_ends_in_the_same_bits(
    arm: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    whole = train(run(arm), SOURCE)

    def die(moment: Moment) -> None:
        if moment.step == stop:
            raise _Killed

    with pytest.raises(_Killed):
        train(run(arm), SOURCE, callbacks=[die], checkpoint=tmp_path / "c.pt")
    steps: list[int] = []
    resumed = train(run(arm), SOURCE, callbacks=[lambda m: steps.append(m.step)], checkpoint=tmp_path / "c.pt")
    # The kill came before step `stop` was saved: the last checkpoint is one step older.
    assert steps[0] == stop
    assert _result(resumed) == _result(whole)
    assert all(torch.equal(value, _weights(whole)[name]) for name, value in _weights(resumed).items())


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 torn"])
def test_a_foreign_checkpoint_is_not_continued(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(content)
    assert _result(train(run(), SOURCE, checkpoint=tmp_path / "c.pt")) == _result(train(run(), SOURCE))


def test_a_checkpoint_of_other_code_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    train(run(), SOURCE, checkpoint=tmp_path / "c.pt", code="old")
    steps: list[int] = []
    train(run(), SOURCE, callbacks=[lambda m: steps.append(m.step)], checkpoint=tmp_path / "c.pt", code="new")
    assert steps[0] == 1


def test_dropout_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    file = tmp_path / "noisy.py"
    file.write_text(
        "import torch\nfrom dataclasses import dataclass\nfrom torch import nn\nfrom harness.spec import MixerSpec\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Config:\n    rate: float = 0.5\n"
        "class Layer(nn.Module):\n"
        "    def __init__(self, dims, config, *, layer_index, core):\n"
        "        super().__init__()\n        self.lin = nn.Linear(dims.model_dim, dims.model_dim)\n"
        "        self.drop = nn.Dropout(config.rate)\n"
        "        self.register_buffer('seen', torch.zeros(()), persistent=False)\n"
        "    def forward(self, x, shared):\n"
        "        if self.training: self.seen += 1\n"
        "        return self.drop(self.lin(x)) * (1 + self.seen / 100)\n"
        "SPEC = MixerSpec(name='noisy', Config=Config, Layer=Layer)\n"
    )

    def die(moment: Moment) -> None:
        if moment.step == 3:
            raise _Killed

    whole = train(run(str(file)), SOURCE)
    with pytest.raises(_Killed):
        train(run(str(file)), SOURCE, callbacks=[die], checkpoint=tmp_path / "c.pt")
    assert _result(train(run(str(file)), SOURCE, checkpoint=tmp_path / "c.pt")) == _result(whole)


@pytest.mark.parametrize(
    ("arm", "equals"),
    [(arm, equals) for variant in registry.shipped().values() for arm, equals in variant.spec.identities.items()],
)
def test_a_switched_off_variant_trains_to_the_bits_of_what_it_equals(arm: str, equals: str) -> None:
    mine, theirs = train(run(arm), SOURCE), train(run(equals), SOURCE)
    assert _result(mine) == _result(theirs)
    others = _weights(theirs)
    assert all(torch.equal(value, others[name]) for name, value in _weights(mine).items())


def test_initial_values_depend_on_the_name_and_not_on_the_order_of_drawing() -> None:
    plain = build_model(run("softmax"), vocab_size=16)
    lazy = build_model(run("lazy[bias_std=0.1]"), vocab_size=16)
    shared = dict(lazy.named_parameters())
    assert len(shared) > len(dict(plain.named_parameters()))
    for name, value in plain.named_parameters():
        assert torch.equal(value, shared[name]), name


def test_no_two_matrices_start_alike() -> None:
    model = build_model(run(model__num_layers=2), vocab_size=16)
    starts = [value.flatten()[:8] for value in model.parameters() if value.ndim == 2]
    assert len({tuple(start.tolist()) for start in starts}) == len(starts)


def test_modules_with_their_own_reset_are_keyed_by_name() -> None:
    first = nn.ModuleDict({"conv": nn.Conv1d(4, 4, 3)})
    second = nn.ModuleDict({"extra": nn.Conv1d(4, 4, 3), "conv": nn.Conv1d(4, 4, 3)})
    initialise(first, seed=3, std=None)
    initialise(second, seed=3, std=None)
    assert torch.equal(first["conv"].weight, second["conv"].weight)
    assert not torch.equal(second["conv"].weight, second["extra"].weight)


def test_accumulated_micro_batches_equal_the_large_batch() -> None:
    large = train(run(data__curve_points=1), SOURCE)
    small = train(run(data__curve_points=1, train__accumulate=4), SOURCE)
    for name, value in _weights(small).items():
        torch.testing.assert_close(value, _weights(large)[name], rtol=1e-4, atol=1e-6)


def test_the_first_step_runs_at_a_part_of_the_rate_and_the_last_at_its_floor() -> None:
    config = run(train__steps=100, train__warmup=0.1, train__final_rate=0.1, train__learning_rate=1e-2).train
    rates = [rate(step, config) for step in range(100)]
    assert rates[0] == pytest.approx(1e-3)
    assert max(rates) == pytest.approx(1e-2)
    assert rates[-1] == pytest.approx(1e-3)
    assert rates[10:] == sorted(rates[10:], reverse=True)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("warmup", [0.0, 0.5, 1.0])
def test_the_rate_is_positive_in_the_shortest_runs(steps: int, warmup: float) -> None:
    config = run(train__steps=steps, train__warmup=warmup).train
    assert all(0 < rate(step, config) <= config.learning_rate for step in range(steps))


def test_decay_acts_on_matrices_alone_and_never_on_tau_or_the_table() -> None:
    model = build_model(run("lazy"), vocab_size=16)
    decayed, free = optimiser(model, run().train).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert decayed["weight_decay"] > 0 and free["weight_decay"] == 0
    assert {"layers.0.mixer.tau", "layers.0.mixer.bias"} <= {names[id(parameter)] for parameter in free["params"]}
    assert all(parameter.ndim == 2 for parameter in decayed["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(names)


def test_tau_and_the_table_stay_float32_under_autocast() -> None:
    outcome = train(run("lazy", train__dtype="bfloat16"), SOURCE)
    assert {str(value.dtype) for value in _weights(outcome).values()} == {"torch.float32"}


def test_a_score_does_not_depend_on_the_training_batch() -> None:
    data = SOURCE.evaluation("report", length=12, tokens=96)
    model = build_model(run(), vocab_size=16)
    assert evaluate(model, data, device="cpu", dtype="float32") == evaluate(model, data, device="cpu", dtype="float32")
    assert run(train__batch_size=2).data == run().data


def test_bits_per_byte_are_nats_over_ln_2_over_bytes() -> None:
    outcome = train(run(), SOURCE)
    assert outcome.metrics["val_bits_per_byte"] == pytest.approx(outcome.metrics["val_loss_nats"] / math.log(2))


def test_a_rate_far_too_high_is_diverged_and_says_where() -> None:
    outcome = train(run(train__learning_rate=1e3, train__steps=40), SOURCE)
    assert outcome.status == "diverged"
    assert outcome.error


def test_a_loss_that_is_not_finite_names_step_and_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = parse("softmax").variant.spec.Layer
    whole = layer.forward

    def poisoned(self: Any, x: torch.Tensor, shared: dict[str, Any]) -> torch.Tensor:
        shared["calls"] = shared.get("calls", 0) + 1
        return whole(self, x, shared) * (float("nan") if shared["calls"] == 2 else 1.0)

    monkeypatch.setattr(layer, "forward", poisoned)
    outcome = train(run(model__num_layers=2), SOURCE)
    assert outcome.status == "diverged"
    assert outcome.error is not None and "step 1" in outcome.error and "layers.1.mixer" in outcome.error


def test_the_curve_ends_at_the_last_step_and_the_loss_is_the_last_not_the_best() -> None:
    outcome = train(run(train__steps=7), SOURCE)
    assert [point["step"] for point in outcome.curve] == [2, 5, 7]
    report = SOURCE.evaluation("report", length=12, tokens=96)
    last = evaluate(outcome.model, report, device="cpu", dtype="float32")  # type: ignore[arg-type]
    assert outcome.metrics["val_loss_nats"] == last.nats


@pytest.mark.parametrize("tied", [False, True])
def test_weights_come_back_as_they_were(tied: bool, tmp_path: Path) -> None:
    config = run("lazy", model__tie_embeddings=tied)
    trained = train(config, SOURCE).model
    assert trained is not None
    save_weights(tmp_path / "w.safetensors", trained)
    fresh = build_model(config, vocab_size=16)
    load_weights(tmp_path / "w.safetensors", fresh)
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), fresh.parameters(), strict=True))


@pytest.mark.parametrize("positions", ["none", "learned"])
def test_the_model_decodes_token_by_token_to_the_logits_of_the_parallel_pass(positions: str) -> None:
    model = build_model(run("lazy", model__positions=positions, model__num_layers=2), vocab_size=16).eval()
    tokens = torch.from_numpy(SOURCE.evaluation("report", length=12, tokens=24).inputs)
    states, steps = None, []
    with torch.no_grad():
        for position in range(12):
            logits, states = model.step(tokens[:, position : position + 1], states, position)
            steps.append(logits)
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens), rtol=1e-4, atol=1e-5)


def test_a_mixer_of_the_wrong_shape_is_refused_even_where_it_would_broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = parse("softmax").variant.spec.Layer
    monkeypatch.setattr(layer, "forward", lambda self, x, shared: x[:, :1])
    with pytest.raises(ValueError, match="same shape"):
        train(run(), SOURCE)
