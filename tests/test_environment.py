"""A record says where it was made and by which code, and nothing about whose machine it was."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sample_records import child, end

from harness import environment


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A copy of the harness and the variants that a test may change."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("harness", "variants"):
        shutil.copytree(environment.ROOT / folder, tmp_path / folder, ignore=ignore)
    return tmp_path


def hash_of(code: Path, variant: str = "softmax") -> str:
    environment._once.cache_clear()
    return environment._hash(code / "harness", (code / "variants" / f"{variant}.py").read_bytes())


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(code: Path) -> Path:
    """The same copy, committed."""
    git(code, "init", "-q")
    git(code, "add", ".")
    git(code, "commit", "-q", "-m", "first")
    return code


def found(root: Path) -> dict[str, object]:
    environment._commit.cache_clear()
    return dict(environment._commit(root))


def test_the_description_is_json_and_has_no_name_of_the_host() -> None:
    described = json.loads(json.dumps(environment.describe()))
    assert set(described) == {"python", "torch", "numpy", "platform", "cpu", "cores", "memory_bytes", "gpu"}
    assert platform.node() not in described.values() and platform.release() not in described["platform"]


def test_the_description_has_the_versions_that_run() -> None:
    import numpy
    import torch

    described = environment.describe()
    assert described["torch"] == torch.__version__ and described["numpy"] == numpy.__version__
    assert described["cores"] >= 1 and described["memory_bytes"] > 1 << 20 and described["cpu"]


def test_neither_records_nor_environment_import_torch() -> None:
    script = "import harness.records, harness.environment as e\n"
    script += "e.describe(); e.machine(); e.code_hash('lazy')\n"
    assert end(child(script + "print('torch' in sys.modules)")) == ["False"]


def test_gpus_are_named_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_output", lambda _: "B 2\nA 1\nB 2")
    assert environment._gpu.__wrapped__() == "A 1, 2 x B 2"
    monkeypatch.setattr(environment, "_output", lambda _: None)
    assert environment._gpu.__wrapped__() is None


@pytest.mark.parametrize("part", ["_cpu", "_cores", "_gpu"])
def test_other_hardware_is_another_machine(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    here = environment.machine()
    assert here == environment.machine() and len(here) == 8
    monkeypatch.setattr(environment, part, lambda: "other")
    assert environment.machine() != here


def test_without_a_repository_or_without_git_the_commit_is_unknown(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"commit": None, "dirty": None}
    assert found(code) == unknown
    git(code, "init", "-q")
    assert found(code) == unknown
    monkeypatch.setenv("PATH", "")
    assert found(code) == unknown


def test_a_changed_or_new_code_file_is_dirty_and_results_are_not(repository: Path) -> None:
    clean = found(repository)
    assert clean["dirty"] is False and len(str(clean["commit"])) == 40
    (repository / "results").mkdir()
    (repository / "results" / "run.json").write_text("{}")
    assert found(repository) == clean
    (repository / "variants" / "mine.py").write_text("")
    assert found(repository) == {**clean, "dirty": True}
    (repository / "variants" / "mine.py").unlink()
    (repository / "harness" / "spec.py").write_text("")
    assert found(repository) == {**clean, "dirty": True}


def test_code_inside_another_repository_has_no_commit(repository: Path) -> None:
    inside = repository / "site-packages"
    inside.mkdir()
    assert found(inside) == {"commit": None, "dirty": None}


def test_the_repository_of_a_hook_is_not_taken_for_ours(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = found(repository)
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert found(repository) == ours


def test_the_commit_handed_out_may_be_changed_by_who_got_it() -> None:
    environment.commit()["commit"] = "changed"
    assert environment.commit()["commit"] != "changed"


def test_everything_that_decides_a_number_is_there() -> None:
    missing = [name for name in environment.DECIDES if not (environment.ROOT / "harness" / name).exists()]
    assert missing == []
    assert len(environment.code_hash("softmax")) == 64


def test_code_that_decides_a_number_rests_on_no_other_code_that_could() -> None:
    silent = {"errors", "records", "registry", "environment"}
    harness = environment.ROOT / "harness"
    files = [file for name in environment.DECIDES for file in environment._sources(harness / name)]
    files += (environment.ROOT / "variants").glob("*.py")
    text = "\n".join(file.read_text() for file in files)
    used = set(re.findall(r"^\s*(?:from|import) harness\.(\w+)", text, re.MULTILINE))
    used |= {
        name.strip()
        for names in re.findall(r"^\s*from harness import (.+)", text, re.MULTILINE)
        for name in names.split(",")
    }
    assert used - silent <= {Path(name).stem for name in environment.DECIDES}


@pytest.mark.parametrize(
    "place",
    [
        "harness/spec.py",
        "harness/model.py",
        "harness/ops/masks.py",
        "harness/data/kjv.py",
        "harness/train/new.py",
        "variants/softmax.py",
    ],
)
def test_code_that_decides_a_number_changes_the_hash(code: Path, place: str) -> None:
    before = hash_of(code)
    with open(code / place, "a") as file:
        file.write("# more\n")
    assert hash_of(code) != before


@pytest.mark.parametrize(
    "place",
    [
        "harness/errors.py",
        "harness/report/new.py",
        "harness/records/store.py",
        "harness/ops/__pycache__/masks.pyc",
        "variants/lazy.py",
        "run.py",
    ],
)
def test_other_code_does_not_change_the_hash(code: Path, place: str) -> None:
    before = hash_of(code)
    (code / place).parent.mkdir(exist_ok=True)
    with open(code / place, "a") as file:
        file.write("# more\n")
    assert hash_of(code) == before


def test_a_moved_line_a_renamed_file_and_another_variant_change_the_hash(code: Path) -> None:
    before = hash_of(code)
    assert hash_of(code, "lazy") != before
    ops = code / "harness" / "ops"
    (ops / "masks.py").rename(ops / "masked.py")
    renamed = hash_of(code)
    first, rest = (ops / "fused.py").read_text().split("\n", 1)
    (ops / "fused.py").write_text(rest)
    (ops / "masked.py").write_text((ops / "masked.py").read_text() + first)
    assert len({before, renamed, hash_of(code)}) == 3


def test_line_ends_of_a_checkout_do_not_change_the_hash(code: Path) -> None:
    before = hash_of(code)
    for file in (code / "harness").rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert hash_of(code) == before


def test_the_hash_is_that_of_the_code_that_was_imported(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ROOT", code)
    environment._once.cache_clear()
    before = environment.code_hash("softmax")
    for changed in (code / "harness" / "model.py", code / "variants" / "softmax.py"):
        changed.write_text("")
    assert environment.code_hash("softmax") == before


def test_a_users_file_counts_by_its_content(tmp_path: Path) -> None:
    hashes = []
    for name, content in (("a.py", "x"), ("b.py", "x"), ("c.py", "y")):
        (tmp_path / name).write_text(content)
        hashes.append(environment.code_hash(os.fspath(tmp_path / name)))
    (tmp_path / "a.py").write_text("y")
    hashes.append(environment.code_hash(os.fspath(tmp_path / "a.py")))
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]
