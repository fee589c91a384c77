"""Every format gives the same documents, byte for byte, and says what is wrong where."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import documents
from harness.data.documents import read
from harness.errors import DataError, UsageError

BOM = "\ufeff"


def texts(path: Path) -> list[bytes]:
    return [document.text for document in read(path)]


def write_jsonl(path: Path, values: list[str | None], *, ascii_only: bool = True) -> Path:
    lines = [json.dumps({"id": n, "text": value}, ensure_ascii=ascii_only) for n, value in enumerate(values)]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def write_parquet(path: Path, values: list[str | None], kind: str) -> Path:
    import pyarrow as arrow
    from pyarrow import parquet

    column = arrow.array(values, type=arrow.string())
    if kind == "dictionary":
        column = column.dictionary_encode()
    elif kind != "string":
        column = column.cast(getattr(arrow, kind)())
    scores = arrow.array([0.5] * len(values))
    table = arrow.table({"id": arrow.array(range(len(values))), "text": column, "language_score": scores})
    parquet.write_table(table, path, row_group_size=3)
    return path


CHARACTERS = st.characters(exclude_categories=["Cs"])


@settings(derandomize=True, max_examples=40)
@given(values=st.lists(st.one_of(st.none(), st.text(CHARACTERS)), min_size=1, max_size=12))
def test_jsonl_parquet_and_text_files_give_the_same_documents(
    values: list[str | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    (folder / "files").mkdir()
    for number, value in enumerate(values):
        (folder / "files" / f"{number:03}.txt").write_bytes((value or "").encode())
    paths = [folder / "files", write_jsonl(folder / "a.jsonl", values)]
    paths.append(write_jsonl(folder / "b.jsonl", values, ascii_only=False))
    paths.append(folder / "c.jsonl.gz")
    paths[-1].write_bytes(gzip.compress((folder / "b.jsonl").read_bytes()))
    for kind in ("string", "large_string", "dictionary"):
        paths.append(write_parquet(folder / f"{kind}.parquet", values, kind))
    expected = [value.removeprefix(BOM).encode() for value in values if value not in (None, "", BOM)]
    for path in paths:
        if expected:
            assert texts(path) == expected
        else:
            with pytest.raises(DataError, match="has no text in it"):
                read(path)


def test_bytes_are_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\rthree\n\x00\x0c\x1a \xff\xfe last")
    assert texts(path) == [path.read_bytes()]


def test_one_byte_order_mark_at_the_start_is_dropped_in_every_format(tmp_path: Path) -> None:
    value = BOM + BOM + "a" + BOM
    (tmp_path / "a.txt").write_bytes(value.encode())
    (tmp_path / "b.md").write_bytes(value.encode())
    (tmp_path / "d.jsonl").write_bytes(BOM.encode() + json.dumps({"text": value}).encode())
    write_jsonl(tmp_path / "c.jsonl", [value])
    write_parquet(tmp_path / "e.parquet", [value], "string")
    assert texts(tmp_path) == [value[1:].encode()] * 5


def test_a_folder_is_read_in_the_order_of_its_names_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/b/c.TXT", "a-b/x.txt", "B.txt", "é.txt", "é.d/a.txt", "z.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"text": name}) if "jsonl" in name else name, encoding="utf-8")
    for name in (".hidden.txt", ".git/a.txt", "a/.b.md", "README.rst", "a.py", "a.txt~"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("not this")
    found = [text.decode() for text in texts(tmp_path)]
    assert found == ["B.txt", "a/b/c.TXT", "a/z.md", "a-b/x.txt", "b.txt", "z.jsonl", "é.d/a.txt", "é.txt"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    assert texts(tmp_path) == [b"a", b"a"]


BAD_LINES = {
    b'{"text": "a"': "line 2: not JSON in UTF-8",
    b'{"text": "\xff"}': "line 2: not JSON in UTF-8",
    b'{"body": "a", "id": 1}': "line 2: no field 'text'; its fields are 'body', 'id'",
    b"{}": "line 2: no field 'text'; its fields are none",
    b'{"text": 12}': "line 2: the field 'text' should be a string, this is 12",
    b'{"text": ["a"]}': "line 2: the field 'text' should be a string",
    b'["text"]': r'line 2: a JSON object is needed, this is \["text"\]',
    b'"text"': "line 2: a JSON object is needed",
    b'{"text": "\\ud800"}': "line 2: the text holds half a surrogate pair",
    b"[" * 100_000: "line 2: not JSON in UTF-8",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20].decode("ascii", "replace"))
def test_a_bad_line_is_named_with_what_stands_there(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\r\n' + line + b'\n{"text": "fine"}\n')
    with pytest.raises(DataError, match=BAD_LINES[line]) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 2")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\n{"text": "a\xe2\x80\xa8b"}\n  \r\n{"text": "b"}')
    assert [document.where for document in read(path)] == [f"{path}, line 2", f"{path}, line 4"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip", "trailing"])
def test_a_damaged_archive_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = bytearray(gzip.compress(b'{"text": "abcdefghij"}\n' * 100, mtime=0))
    if damage == "flipped":
        content[-6] ^= 0xFF
    damaged = {"cut": content[:-12], "not gzip": b'{"text": "a"}\n', "trailing": content + b"more"}
    path.write_bytes(damaged.get(damage, content))
    with pytest.raises(DataError, match=r"a\.jsonl\.gz cannot be read after line"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 nothing of the kind PAR1"])
def test_a_damaged_parquet_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read: "):
        read(path)


def test_a_parquet_file_without_the_column_or_with_other_things_in_it_is_named(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"content": ["a"], "id": [1]}), path)
    with pytest.raises(DataError, match=r"a\.parquet: no column 'text'; its columns are content, id"):
        read(path)
    parquet.write_table(arrow.table({"text": [1, 2]}), path)
    with pytest.raises(DataError, match=r"a\.parquet: the column 'text' holds int64, not strings"):
        read(path)
    bad = arrow.Array.from_buffers(arrow.string(), 1, arrow.array([b"\xff"]).buffers())
    parquet.write_table(arrow.table({"text": bad}), path)
    with pytest.raises(DataError, match=r"a\.parquet, row 1 cannot be read: "):
        read(path)


def test_a_missing_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[data\]'"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.txt", "empty.txt has no text in it"),
        ("blank.jsonl", "blank.jsonl has no text in it"),
        ("nothing", "holds no file whose name ends in one of .txt, .md, .jsonl, .jsonl.gz, .parquet"),
        ("book.pdf", "its name should end in one of .txt, .md"),
        ("missing.txt", "there is no file or folder"),
        ("pipe.txt", "is not a file that can be read"),
        ("gone.txt", "is not a file that can be read"),
    ],
)
def test_what_holds_no_text_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.jsonl").write_bytes(b"\n\n")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "a.rst").write_text("a")
    (tmp_path / "book.pdf").write_text("a")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "missing.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"a\.txt cannot be read: Permission denied"):
        read(tmp_path)


def test_a_text_that_is_not_utf8_is_named_with_file_line_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\ncaf\xe9 au lait\n")
    found = read(tmp_path)
    with pytest.raises(DataError, match=r"a\.txt, line 3: b'\\xe9 au lai' is not UTF-8"):
        documents.require_utf8(found)
