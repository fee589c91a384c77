"""Arms of equal size, equal budgets, and hybrids: solved as data, then seen in the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from harness import environment, report
from harness.commands.experiments import prepare
from harness.cost import MATCHES, matched, model_cost, run_cost
from harness.equal import tokens
from harness.errors import RecordError, UsageError
from harness.experiment import Plan, Request, plan
from harness.records import Store
from harness.registry import shipped
from harness.report.sizes import size_lines, size_warnings, unmatched
from harness.train import build_model, mixers, train
from tests import cli, fakes, tiny
from tests.test_check import write

SETS = {"model.num_layers": "2", "model.model_dim": "32", "model.mlp_dim": "88", "data.length": "32",
        "data.report_tokens": "64", "data.curve_tokens": "64", "train.steps": "40", "train.device": "cpu"}  # fmt: skip
SIX = ("softmax", "flash", "sigmoid", "stick_breaking", "mamba", "lazy")


def planned(folder: Path, *arms: str, sets: dict[str, str] | None = None, **more: Any) -> Plan:
    data = {"data.corpus": str(cli.text(folder))}
    return plan(Request(name="x", arms=arms, sets={**SETS, **data, **(sets or {})}, seeds=2, **more), cuda=False)


def costs(found: Plan) -> dict[str, dict[str, float]]:
    return found.settings["costs"]


def live(run: Any, vocab_size: int) -> int:
    return sum(parameter.numel() for parameter in build_model(run, vocab_size=vocab_size).parameters())


@pytest.mark.parametrize("variant", sorted(shipped()))
@pytest.mark.parametrize("sets", [{}, {"model__positions": "learned"}, {"model__tie_embeddings": True}])
def test_a_models_parameters_are_those_of_the_live_model(variant: str, sets: dict[str, Any]) -> None:
    run = tiny.run(variant, **sets)
    assert run_cost(run, tiny.SOURCE.vocab_size).parameters == live(run, tiny.SOURCE.vocab_size)


def test_a_models_products_are_those_torch_counts_around_its_mixers() -> None:
    run = tiny.run("mamba", model__num_layers=2, train__backend="reference")
    model, length = build_model(run, vocab_size=16), run.data.length
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, length, dtype=torch.long))
    # Its mixers have no pairs, and the scan no products: the counter sees all there is.
    layers = [(mixer.spec, mixer.config) for mixer in mixers(run)]
    cost = model_cost(run.model, layers, vocab_size=16, length=length)
    assert counter.get_total_flops() == length * cost.forward.products


def test_every_family_meets_the_baselines_parameters(tmp_path: Path) -> None:
    found = planned(tmp_path, *SIX, match="parameters")
    counts = [live(arm.runs[0], found.source.vocab_size) for arm in found.arms]
    assert max(abs(count / counts[0] - 1) for count in counts) < 0.01
    assert [costs(found)[arm.label]["parameters"] for arm in found.arms] == counts
    assert found.arms[0].runs[0].model.mlp_dim == 88 and len({arm.runs[0].model.mlp_dim for arm in found.arms}) > 1


def test_every_family_meets_the_baselines_flops(tmp_path: Path) -> None:
    found = planned(tmp_path, *SIX, match="flops", baseline="mamba", sets={"model.mlp_dim": "200"})
    flops = {label: cost["training_flops"] for label, cost in costs(found).items()}
    assert max(abs(value / flops["mamba"] - 1) for value in flops.values()) < 0.01


@settings(max_examples=30)
@given(width=st.integers(1, 2000), target=st.integers(40, 3000), on=st.sampled_from(["parameters", "flops"]))
def test_the_solver_finds_the_nearest_width(width: int, target: int, on: str) -> None:
    goal = run_cost(tiny.run("softmax", model__mlp_dim=target), 16)
    run = matched(tiny.run("lazy[bias_length=4]", model__mlp_dim=width), goal, on=on, vocab_size=16, label="lazy")

    def off(hidden: int) -> float:
        other = dataclasses.replace(run, model=dataclasses.replace(run.model, mlp_dim=hidden))
        return abs(MATCHES[on](run_cost(other, 16)) - MATCHES[on](goal))

    best = run.model.mlp_dim
    assert off(best) <= min(off(best + 1), off(max(1, best - 1)))


def test_a_state_is_met_by_the_declared_knob_alone_then_parameters_by_the_width(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax[window=8]", "mamba[expand=1]", "lazy", match="state")
    by_label = {arm.label: arm for arm in found.arms}
    state = {label: cost["state_bytes"] for label, cost in costs(found).items()}
    # 2 layers of 8 keys and values of 32 numbers; a state of Mamba's is 32 channels of N and 3 taps.
    assert state["softmax[window=8]"] == 2 * 4 * 2 * 8 * 32
    assert by_label["mamba[expand=1]"].arm.mixer.state == 13 and state["mamba[expand=1]"] == 2 * 4 * 32 * (13 + 3)
    # One key and value head of four: a quarter of the cache of 32 tokens.
    assert by_label["lazy"].arm.mixer.kv_heads == 1 and state["lazy"] == 2 * 4 * 2 * 32 * 8
    parameters = {label: cost["parameters"] for label, cost in costs(found).items()}
    assert all(abs(count / parameters["softmax[window=8]"] - 1) < 0.01 for count in parameters.values())


def test_a_window_meets_the_state_of_a_recurrent_mixer(tmp_path: Path) -> None:
    found = planned(tmp_path, "mamba", "softmax", match="state")
    # 64 channels of 16 states and 3 taps are 19 keys and values of 32 numbers.
    assert found.arms[1].arm.mixer.window == 19
    assert costs(found)["softmax"]["state_bytes"] == costs(found)["mamba"]["state_bytes"]
    assert found.arms[1].runs[0].mixer["window"] == 19


def test_a_state_out_of_reach_is_marked_unmatched_and_stays(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax[window=3]", "lazy", match="state")
    index = found.file()
    assert found.arms[1].arm.mixer.kv_heads == 1
    assert unmatched(index) == {"lazy"}
    (warning,) = size_warnings(index)
    assert "lazy +166.7 % bytes of state" in warning
    assert any("bytes of state within 167 % of softmax[window=3]" in line for line in size_lines(index))


WRONG = {
    "no width": (("softmax", "mamba[expand=9]"), {"match": "parameters"}, "no width can meet that"),
    "no width for flops": (("softmax", "mamba[expand=9]"), {"match": "flops"}, "no width can meet that"),
    "unknown match": (("softmax", "lazy"), {"match": "paramters"}, "did you mean 'parameters'"),
    "unknown budget": (("softmax", "lazy"), {"budget": "steps"}, "seconds"),
    "a width of its own": (("softmax", "lazy[model.mlp_dim=9]"), {"match": "flops"}, "moves model.mlp_dim"),
    "a state of its own": (("softmax", "mamba[state=4]"), {"match": "state"}, "moves state"),
    "mixed tokens": (("softmax", "lazy[train.steps=50]"), {}, "different numbers of tokens"),
    "steps of its own": (("softmax", "lazy[train.steps=50]"), {"budget": "flops"}, "leave its train.steps out"),
    "unmeasured": (("softmax", "lazy"), {"budget": "seconds"}, "not measured here"),
    "pattern of others": (("mamba[model.pattern=lazy,softmax]",), {}, "does not hold mamba"),
    "pattern of a stranger": (("lazy[model.pattern=lazy,sofmax]",), {}, "did you mean 'softmax'"),
    "pattern of an alias": (("lazy[model.pattern=lazy,flash]",), {}, "write softmax"),
    "pattern too long": (("lazy[model.pattern=lazy,softmax,softmax]",), {}, "the model has 2"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_users_mistake_is_one_line(case: str, tmp_path: Path) -> None:
    arms, more, says = WRONG[case]
    with pytest.raises(UsageError, match=says) as found:
        planned(tmp_path, *arms, **more)
    assert "\n" not in str(found.value)


def test_a_variant_without_cost_formulas_is_refused_and_named(tmp_path: Path) -> None:
    file = str(write(tmp_path))
    for more in ({"match": "parameters"}, {"match": "state"}, {"budget": "flops"}):
        with pytest.raises(UsageError, match="mine has no cost formulas"):
            planned(tmp_path, "softmax", file, **more)
    assert set(costs(planned(tmp_path, "softmax", file))) == {"softmax"}
    done = cli.experiment("compare", "softmax", file, out=tmp_path / "out", extra=("--match", "flops"))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


def test_equal_flops_are_steps_of_every_arm(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax", "mamba", "lazy", budget="flops")
    spent = [costs(found)[arm.label]["training_flops"] * tokens(arm.runs[0]) for arm in found.arms]
    steps = [arm.runs[0].train.steps for arm in found.arms]
    assert steps[0] == 40 and steps[1] < 40
    assert all(abs(total / spent[0] - 1) <= 0.5 / min(steps) for total in spent)


def test_flops_that_whole_steps_leave_unequal_are_said(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax", "mamba", sets={"train.steps": "2"}, budget="flops").file()
    spent = {label: cost["steps"] * cost["training_flops"] for label, cost in found.settings["costs"].items()}
    off = 100 * (spent["mamba"] / spent["softmax"] - 1)
    assert abs(off) > 1
    assert "of softmax's (largest: mamba)" in size_lines(found)[-1]
    assert f"not reached in whole steps: mamba {off:+.1f} %" in size_warnings(found)[-1]


def test_equal_seconds_are_steps_by_measured_step_times(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax", "lazy", budget="seconds", step_ms={"softmax": 10.0, "lazy": 16.0})
    assert [arm.runs[0].train.steps for arm in found.arms] == [40, 25]


def test_step_times_are_measured_once_and_kept(tmp_path: Path) -> None:
    sets = {**SETS, "data.corpus": str(cli.text(tmp_path)), "model.model_dim": "16", "train.batch_size": "2"}
    request = Request(name="x", arms=["softmax", "lazy"], seeds=1, sets=sets, budget="seconds")
    store = Store(tmp_path / "out")
    first = prepare(request, store)
    assert len(store.all_timings()) == 1
    assert [arm.runs for arm in prepare(request, store).arms] == [arm.runs for arm in first.arms]
    assert len(store.all_timings()) == 1


def test_a_table_of_runs_with_different_budgets_is_refused(tmp_path: Path) -> None:
    settings = fakes.experiment(["softmax", "lazy"], 2, {}).settings
    index, store = fakes.study(
        tmp_path, {"softmax": [2.0, 2.1], "lazy": [2.2, 2.3]}, settings={**settings, "budget": "tokens"}
    )
    assert report.result(index, store)
    longer = fakes.run_config("lazy", 0, steps=999)
    store.write_run(fakes.run_record("lazy", 0, 2.2, id=longer.id, config=longer.to_dict()))
    index.arms[1]["ids"][0] = longer.id
    with pytest.raises(RecordError, match="different budgets never share a table"):
        report.result(index, store)


def test_a_hybrid_repeats_its_variants_and_its_costs_follow() -> None:
    run = tiny.run("lazy[bias_length=4]", model__num_layers=3, model__pattern="lazy,softmax", train__backend="auto")
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, backend="reference,sdpa"))
    assert [mixer.spec.name for mixer in mixers(run)] == ["lazy", "softmax", "lazy"]
    assert [mixer.backend for mixer in mixers(run)] == ["reference", "sdpa", "reference"]
    model = build_model(run, vocab_size=16)
    assert [hasattr(layer.mixer, "tau") for layer in model.layers] == [True, False, True]
    assert model.layers[2].mixer.bias.shape == (2, 4)
    assert run_cost(run, 16).parameters == live(run, 16)
    outcome = train(run, tiny.SOURCE)
    assert outcome.status == "ok"


def test_a_hybrid_starts_as_its_parts_do_and_of_one_variant_is_that_variant(tmp_path: Path) -> None:
    found = planned(tmp_path, "softmax", "lazy", "lazy[model.pattern=lazy,softmax]")
    pure, other, hybrid = (build_model(arm.runs[0], vocab_size=16).state_dict() for arm in found.arms)
    assert torch.equal(hybrid["layers.0.mixer.bias"], other["layers.0.mixer.bias"])
    assert torch.equal(hybrid["layers.1.mixer.q.weight"], pure["layers.1.mixer.q.weight"])
    alone = planned(tmp_path, "lazy[model.pattern=lazy]").arms[0].runs[0]
    assert alone.id == found.arms[1].runs[0].id
    assert len({arm.runs[0].id for arm in found.arms}) == 3
    assert found.arms[2].runs[0].model.pattern == "lazy,softmax"


def test_arms_that_set_makes_hybrids_say_so_and_one_hybrid_is_no_two_arms(tmp_path: Path) -> None:
    sets = {"model.pattern": "lazy,softmax"}
    found = planned(tmp_path, "lazy", "lazy[elastic=off]", baseline="lazy[elastic=off]", sets=sets)
    labels = ["lazy[model.pattern=lazy,softmax]", "lazy[elastic=off,model.pattern=lazy,softmax]"]
    assert [arm.label for arm in found.arms] == labels and found.baseline == labels[1]
    for arms in (("lazy", "softmax"), ("lazy[model.pattern=lazy,softmax]", "softmax")):
        with pytest.raises(UsageError, match="are the same hybrid"):
            planned(tmp_path, *arms, sets=sets)


def test_a_dry_run_shows_the_sizes_that_matching_found(tmp_path: Path) -> None:
    extra = (
        "--match",
        "state",
        "--dry-run",
        *(word for pair in {**SETS, "model.mlp_dim": "8"}.items() for word in ("--set", "=".join(pair))),
    )
    done = cli.experiment("compare", "softmax", "mamba", out=tmp_path / "out", extra=extra)
    assert done.returncode == 0, done.stderr
    base, mamba = [line.split() for line in done.stdout.splitlines() if line.startswith(("softmax ", "mamba "))][:2]
    assert base[1] == "8" and mamba[1:3] == ["(unmatched)", "1"]


def test_an_outsiders_file_stands_in_a_pattern_by_its_name(tmp_path: Path) -> None:
    file = write(tmp_path)
    found = planned(tmp_path, f"{file}[model.pattern={file},softmax]")
    assert found.arms[0].runs[0].model.pattern == "mine,softmax"
    assert [mixer.spec.name for mixer in mixers(found.arms[0].runs[0])] == ["mine", "softmax"]


def test_code_of_every_variant_of_a_pattern_is_hashed() -> None:
    hashes = {environment.code_hash("lazy", pattern) for pattern in (None, "lazy,softmax", "lazy,mamba")}
    assert len(hashes) == 3


def test_a_matched_table_says_so_in_its_lines_and_its_json(tmp_path: Path) -> None:
    index = planned(tmp_path, "softmax", "mamba", "lazy", match="parameters").file()
    table = report.result(index, Store(tmp_path / "none"))
    assert "matched in parameters" in table.subtitle
    found = report.payload(table)["matching"]
    assert (found["match"], found["budget"]) == ("parameters", "tokens")
    assert abs(found["arms"]["lazy"]["mismatch"]["parameters"]) < 0.01
    assert not any(arm["unmatched"] for arm in found["arms"].values())
    lines = size_lines(index)
    assert lines[0].startswith("cost: ") and "FLOPs" in lines[0] and "bytes" in lines[0]
    assert lines[1].startswith("matched: parameters within ")
    assert size_warnings(index) == []


def test_what_is_left_over_one_percent_warns_and_over_five_is_marked(tmp_path: Path) -> None:
    base = {"parameters": 1000, "training_flops": 1.0, "decode_flops": 1.0, "state_bytes": 1, "steps": 9}
    costs = {"softmax": base, "lazy": {**base, "parameters": 1030}, "mamba": {**base, "parameters": 940}}
    settings = {**fakes.experiment(["softmax"], 2, {}).settings, "match": "parameters", "costs": costs}
    outcomes = {"softmax": [2.0, 2.1], "lazy": [2.2, 2.3], "mamba": [2.2, 2.1]}
    index, store = fakes.study(tmp_path, outcomes, settings=settings)
    table = report.result(index, store)
    assert "sizes differ from softmax's: lazy +3.0 % parameters, mamba -6.0 % parameters" in table.warnings
    text = report.markdown(table)
    assert "mamba (unmatched)" in text and "lazy (unmatched)" not in text
