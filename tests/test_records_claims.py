"""Many processes: one trains a run, none overwrites another, and a death frees what it held."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from sample_records import child, end, run_record, said, tell

from harness.records import Store, claims

WRITER = """
from pathlib import Path
from harness.records import Store
from sample_records import run_record
store = Store(Path(sys.argv[1]))
print("ready"); input()
for n in range(int(sys.argv[3])):
    store.write_run(run_record(backend=f"{sys.argv[2]}.{n}"))
"""

CLAIMER = """
from pathlib import Path
from harness.records import Store
store = Store(Path(sys.argv[1]))
print("ready"); input()
held = [(id, claim) for id in map(str, range(30)) if (claim := store.claim(id))]
print("done"); input()
print(*(id for id, _ in held))
"""

HOLDER = """
import os
from pathlib import Path
from harness.records import Store, whole
store = Store(Path(sys.argv[1]))
claim = store.claim("00aa")
if sys.argv[2] == "fork":
    forked, tell = os.pipe()
    if os.fork() == 0:
        os.write(tell, b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(forked, 1)
if sys.argv[2] == "write":
    with whole(store.root / "runs" / "00aa.json") as file:
        file.write(b"{")
        file.flush()
        print("held")
        input()
print("held" if claim else "free")
input()
"""


def test_processes_that_write_one_id_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    writers = [child(WRITER, tmp_path, n, 12) for n in range(4)]
    assert [said(writer) for writer in writers] == ["ready"] * 4
    for writer in writers:
        tell(writer)
    store = Store(tmp_path)
    while any(writer.poll() is None for writer in writers):
        found = store.all_runs()
        assert [record.fresh for record in found] == list(range(1, len(found) + 1))
    for writer in writers:
        end(writer)
    runs = store.all_runs()
    written = sorted(f"{n}.{k}" for n in range(4) for k in range(12))
    assert sorted(record.backend for record in runs) == written
    assert [record.fresh for record in runs] == list(range(1, 49))
    assert store.problems == [] and len(list((tmp_path / "runs").iterdir())) == 48


def test_of_processes_that_claim_at_once_exactly_one_gets_each_run(tmp_path: Path) -> None:
    claimers = [child(CLAIMER, tmp_path) for _ in range(4)]
    for line in ("ready", "done"):
        assert [said(claimer) for claimer in claimers] == [line] * 4
        for claimer in claimers:
            tell(claimer)
    claimed = [id for claimer in claimers for id in end(claimer)]
    assert sorted(claimed, key=int) == [str(n) for n in range(30)]


def test_a_claim_is_refused_to_anybody_else_until_it_is_released(tmp_path: Path) -> None:
    store = Store(tmp_path)
    held = store.claim("00aa")
    assert held is not None
    with held:
        assert store.claim("00aa") is None and Store(tmp_path).claim("00aa") is None
        other = store.claim("00bb")
        assert other is not None
        other.release()
    again = store.claim("00aa")
    assert again is not None
    held.release()
    assert store.claim("00aa") is None
    again.release()


@pytest.mark.parametrize("doing", ["nothing", "fork", "write"])
def test_a_killed_holder_frees_its_claim_and_leaves_no_part_of_a_record(tmp_path: Path, doing: str) -> None:
    holder = child(HOLDER, tmp_path, doing)
    assert said(holder) == "held"
    store = Store(tmp_path)
    assert store.claim("00aa") is None
    holder.kill()
    holder.wait()
    held = store.claim("00aa")
    assert held is not None
    assert store.run("00aa", None) is None and store.problems == []
    assert store.write_run(run_record(id="00aa")).fresh == 1
    held.release()
    holder.communicate()


def test_a_forked_child_neither_holds_nor_frees_its_parents_claim(tmp_path: Path) -> None:
    store = Store(tmp_path)
    held = store.claim("00aa")
    assert held is not None
    process = os.fork()
    if process == 0:
        held.release()
        os._exit(0 if store.claim("00aa") is None else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert store.claim("00aa") is None
    held.release()


def test_a_lock_file_that_is_removed_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "locks" / "00aa.lock"
    locked: list[int] = []
    flock = fcntl.flock

    def clears_first(descriptor: int, operation: int) -> None:
        if not locked:
            path.unlink()
        locked.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(claims.fcntl, "flock", clears_first)
    held = Store(tmp_path).claim("00aa")
    assert held is not None and len(locked) == 2
    assert Store(tmp_path).claim("00aa") is None
    held.release()
