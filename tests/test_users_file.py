"""What a user's own file may get wrong beside its layer: one line says so, and nothing is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import cli

README = (cli.ROOT / "README.md").read_text()
MIXER = next(block.split("```")[0] for block in README.split("```python\n")[1:] if "SPEC" in block)


def written(folder: Path, knob: str = "knob(-1.0, low=-4.0, high=1.0)", cost: str = "") -> Path:
    file = folder / "mine.py"
    text = MIXER.replace("knob(-1.0, low=-4.0, high=1.0)", knob)
    if cost:
        text = text.replace("SPEC =", f"def cost(dims, config, length):\n    {cost}\n\n\nSPEC =")
        text = text.replace("Layer=Layer)", "Layer=Layer, cost=cost)")
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("knob", "words"),
    [
        ("knob(1.0, low=1, high=1)", "1 to 1"), ("knob(1.0, low=1, high=-2)", "1 to -2"),
        ("knob(0.1, low=0, high=1, log=True)", "log scale"), ("knob(0.1, low=0.0, high=float('inf'))", "0 to inf"),
    ],
)  # fmt: skip
def test_a_range_that_cannot_be_searched_is_named(tmp_path: Path, knob: str, words: str) -> None:
    done = cli.experiment(
        "tune", str(written(tmp_path, knob=knob)), out=tmp_path / "out", extra=("--dry-run", "--json")
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "the range of start" in done.stderr and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("cost", ["return 1 / 0", "return None"])
def test_a_cost_formula_that_fails_is_named(tmp_path: Path, cost: str) -> None:
    file = written(tmp_path, cost=cost)
    done = cli.experiment(
        "compare", "softmax", str(file), out=tmp_path / "out", extra=("--match", "flops", "--dry-run")
    )
    assert done.returncode == 2 and "the cost formula of my_mixer" in done.stderr and "Traceback" not in done.stderr


def test_what_a_file_prints_in_the_commands_own_process_is_kept_out_of_its_json(tmp_path: Path) -> None:
    file = written(tmp_path, cost='print("COST"); return None')
    file.write_text(
        file.read_text().replace(
            "def forward(self, x, shared):", 'def forward(self, x, shared):\n        print("FORWARD")\n'
        )
    )
    done = cli.run("check", str(file), "--claim", "shape", "--claim", "cost", "--json")
    assert done.returncode == 1 and "FORWARD" in done.stderr
    assert cli.payload(done)["passed"] is False


@pytest.mark.parametrize(
    ("source", "said"),
    [("raise ValueError('one\\n  two')", "ValueError: one two"), ("import os\nos._exit(3)", "os._exit(3)")],
)
def test_a_file_that_fails_or_leaves_as_it_is_imported_is_one_line(tmp_path: Path, source: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    done = cli.run("tune", str(file), "--dry-run", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} fails on import: " in done.stderr and said in done.stderr and done.stderr.count("\n") == 1
