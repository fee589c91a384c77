"""A full, limited or read-only disk is named, before training if possible; nothing is half-written."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from sample_records import child, end, run_record

from harness.errors import RecordError, UsageError
from harness.records import FOLDERS, Store, whole

ID = run_record().id

SMALL_DISK = """
import subprocess
from pathlib import Path
from harness.errors import RecordError, UsageError
from harness.records import Store
from sample_records import run_record
root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", root], check=True)
store = Store(root / "results")
store.check_writable()
first = store.write_run(run_record())
def fails(do, kind):
    try:
        do()
    except kind as error:
        assert sys.argv[2] in str(error) and str(store.root) in str(error), error
    else:
        raise AssertionError("written")
if sys.argv[3] == "full":
    filler = root / "filler"
    try:
        with open(filler, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        pass
else:
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
fails(lambda: store.write_run(run_record()), RecordError)
fails(store.check_writable, UsageError)
assert [path.name for path in (root / "results" / "runs").iterdir()] == [f"{first.id}.json"]
assert store.all_runs() == [first] and store.problems == []
if sys.argv[3] == "full":
    filler.unlink()
    assert store.write_run(run_record()).fresh == 2
print("fine")
"""

SMALL_FILES = """
import resource
from pathlib import Path
from harness.errors import RecordError
from harness.records import Store
from sample_records import run_record
store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
try:
    store.write_run(run_record())
except RecordError as error:
    assert "File too large" in str(error) and run_record().id in str(error)
    print("refused")
"""


NO_PERMISSION = """
import os
from pathlib import Path
from harness.errors import UsageError
from harness.records import Store
if os.geteuid() == 0:
    os.setuid(65534)
try:
    Store(Path(sys.argv[1])).check_writable()
except UsageError as error:
    assert "Permission denied" in str(error)
    print("refused")
"""


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    script = 'd=$(mktemp -d) && mount -t tmpfs none "$d" && umount "$d" && rmdir "$d"'
    return subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True).returncode == 0


def records(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "runs").iterdir())


@pytest.mark.skipif(not can_mount(), reason="this user cannot mount a small disk of its own")
@pytest.mark.parametrize(("how", "reason"), [("full", "No space left"), ("read-only", "Read-only")])
def test_a_real_full_or_read_only_disk_is_said_and_leaves_nothing_half_written(
    tmp_path: Path, how: str, reason: str
) -> None:
    process = child(SMALL_DISK, tmp_path, reason, how, before=["unshare", "-rm"])
    assert end(process) == ["fine"]


def test_a_limit_on_the_size_of_files_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    assert end(child(SMALL_FILES, tmp_path)) == ["refused"]
    assert records(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_disk_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fails(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    store = Store(tmp_path)
    first = store.write_run(run_record())
    monkeypatch.setattr(os, call, fails)
    with pytest.raises(RecordError, match=rf"{ID}-2\.json was not written: {os.strerror(code)}"):
        store.write_run(run_record())
    monkeypatch.undo()
    assert records(tmp_path) == [f"{ID}.json"]
    assert store.all_runs() == [first] and store.write_run(run_record()).fresh == 2


def test_a_folder_that_cannot_be_synchronised_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def fails_for_folders(descriptor: int, code: list[int]) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code[0], os.strerror(code[0]))
        fsync(descriptor)

    code = [errno.EIO]
    monkeypatch.setattr(os, "fsync", lambda descriptor: fails_for_folders(descriptor, code))
    store = Store(tmp_path)
    with pytest.raises(RecordError, match="power cut"):
        store.write_run(run_record())
    code[0] = errno.EINVAL
    store.write_run(run_record())


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error), whole(path) as file:
        file.write(b"new")
        file.flush()
        raise error
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_a_new_folder_is_made_and_left_without_probes(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b")
    store.check_writable()
    store.check_writable()
    assert sorted(path.name for path in store.root.iterdir()) == sorted(FOLDERS)
    left = [path.name for path in store.root.rglob("*") if path.is_file()]
    assert left == ["write-runs.lock"]


def test_what_a_killed_writer_left_is_swept_and_what_is_being_written_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.check_writable()
    left = tmp_path / "runs" / f".{ID}.json.4711-0123abcd.tmp"
    left.write_text("half a rec")
    own = tmp_path / "runs" / ".notes.tmp"
    own.write_text("somebody's own")
    with whole(tmp_path / "runs" / f"{ID}.json") as file:
        file.write(b"whole")
        store.check_writable()
    assert not left.exists() and own.exists()
    assert (tmp_path / "runs" / f"{ID}.json").read_bytes() == b"whole"


@pytest.mark.parametrize("place", ["file", "file/below", "root/runs"])
def test_a_file_in_the_place_of_a_folder_is_said_before_training(tmp_path: Path, place: str) -> None:
    blocked = tmp_path / place.removesuffix("/below")
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("mine")
    root = tmp_path / place.removesuffix("/runs")
    with pytest.raises(UsageError, match="cannot be used") as caught:
        Store(root).check_writable()
    assert str(root) in str(caught.value) and "--out" in str(caught.value) and "\n" not in str(caught.value)
    assert blocked.read_text() == "mine"


@pytest.mark.parametrize("below", [".", "runs", "locks"])
def test_a_folder_without_permission_is_said_before_training(below: str) -> None:
    # Not in tmp_path: whoever root becomes may not even enter it.
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o777)
        Path(root, below).mkdir(exist_ok=True)
        Path(root, below).chmod(0o555)
        assert end(child(NO_PERMISSION, root)) == ["refused"]
        Path(root, below).chmod(0o777)


def test_a_file_system_without_locks_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("harness.records.claims.fcntl.flock", fails)
    with pytest.raises(UsageError, match="No locks available"):
        Store(tmp_path).check_writable()


def test_a_record_may_be_read_by_whoever_may_read_the_folder(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        Store(tmp_path).write_run(run_record())
    finally:
        os.umask(old)
    assert (tmp_path / "runs" / f"{ID}.json").stat().st_mode & 0o777 == 0o644
