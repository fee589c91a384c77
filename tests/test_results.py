"""What is committed under results/, and what README says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import report
from harness.contract import examine, switch_configs
from harness.records import ExperimentFile, Store
from harness.registry import load
from harness.report.figures import FIGURES
from tests import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
STUDIES = sorted(path.parent for path in (ROOT / "results").glob("*/experiments") if path.parent.name != "local")
EXPERIMENTS = [(study, file) for study in STUDIES for file in Store(study).all_experiments()]
TABLES = re.findall(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", README, re.DOTALL)


def named(case: object) -> str:
    return case.stem if isinstance(case, ExperimentFile) else str(case).rpartition("/")[2]


@pytest.mark.parametrize(("study", "experiment"), EXPERIMENTS, ids=named)
def test_a_committed_table_is_rebuilt_from_its_records_byte_for_byte(study: Path, experiment: ExperimentFile) -> None:
    store = Store(study)
    rebuilt = report.result(experiment, store, present=False)
    assert store.problems == []
    assert rebuilt.complete
    assert (study / "tables" / f"{experiment.stem}.md").read_text() == report.markdown(rebuilt)
    assert (study / "tables" / f"{experiment.stem}.csv").read_text() == report.csv(rebuilt)


def test_the_front_table_is_committed() -> None:
    assert ("results/quick", "compare") in {(f"results/{study.name}", file.name) for study, file in EXPERIMENTS}
    assert "results/quick" in [place for place, _ in TABLES]


@pytest.mark.parametrize(("place", "shown"), TABLES, ids=named)
def test_a_table_of_readme_stands_in_results(place: str, shown: str) -> None:
    committed = [file.read_text() for file in (ROOT / place / "tables").glob("*.md")]
    assert shown.strip().startswith("|")
    assert any(shown.strip() in text for text in committed)


def test_the_bars_of_readme_stand_in_the_committed_benchmark() -> None:
    found = re.findall(r"<!-- bars: (\S+) -->\n```text\n(.*?)```\n<!-- end -->", README, re.DOTALL)
    assert found
    for place, shown in found:
        assert shown in (ROOT / place / "cpu.txt").read_text()


def mixer(folder: Path) -> Path:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "SPEC" in block]
    assert len(blocks) == 1
    file = folder / "my_mixer.py"
    file.write_text(blocks[0])
    return file


def test_the_mixer_of_readme_keeps_the_contract(tmp_path: Path) -> None:
    variant = load(mixer(tmp_path))
    for config in switch_configs(variant.spec).values():
        findings = examine(variant.spec, config, doc=variant.doc)
        assert [f"{finding.name}: {finding.detail}" for finding in findings if finding.passed is False] == []


def test_the_mixer_of_readme_is_40_to_60_lines_and_runs_by_readmes_commands(tmp_path: Path) -> None:
    file = mixer(tmp_path)
    assert 40 <= len(file.read_text().splitlines()) <= 60
    assert "python run.py compare softmax my_mixer.py 'my_mixer.py[gate=off]'" in README
    done = cli.experiment("compare", "softmax", str(file), f"{file}[gate=off]", out=tmp_path / "out",
                          extra=("--seeds", "1", "--json"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [arm["name"] for arm in cli.payload(done)["arms"]] == ["softmax", "my_mixer.py", "my_mixer.py[gate=off]"]


def test_every_shipped_flag_and_verb_that_readme_names_exists() -> None:
    known = "".join(
        cli.run(verb, "--help").stdout
        for verb in ("compare", "ablate", "tune", "bench", "check", "measure", "report", "list")
    )
    for flag in set(re.findall(r"(?<=[`\s])--[a-z][a-z-]+", README)):
        assert flag in known or flag in ("--no-build-isolation",), flag


def test_what_readmes_tree_names_is_there() -> None:
    tree = README.split("<!-- tree -->")[1]
    names = re.findall(r"^  ?([\w ./]+?)  ", tree.split("harness/\n")[1].split("results/")[0], re.MULTILINE)
    for name in " ".join(names).split():
        assert (ROOT / "harness" / name.rstrip("/")).exists() or (ROOT / "harness" / f"{name}.py").exists(), name


def test_the_two_commands_of_the_first_minute_stand_in_readme_once() -> None:
    lines = [line for line in README.splitlines() if line.startswith("pip install -e ") and "&&" in line]
    assert [line.split("  ")[0] for line in lines] == [
        "pip install -e . && python run.py compare",
        "pip install -e '.[test]' && pytest",
    ]


def test_the_figures_of_readme_are_those_of_committed_experiments_and_drawn_by_its_command() -> None:
    figures = re.findall(r"!\[[^\]]+\]\(results/([^)/]+)/tables/([^)/]+)/([a-z]+)\.png\)", README)
    assert len(figures) == 2 == README.count("![") - README.count("](results/bench/cpu.svg)")
    for study, stem, name in figures:
        assert (study, stem) in {(place.name, file.stem) for place, file in EXPERIMENTS}
        assert name in {module.NAME for module in FIGURES}
        picture = ROOT / "results" / study / "tables" / stem / f"{name}.png"
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size < 200_000
        assert f"python run.py report {stem.rpartition('-')[0]} --out results/{study} --html" in README
