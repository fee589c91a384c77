"""The JSON of a table has exactly the agreed keys, and the frame exactly its types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas

from harness import report
from tests import fakes

INTERVAL = {"mean", "low", "high"}
ARM = {
    "name",
    "variant",
    "config",
    "parameters",
    "seeds",
    "val_loss_nats",
    "val_bits_per_byte",
    "difference",
    "resolvable",
    "verdict",
    "failed",
    "backend",
    "records",
}


def result_of(folder: Path, outcomes: dict[str, list[fakes.Outcome]] = fakes.PARTS) -> report.Result:
    index, store = fakes.study(folder, outcomes, same={arm: of for arm, of in fakes.SAME.items() if arm in outcomes})
    return report.result(index, store)


def test_the_payload_has_the_agreed_keys_and_no_others(tmp_path: Path) -> None:
    found = report.payload(result_of(tmp_path))
    assert set(found) == {"experiment", "corpus", "baseline", "arms", "references"}
    assert found["corpus"] == {"name": "kjv", "sha256": fakes.FINGERPRINT}
    assert [arm["name"] for arm in found["arms"]] == list(fakes.PARTS)
    for arm in found["arms"]:
        assert set(arm) == ARM
        assert set(arm["val_loss_nats"]) == INTERVAL and set(arm["val_bits_per_byte"]) == INTERVAL
        assert arm["difference"] is None or set(arm["difference"]) == INTERVAL | {"p"}
        assert arm["seeds"] == 5 and arm["failed"] == 0 and len(arm["records"]) == 5
    assert found["references"]["order-1"]["val_bits_per_byte"] == 3.6


def test_what_does_not_exist_is_null_and_never_nan(tmp_path: Path) -> None:
    outcomes: dict[str, list[fakes.Outcome]] = {"softmax": [2.0], "lazy": ["diverged: nan"], "flash": [None]}
    found = json.loads(json.dumps(report.payload(result_of(tmp_path, outcomes)), allow_nan=False))
    softmax, lazy, flash = found["arms"]
    assert softmax["val_loss_nats"] == {"mean": 2.0, "low": None, "high": None}
    assert lazy["val_loss_nats"] is None and lazy["failed"] == 1 and lazy["difference"] is None
    assert flash["records"] == [] and flash["resolvable"] is None


def test_the_frame_has_a_row_an_arm_and_stable_types(tmp_path: Path) -> None:
    whole = report.frame(result_of(tmp_path / "a"))
    empty = report.frame(result_of(tmp_path / "b", {"softmax": ["diverged: nan"], "lazy": [None]}))
    assert list(whole["arm"]) == list(fakes.PARTS)
    assert whole.dtypes.to_dict() == empty.dtypes.to_dict()
    kinds = {name: str(kind) for name, kind in whole.dtypes.items()}
    assert {kinds[name] for name in ("parameters", "seeds", "n", "failed", "missing", "peak_memory_bytes")} == {"Int64"}
    assert {kinds[name] for name in ("val_loss_nats_mean", "difference_low", "p", "step_ms")} == {"Float64"}
    assert {kinds[name] for name in ("arm", "verdict", "records")} == {"string"}
    assert pandas.isna(empty["val_loss_nats_mean"]).all()


def test_the_room_needs_neither_torch_nor_pandas_until_a_frame_is_asked_for() -> None:
    script = "import sys, harness.report; print({'torch', 'pandas'} & set(sys.modules))"
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
