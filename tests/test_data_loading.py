"""One name gives one source, the same whatever the format; every mistake is one clear line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.data import SPLITS, load, references
from harness.errors import DataError, UsageError

TEXTS = [f"This is document {n}, which says {n * n} and naïvely no more.\n" * 3 for n in range(400)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return path


def test_the_same_documents_are_the_same_corpus_in_every_format(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number:04}.txt").write_bytes(text.encode())
    one, other = load(str(corpus)), load(str(folder))
    assert one.fingerprint == other.fingerprint
    assert (one.name, other.name) == ("corpus.jsonl", "folder")
    for split in SPLITS:
        before, after = (source.evaluation(split, length=32, tokens=320) for source in (one, other))
        assert np.array_equal(before.inputs, after.inputs)


def test_a_tokenizer_changes_the_tokens_but_not_the_bytes_they_stand_for(corpus: Path, tmp_path: Path) -> None:
    plain, merged = load(str(corpus)), load(str(corpus), "bpe:300", cache=tmp_path)
    assert plain.fingerprint != merged.fingerprint
    assert merged.vocab_size == 300
    assert merged.description.startswith("corpus.jsonl (400 documents), bpe:300 (300 tokens); bytes: train ")
    assert plain.description.rpartition(";")[2] == merged.description.rpartition(";")[2]
    for row in references(merged, length=16, tokens=512):
        scored = merged.evaluation("report", length=16, tokens=512)
        bits = row.nats_per_token * 512 / math.log(2) / int(scored.target_bytes.sum())
        assert row.bits_per_byte == pytest.approx(bits)


def test_a_local_tokenizer_gives_what_the_trained_one_gives(corpus: Path, tmp_path: Path) -> None:
    from harness.data import bpe, documents, split

    texts = split.split_documents("corpus", documents.read(corpus))
    (tmp_path / "mine.json").write_text(bpe.trained(300, texts["train"], None).content, encoding="utf-8")
    trained, mine = load(str(corpus), "bpe:300"), load(str(corpus), str(tmp_path / "mine.json"))
    again = load(str(corpus), "bpe:300")
    assert trained.fingerprint == again.fingerprint
    assert mine.description.startswith("corpus.jsonl (400 documents), mine.json (300 tokens); ")
    for split_name in SPLITS:
        one, other = (source.evaluation(split_name, length=16, tokens=256) for source in (trained, mine))
        assert np.array_equal(one.inputs, other.inputs)
        assert np.array_equal(one.target_bytes, other.target_bytes)


def test_any_bytes_will_do_for_bytes_and_utf8_is_asked_for_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("".join(TEXTS).encode("latin-1"))
    assert load(str(path)).vocab_size == 256
    with pytest.raises(DataError, match=r"latin\.txt, line 1: b'\\xefvely no' is not UTF-8"):
        load(str(path), "bpe:300")


def test_the_standard_library_is_a_corpus() -> None:
    source = load("python-stdlib")
    version = ".".join(map(str, sys.version_info[:3]))
    assert source.name == "python-stdlib"
    assert f"CPython {version}, " in source.description or version in source.description
    source.check(length=256, tokens=100_000)
    sample = bytes(source.evaluation("train", length=1 << 20, tokens=1 << 20).inputs.astype(np.uint8).ravel())
    assert b"def " in sample
    assert b"site-packages/" not in sample[:1000]


@pytest.mark.parametrize("name", ["bpe:0", "bpe:abc", "bpe:256", "bpe:", "bpe:-5", "bpe:4_096", "bpe:10000000000"])
def test_an_impossible_vocabulary_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="with a whole number N from 257 to 1,000,000"):
        load("kjv", name)


@pytest.mark.parametrize(
    ("corpus", "tokenizer", "message"),
    [
        ("kvj", "bytes", "no corpus or path 'kvj'; did you mean 'kjv'"),
        ("python_stdlib", "bytes", "did you mean 'python-stdlib'"),
        ("", "bytes", "no corpus or path ''"),
        ("no/such/file.txt", "bytes", "there is no file or folder 'no/such/file.txt'"),
        ("kjv", "byte", "no tokenizer 'byte'; did you mean 'bytes'"),
        ("kjv", "BPE:4096", "no tokenizer 'BPE:4096'; did you mean 'bpe:4096'"),
        ("kjv", "no/tokenizer.json", "no tokenizer 'no/tokenizer.json'"),
        ("kjv", "", "no tokenizer ''"),
    ],
)
def test_a_wrong_name_is_one_line_with_what_there_is(corpus: str, tokenizer: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load(corpus, tokenizer)
    assert len(str(caught.value).splitlines()) == 1


def test_a_misspelt_path_is_corrected(corpus: Path) -> None:
    with pytest.raises(DataError, match=r"did you mean '.*corpus\.jsonl'"):
        load(str(corpus.with_name("corpis.jsonl")))


def test_a_folder_is_not_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder; give the path of the tokenizer\.json itself"):
        load("kjv", str(tmp_path))


def test_a_text_too_small_for_the_run_is_refused_before_it(corpus: Path) -> None:
    source = load(str(corpus))
    source.check(length=64, tokens=1000)
    with pytest.raises(DataError, match=r"the train split of corpus\.jsonl has .* tokens, but .* need 100,033"):
        source.check(length=64, tokens=100_000)


def test_the_room_needs_numpy_alone_at_import() -> None:
    heavy = "{'torch', 'pandas', 'scipy', 'tokenizers', 'pyarrow', 'pythonbible'}"
    code = f"import sys, harness.data; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
