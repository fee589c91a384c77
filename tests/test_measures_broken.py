"""What is no number, and what breaks while it is looked at: said of that measure, and of no other thing."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import environment, measures
from harness.errors import DataError
from harness.measures import extrapolation, scalars
from harness.measures.finding import NotDefinedError
from harness.records import Store
from harness.train import Moment, build_model, train
from tests import tiny
from variants import lazy


def poison(model: Any) -> None:
    """Puts keys and outputs out of the numbers; of keys alone torch's fused kernel may make zeros."""
    with torch.no_grad():
        for projection in (model.layers[0].mixer.k, model.layers[0].mixer.o):
            projection.weight.fill_(float("nan"))


def poison_late(moment: Moment) -> None:
    """The same after the third step."""
    if moment.step == 3:
        poison(moment.model)


def test_a_look_at_weights_that_are_no_number_leaves_the_run_diverged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    watch = measures.Watch(store, tiny.SOURCE, 1, "code")
    outcome = train(tiny.run("lazy"), tiny.SOURCE, callbacks=[poison_late, watch])
    assert (outcome.status, "step 4" in str(outcome.error)) == ("diverged", True)
    last = {record.measure: record.values for record in store.all_measurements() if record.step == 3}
    assert set(last) == set(measures.WHILE_TRAINING)
    defined = {name for name, values in last.items() if "not_defined" not in values}
    # The table and tau are numbers still: it is the keys that are not.
    assert defined == {"scalars"}
    assert all("not finite" in last[name]["not_defined"] for name in last.keys() - defined)


def test_no_share_of_maps_that_are_no_number_is_taken_for_no_sink() -> None:
    run = tiny.run("softmax")
    model = build_model(run, vocab_size=16)
    poison(model)
    found = measures.measure(model, run, tiny.SOURCE, measures.NAMES)
    assert all("not finite" in found[name].values["not_defined"] for name in measures.NAMES if name != "scalars")
    assert "sink_1_percent" not in found["sink"].values


def test_keys_of_length_nought_are_measured_without_a_warning() -> None:
    run = tiny.run("softmax")
    model = build_model(run, vocab_size=16)
    with torch.no_grad():
        model.layers[0].mixer.k.weight.zero_()  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = measures.measure(model, run, tiny.SOURCE, ["scale"])["scale"].values
    assert values["score_range"] == 0 and np.isnan(values["first_k_norm_over_rest"])


def test_what_breaks_in_a_mixer_that_is_looked_at_costs_neither_the_run_nor_other_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("boom\nat length")

    monkeypatch.setattr(lazy.Layer, "scalars", broken)
    store = Store(tmp_path)
    outcome = train(tiny.run("lazy"), tiny.SOURCE, callbacks=[measures.Watch(store, tiny.SOURCE, 6, "code")])
    assert outcome.status == "ok"
    found = {record.measure: record.values for record in store.all_measurements()}
    assert found["scalars"]["not_defined"] == "it failed: RuntimeError: boom" and found["scalars"]["failed"]
    assert not any("not_defined" in values for name, values in found.items() if name != "scalars")


def test_a_look_that_breaks_as_a_whole_costs_the_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise SystemExit("gone")

    monkeypatch.setattr(measures.suite, "look", broken)
    monkeypatch.setattr(measures.suite, "_probe", broken)
    store = Store(tmp_path)
    outcome = train(tiny.run("lazy"), tiny.SOURCE, callbacks=[measures.Watch(store, tiny.SOURCE, 6, "code")])
    assert outcome.status == "ok"
    assert all("SystemExit: gone" in record.values["not_defined"] for record in store.all_measurements())


def test_a_look_that_is_taken_again_after_a_kill_stands_once(tmp_path: Path) -> None:
    run, store = tiny.run("lazy"), Store(tmp_path)
    for _ in range(2):
        train(run, tiny.SOURCE, callbacks=[measures.Watch(store, tiny.SOURCE, 3, "code")])
    assert len(store.all_measurements()) == 2 * len(measures.WHILE_TRAINING)


def test_a_measurement_names_the_code_of_the_run_and_the_code_that_looked(tmp_path: Path) -> None:
    run, store = tiny.run("softmax"), Store(tmp_path)
    found = measures.measure(build_model(run, vocab_size=16), run, tiny.SOURCE, ["collapse"])
    now = environment.code_hash("softmax")
    measures.write(store, run.id, 6, found, code_hash="of the run", measuring=now)
    [record] = store.all_measurements()
    assert record.values["code_hash"] == "of the run" and record.measured_by is not None
    assert record.measured_by["code"] == now and len(record.measured_by["measures"]) == 64


def test_a_split_too_small_for_longer_sequences_says_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(tiny.Letters):
        def evaluation(self, split: str, *, length: int, tokens: int) -> Any:
            if tokens > 1000:
                raise DataError("the report split has 1,000 tokens; use a longer text, or lower data.report_tokens")
            return super().evaluation(split, length=length, tokens=tokens)

    run = tiny.run("softmax")
    with pytest.raises(NotDefinedError) as caught:
        extrapolation.measure(build_model(run, vocab_size=16), run, Small())
    said = str(caught.value)
    assert "has 1,000 tokens" in said and "16 x 8 x data.length = 1,536 tokens" in said
    assert "--data" in said and "report_tokens" not in said


class Numbers(torch.nn.Module):
    """A layer's mixer that declares what it is given."""

    def __init__(self, **found: Any) -> None:
        super().__init__()
        self.found = found

    def scalars(self) -> dict[str, Any]:
        return self.found


def declared(*layers: Any) -> Any:
    class Model:
        layers = ()

    @dataclasses.dataclass
    class Block:
        mixer: Any

    model = Model()
    model.layers = tuple(Block(Numbers(**found)) for found in layers)  # type: ignore[assignment]
    return scalars.measure(model)  # type: ignore[arg-type]


def test_scalars_of_any_shape_are_put_side_by_side_or_say_why_not() -> None:
    heads, table = torch.tensor([1.0, 3.0]), torch.zeros(2, 3)
    gate = torch.nn.Parameter(torch.tensor(0.5))
    gate.grad = torch.tensor(-2.0)
    found = declared(
        {"heads": heads, "table": table, "gate": gate, "late": heads, "uneven": heads},
        {"heads": heads + 1, "table": table, "gate": gate, "uneven": table},
        {"heads": heads, "table": torch.full((2, 3), float("inf")), "gate": gate, "uneven": heads},
    )
    values, arrays = found.values, found.arrays
    assert values["names"] == ["heads", "table", "gate", "late", "uneven"]
    assert (arrays["heads"].shape, arrays["gate"].shape, arrays["late"].shape) == ((3, 2), (3, 1), (1, 2))
    assert values["late_layers"] == [1] and values["heads_largest"] == 4
    assert values["table"] == "not defined: not finite" and "not the same in each layer" in values["uneven"]
    assert arrays["gate_gradient"].tolist() == [[-2], [-2], [-2]] and "heads_gradient" not in arrays
