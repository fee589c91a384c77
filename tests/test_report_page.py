from __future__ import annotations

import base64
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.records import ExperimentFile, MeasurementRecord, Store
from harness.report import findings, measured_payload, write_page
from harness.report.build import result
from harness.report.figures import FIGURES, layers, maps
from harness.report.measured import measured as shown_on_screen
from harness.report.measured import undefined
from tests import fakes

STEPS = 240


def sink(share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    values = {"sink_1_percent": share, "sink_1_proxy_percent": share / 2, "first_token_mass_percent": share}
    counts = np.zeros(50, dtype=np.int64)
    counts[int(share / 2)] = 10
    by_key = np.full((4, 64), share)
    arrays = {"edges": np.linspace(0, 1, 51), "epsilons": np.array([0.1, 0.2, 0.3, 0.5])}
    for suffix in ("", "_proxy"):
        arrays |= {f"sink_by_key{suffix}": by_key, f"alpha_1_counts{suffix}": counts}
    return values, arrays


def add(
    store: Store, experiment: ExperimentFile, arm: str, name: str, values: Any, arrays: Any = None, step: int = STEPS
) -> None:
    """The same finding for every run of an arm."""
    for seed in range(len(experiment.seeds)):
        run = store.run(fakes.run_id(arm, seed), None)
        if run is not None:
            record = MeasurementRecord(
                run=run.id, measure=name, version=1, step=step, values={**values, "code_hash": run.code_hash}
            )
            store.write_measurement(record, arrays)


@pytest.fixture
def measured(tmp_path: Path) -> tuple[ExperimentFile, Store]:
    """A study with a sink in softmax and none in lazy attention; other measures in some arms."""
    experiment, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1, 2.05], "lazy": [1.9, 2.0, 1.95]})
    for arm, share in (("softmax", 96.0), ("lazy", 0.0)):
        for step in (120, STEPS):
            add(store, experiment, arm, "sink", *sink(share), step=step)
        add(store, experiment, arm, "mass", {"row_mass_mean": 1.0, "row_mass_by_layer": [1.0, 0.9]},
            {"mass": np.ones((2, 4, 8)), "first": np.ones((2, 4, 8))})  # fmt: skip
        words = ["N", "o", "w", " ", "$", "<"]
        add(store, experiment, arm, "example", {"tokens": words}, {"maps": np.tril(np.ones((2, 4, 6, 6)) / 3)})
    add(store, experiment, "softmax", "scalars", {"not_defined": "the variant declares no scalars"})
    return experiment, store


def page_of(found: tuple[ExperimentFile, Store]) -> str:
    return write_page(*found)[0].read_text()


def test_the_page_stands_alone(measured: tuple[ExperimentFile, Store]) -> None:
    page = page_of(measured)
    outside = re.findall(r'(?:src|href)="(?!data:)([^"]*)"|url\(|@import|<script|<iframe', page)
    assert outside == []
    assert "://" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)


def test_every_figure_of_the_page_lies_beside_it_as_svg_and_png(measured: tuple[ExperimentFile, Store]) -> None:
    files = write_page(*measured)
    page = files[0].read_text()
    shown = re.findall(r'<figure id="([a-z]*)">', page)
    assert {"curves", "differences", "sink", "alpha", "maps", "layers", "mass", "paths"} - set(shown) == {"curves"}
    assert [path.name for path in files[1:]] == [f"{name}.{end}" for name in shown for end in ("svg", "png")]
    inside = [base64.b64decode(data) for data in re.findall(r"svg\+xml;base64,([A-Za-z0-9+/=]*)", page)]
    assert inside == [path.read_bytes() for path in files[1::2]]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files[2::2])


def test_what_was_not_measured_has_a_line_with_the_command_that_would(measured: tuple[ExperimentFile, Store]) -> None:
    page = page_of(measured)
    absent = page[page.index("Not shown") :]
    # The weights of a study made by hand are nowhere: measuring would be refused.
    assert "Longer sequences than trained on: not measured; the weights it needs are not kept here" in absent
    assert "Learned bias over distance: not defined: the variant declares no scalars" in absent
    names = {module.NAME for module in FIGURES}
    shown = set(re.findall(r'<figure id="([a-z]*)">', page))
    assert all(module.TITLE in absent for module in FIGURES if module.NAME in names - shown)


