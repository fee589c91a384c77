"""Tokenizers account for every byte, learn from the training split alone, and are the same every time."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import bpe, cache, local
from harness.data.spelling import bytes_of_ids
from harness.data.tokenizer import ByteTokenizer, Tokenizer
from harness.data.vocabulary import VocabularyTokenizer, cut
from harness.errors import DataError, UsageError

tokenizers = pytest.importorskip("tokenizers")

TRAIN = ("the cat sat on the mat, and the other cat sat on the hat.\n" * 20 + "naïve 日本語 😀 " * 20).encode()
BPE = bpe.trained(320, TRAIN, None)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def saved(path: Path, tokenizer: Any) -> Path:
    tokenizer.save(str(path))
    return path


def metaspace(path: Path, *, fallback: bool = True) -> Path:
    """A tokenizer in the manner of SentencePiece, with byte fallback."""
    vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    for token in ("▁", "t", "h", "e", "▁t", "▁th", "▁the"):
        vocab[token] = len(vocab)
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e")]
    model = tokenizers.models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=fallback, fuse_unk=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return saved(path, tokenizer)


def word_piece(path: Path) -> Path:
    """A tokenizer that lowers case and drops blanks."""
    model = tokenizers.models.WordPiece({"[UNK]": 0, "the": 1, "cat": 2, "##s": 3}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return saved(path, tokenizer)


def pieces(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """The text, cut by the sizes of its tokens."""
    encoded = tokenizer.encode(text.encode(), where="text")
    ends = np.cumsum(encoded.sizes, dtype=np.int64).tolist()
    return [text.encode()[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@settings(derandomize=True)
@given(text=TEXT)
def test_sizes_sum_to_the_bytes_of_the_text(text: str) -> None:
    content = text.encode()
    for tokenizer in (ByteTokenizer(), BPE):
        encoded = tokenizer.encode(content, where="text")
        assert len(encoded.ids) == len(encoded.sizes)
        assert int(encoded.sizes.sum(dtype=np.int64)) == len(content)
        assert int(encoded.ids.max(initial=0)) < tokenizer.vocab_size


@settings(derandomize=True)
@given(text=TEXT)
def test_each_token_stands_for_the_bytes_it_spells(text: str) -> None:
    spelled = bytes_of_ids(tokenizers.Tokenizer.from_str(BPE.content), BPE.content)
    ids = BPE.encode(text.encode(), where="text").ids.tolist()
    assert [spelled[each] for each in ids] == pieces(BPE, text)


def test_a_character_cut_by_tokens_is_counted_once() -> None:
    found = pieces(BPE, "the 🦊")
    assert b"".join(found) == "the 🦊".encode()
    assert found[-3:] == [b" \xf0\x9f", b"\xa6", b"\x8a"]


def test_every_byte_has_a_token_of_its_own() -> None:
    spelled = bytes_of_ids(tokenizers.Tokenizer.from_str(BPE.content), BPE.content)
    assert {value for value in spelled.values() if len(value) == 1} == {bytes([byte]) for byte in range(256)}
    assert len(spelled) == BPE.vocab_size <= 320


def test_training_gives_the_same_tokenizer_every_time() -> None:
    assert bpe.trained(320, TRAIN, None).content == BPE.content
    assert bpe.trained(270, TRAIN, None).vocab_size == 270


@settings(derandomize=True)
@given(lines=st.lists(st.text("ab \n\r\té", max_size=3000), max_size=8))
def test_pieces_are_the_text_and_start_at_lines(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = list(cut(text))
    assert "".join(found) == text
    assert all(before.endswith("\n") and not after[0].isspace() for before, after in pairwise(found))
    assert all(len(piece) > 4096 for piece in found[:-1])


def test_the_cache_is_keyed_by_content_and_saves_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep" / "cache"
    first = bpe.trained(300, TRAIN, folder)
    encoded = first.encode(TRAIN, where="text")
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(VocabularyTokenizer, "_encoded", None)
    monkeypatch.setattr(tokenizers.trainers, "BpeTrainer", None)
    second = bpe.trained(300, TRAIN, folder)
    again = second.encode(TRAIN, where="text")
    assert second.content == first.content
    for one, other in ((encoded.ids, again.ids), (encoded.sizes, again.sizes)):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
    with pytest.raises(TypeError):
        bpe.trained(300, TRAIN + b"!", folder)


def test_a_damaged_cached_file_is_made_again(tmp_path: Path) -> None:
    cache.put(tmp_path, "name", b"content")
    assert cache.get(tmp_path, "name") == b"content"
    for damaged in (b"", (tmp_path / "name").read_bytes()[:-1]):
        (tmp_path / "name").write_bytes(damaged)
        assert cache.get(tmp_path, "name") is None
    assert [each.name for each in tmp_path.iterdir()] == ["name"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"the data cache .* cannot be written"):
        cache.put(tmp_path / "file", "name", b"content")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DataError, match="No space left on device"):
        cache.put(tmp_path, "name", b"content")
    assert not list(tmp_path.iterdir())


def test_a_local_tokenizer_loses_its_truncation_its_padding_and_its_dropout(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(BPE.content)
    tokenizer.enable_truncation(max_length=4)
    tokenizer.enable_padding(length=64)
    content = json.loads(tokenizer.to_str())
    content["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    found = local.read(tmp_path / "tokenizer.json", None).encode(TRAIN, where="text")
    assert np.array_equal(found.ids, BPE.encode(TRAIN, where="text").ids)


def test_special_tokens_are_not_added_but_counted_where_the_text_has_them(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(BPE.content)
    tokenizer.add_special_tokens(["<end>"])
    end = [("<end>", tokenizer.token_to_id("<end>"))]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="<end> $A", special_tokens=end)
    found = local.read(saved(tmp_path / "tokenizer.json", tokenizer), None)
    assert pieces(found, "cat<end>cat") == [b"cat", b"<end>", b"cat"]
    assert found.vocab_size == BPE.vocab_size + 1


def test_a_space_put_before_the_text_counts_for_nothing(tmp_path: Path) -> None:
    found = local.read(metaspace(tmp_path / "tokenizer.json"), None)
    assert pieces(found, "the the\n") == [b"the", b" the", b"\n"]
    assert pieces(found, " the")[-1] == b" the"
    assert b"".join(pieces(found, "日")) == "日".encode()


@settings(derandomize=True)
@given(text=TEXT.filter(lambda text: "▁" not in text))
def test_byte_fallback_accounts_for_every_byte(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = local.read(metaspace(tmp_path_factory.mktemp("fallback") / "tokenizer.json"), None)
    assert b"".join(pieces(found, text)) == text.encode()


def test_a_tokenizer_that_changes_or_skips_text_is_refused(tmp_path: Path) -> None:
    lossy = local.read(word_piece(tmp_path / "words.json"), None)
    assert pieces(lossy, "the") == [b"the"]
    for text in ("The", "the cat", "the zebra"):
        with pytest.raises(DataError, match=r"words\.json does not keep this text \(a, byte 0 \+ \d\)"):
            lossy.encode(text.encode(), where="a")
    unknown = local.read(metaspace(tmp_path / "unknown.json", fallback=False), None)
    with pytest.raises(DataError, match="use a byte-level tokenizer"):
        unknown.encode("the 日".encode(), where="a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON in UTF-8"),
        (b"\xff{}", "is not JSON in UTF-8"),
        (b"[]", "has no model"),
        (b'{"model": {"type": "none"}}', "that the package tokenizers can read"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        local.read(path, None)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"bpe:300 needs the package tokenizers .*'\.\[data\]'"):
        bpe.trained(300, TRAIN, None)