def test_the_same_records_give_the_same_page(measured: tuple[ExperimentFile, Store]) -> None:
    first = {path: path.read_bytes() for path in write_page(*measured)}
    assert {path: path.read_bytes() for path in write_page(*measured)} == first


def test_text_of_records_cannot_become_markup(tmp_path: Path) -> None:
    experiment, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1]}, question="Is a < b & <b>c</b>?")
    page = page_of((experiment, store))
    assert "Is a &lt; b &amp; &lt;b&gt;c&lt;/b&gt;?" in page


def test_a_page_without_any_measurement_says_how_to_get_them(tmp_path: Path) -> None:
    experiment, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]})
    assert "Nothing was measured; the weights it needs are not kept here" in page_of((experiment, store))
    for id in (id for arm in experiment.arms for id in arm["ids"]):
        store.weights_path(id).parent.mkdir(exist_ok=True)
        store.weights_path(id).touch()
    page = page_of((experiment, store))
    assert f"Nothing was measured; run.py measure {experiment.stem} --out {tmp_path} would" in page
    assert f"report {experiment.stem} --html --out {tmp_path}" in page


def test_a_table_without_a_finished_run_names_the_command_and_no_measuring(tmp_path: Path) -> None:
    study = fakes.study(
        tmp_path, {"softmax": ["diverged: x"], "lazy": ["diverged: x"]}, command="python run.py compare"
    )
    page = page_of(study)
    assert "Nothing was measured; no run has finished; run it: python run.py compare." in page
    assert "run.py measure" not in page and "two finished seeds each; more seeds: python run.py compare" in page


def test_what_a_variant_declares_is_shown_whatever_its_name(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    values = {"names": ["gate"], "gate_layers": [1, 2], "gate_mean": 0.25, "gate_gradient_norm": 0.5}
    gates = {"gate": np.full((2, 4), 0.25), "gate_gradient": np.ones((2, 4))}
    for step in (120, STEPS):
        add(store, experiment, "lazy", "scalars", values, gates, step=step)
    page = page_of(measured)
    assert '<figure id="scalars">' in page and "gate, mean" in page and "gradient&#x27;s norm, last step" in page


def test_a_run_that_is_no_number_is_counted_and_hides_no_other(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    run = store.run(fakes.run_id("softmax", 1), None)
    assert run is not None
    values = {"not_defined": "not finite: attention maps", "code_hash": run.code_hash}
    store.write_measurement(MeasurementRecord(run=run.id, measure="mass", version=1, step=STEPS, values=values))
    found = findings(experiment, store)
    assert found.has("mass") and found.arms[0].values("mass", "row_mass_mean") == [1.0, 1.0]
    assert "mass: not defined for 1 of 3 runs: not finite: attention maps (softmax)" in undefined(found)


def test_other_code_that_looked_is_said(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    for arm, own in (("softmax", "one"), ("lazy", "two")):
        run = store.run(fakes.run_id(arm, 0), None)
        assert run is not None
        by = {"code": "other" if arm == "lazy" else run.code_hash, "measures": own}
        values = {"relative_residual": 0.5, "code_hash": run.code_hash}
        store.write_measurement(
            MeasurementRecord(run=run.id, measure="collapse", version=1, step=STEPS, values=values, measured_by=by)
        )
    lines = undefined(findings(experiment, store))
    assert "lazy was measured by other code than trained it: collapse" in lines
    assert any(line.startswith("measured by different versions of the measures' code: collapse") for line in lines)


def test_each_group_of_lines_says_what_it_was_taken_on(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    add(store, experiment, "lazy", "focus", {"effective_keys_mean": 3.0, "length_tokens": 128, "sequences": 16})
    assert "focus (16 sequences of 128 tokens)" in page_of(measured)


def test_negative_mass_is_inside_its_panel(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    add(store, experiment, "lazy", "mass", {"row_mass_mean": -2.0, "row_mass_by_layer": [-2.0, -1.0]})
    figure = layers.draw(result(experiment, store), findings(experiment, store))
    assert figure is not None
    low, high = figure.axes[1].get_ylim()
    assert low < -2 and high >= 1


def test_the_scale_of_maps_holds_every_weight_of_them(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    signed = np.tril(np.full((2, 4, 6, 6), -0.5))
    signed[..., 5, 0] = 4.0
    add(store, experiment, "lazy", "example", {"tokens": list("abcdef")}, {"maps": signed})
    [figure] = maps.draw(result(experiment, store), findings(experiment, store))
    bar = figure.axes[-1]
    assert bar.get_xlim() == pytest.approx((-0.5, 4.0))


def test_without_a_sink_in_softmax_nothing_is_claimed(tmp_path: Path) -> None:
    experiment, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]})
    add(store, experiment, "softmax", "sink", *sink(4.9))
    add(store, experiment, "lazy", "sink", *sink(0.0))
    [line] = findings(experiment, store).remark
    assert line.startswith("sink not reproduced in this setting: softmax itself has Sink_1 of 4.9 %")
    assert "not reproduced" in page_of((experiment, store))


def test_with_a_sink_each_arm_is_read_raw_and_by_proxy(measured: tuple[ExperimentFile, Store]) -> None:
    present, lazy = findings(*measured).remark
    assert present == "sink present: softmax has Sink_1 of 96.0 % (epsilon 0.3, 64 tokens)"
    assert lazy == "lazy: Sink_1 0.0 % raw, 0.0 % by proxy; lower on every seed in both readings"


def test_what_is_lower_in_the_mean_but_not_on_every_seed_is_no_mitigation(tmp_path: Path) -> None:
    experiment, store = fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]})
    for arm, shares in (("softmax", (90.0, 100.0)), ("lazy", (92.0, 0.0))):
        for seed, share in enumerate(shares):
            run = store.run(fakes.run_id(arm, seed), None)
            assert run is not None
            values = {"sink_1_percent": 0.0 if arm == "lazy" else share, "sink_1_proxy_percent": share}
            values |= {"code_hash": run.code_hash}
            store.write_measurement(MeasurementRecord(run=run.id, measure="sink", version=1, step=STEPS, values=values))
    assert findings(experiment, store).remark[1].endswith("in raw weights alone, which fall with the mass of a row")


def test_measurements_of_a_training_that_was_replaced_do_not_count(measured: tuple[ExperimentFile, Store]) -> None:
    experiment, store = measured
    assert findings(experiment, store).arms[0].values("sink", "sink_1_percent") == [96.0] * 3
    run = store.run(fakes.run_id("softmax", 0), None)
    assert run is not None
    store.write_run(dataclasses.replace(run, code_hash="of other code"))
    assert findings(experiment, store).arms[0].values("sink", "sink_1_percent") == [96.0] * 2


def test_the_values_as_json_have_one_entry_a_seed(measured: tuple[ExperimentFile, Store]) -> None:
    found = measured_payload(findings(*measured))
    assert [entry["sink_1_percent"] for entry in found["arms"]["lazy"]["sink"]] == [0.0] * 3
    assert undefined(findings(*measured)) == ["scalars: not defined: the variant declares no scalars (softmax)"]


def test_a_part_of_a_measure_that_is_not_there_says_why(measured: tuple[ExperimentFile, Store]) -> None:
    values = {"plain_softmax": "not defined: the weights are made from no softmax", "zeros_percent": 0.0}
    add(measured[1], measured[0], "lazy", "sparsity", values)
    add(measured[1], measured[0], "lazy", "extrapolation", {"not_measured": "8 times the training length: too short"})
    lines = undefined(findings(*measured))
    assert "sparsity: plain softmax not defined: the weights are made from no softmax (lazy)" in lines
    assert "extrapolation: not measured at 8 times the training length: too short (lazy)" in lines


@pytest.mark.parametrize(("width", "tables"), [(80, 2), (140, 1)])
def test_on_a_screen_the_arms_stand_side_by_side_and_no_name_is_cut(tmp_path: Path, width: int, tables: int) -> None:
    arms = ["softmax", "lazy", "lazy[bias=off]", "lazy[elastic=off]", "lazy[bias=off,elastic=off]"]
    experiment, store = fakes.study(tmp_path, {arm: [2.0, 2.1] for arm in arms})
    for arm in arms:
        add(store, experiment, arm, "sink", {**sink(96.0)[0], "sink_1_by_epsilon_percent": [99.0, 98.0, 96.0, 40.0]})
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(shown_on_screen(findings(experiment, store), width))
    text = console.export_text()
    assert text.count("mean over seeds") == tables
    assert all(len(line) <= width for line in text.splitlines()) and "…" not in text
    assert text.count("40.0") == len(arms)
