"""Documents go whole into one split each by what they say; a long one is cut with gaps."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.source import SPLITS
from harness.data.split import PERCENT, Document, split_documents
from harness.errors import DataError


def documents(*texts: bytes) -> list[Document]:
    return [Document(f"document {number}", text) for number, text in enumerate(texts)]


def numbered(count: int) -> bytes:
    """Lines of 16 bytes that say where they stand, forwards and backwards."""
    names = (b"%07d" % (n * 16) for n in range(count))
    return b"".join(b"%s.%s\n" % (name, name[::-1]) for name in names)


def places(text: bytes) -> list[int]:
    """Offsets, in the whole document, of the lines that are whole in a part of it."""
    return [int(each[:7]) for each in text.splitlines() if len(each) == 15 and each == each[::-1]]


@settings(derandomize=True, max_examples=50)
@given(seed=st.integers(0, 10**6), count=st.integers(100, 200), longest=st.integers(5, 60))
def test_whole_documents_are_in_exactly_one_split_and_none_is_lost(seed: int, count: int, longest: int) -> None:
    draw = random.Random(seed)
    texts = [b"<%d %s>" % (n, b"x" * draw.randint(1, longest)) for n in range(count)]
    splits = split_documents("some", documents(*texts))
    homes = [[split for split in SPLITS if text in splits[split]] for text in texts]
    assert all(len(home) == 1 for home in homes)
    assert sum(map(len, splits.values())) == sum(map(len, texts))
    for split in SPLITS:
        inside = b"".join(text for text, home in zip(texts, homes, strict=True) if home == [split])
        assert splits[split] == inside


@settings(derandomize=True, max_examples=50)
@given(seed=st.integers(0, 10**6), count=st.integers(40, 300), longest=st.integers(5, 3000))
def test_every_split_gets_at_least_half_of_its_share(seed: int, count: int, longest: int) -> None:
    draw = random.Random(seed)
    texts = [draw.randbytes(draw.randint(longest // 2, longest)) for _ in range(count)]
    splits = split_documents("some", documents(*texts))
    for split in SPLITS:
        assert len(splits[split]) * 200 >= sum(map(len, texts)) * PERCENT[split]


@settings(derandomize=True, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_the_split_does_not_depend_on_order_or_names(seed: int) -> None:
    texts = [b"<%d>" % n for n in range(300)]
    before = split_documents("some", documents(*texts))
    random.Random(seed).shuffle(texts)
    after = split_documents("other", [Document("elsewhere", text) for text in texts])
    for split in SPLITS:
        assert sorted(before[split].split(b">")) == sorted(after[split].split(b">"))


def test_equal_documents_stay_together() -> None:
    texts = [b"<%d>" % (n % 100) for n in range(300)]
    splits = split_documents("some", documents(*texts))
    for text in texts[:100]:
        assert sorted(splits[split].count(text) for split in SPLITS) == [0, 0, 3]


@settings(derandomize=True, max_examples=20)
@given(count=st.integers(2000, 20_000))
def test_a_long_document_is_cut_into_blocks_with_gaps_between_splits(count: int) -> None:
    text = numbered(count)
    splits = split_documents("long", documents(text))
    found = {split: places(splits[split]) for split in SPLITS}
    gap = min(1024, max(len(text) // 200, 256) // 4)
    homes = sorted((place, split) for split in SPLITS for place in found[split])
    assert len({place for place, _ in homes}) == len(homes)
    assert all(found[split] == sorted(found[split]) for split in SPLITS)
    changes = 0
    for (before, one), (after, other) in pairwise(homes):
        if one != other:
            changes += 1
            assert after - (before + 16) >= gap
    assert changes >= 4
    assert sum(map(len, splits.values())) >= len(text) - changes * (gap + 3)


def test_a_long_document_among_short_ones_is_cut_and_they_are_not() -> None:
    short = [b"<short %d>" % n for n in range(2000)]
    splits = split_documents("mixed", documents(numbered(5000), *short))
    assert all(sum(text in splits[split] for split in SPLITS) == 1 for text in short)
    assert all(places(splits[split]) for split in SPLITS)


def test_blocks_end_at_lines_or_between_characters() -> None:
    text = "длинный текст без строк ".encode() * 5000
    splits = split_documents("russian", documents(text))
    assert all(splits[split].decode("utf-8") for split in SPLITS)


def test_text_that_is_not_utf8_is_cut_too() -> None:
    splits = split_documents("bytes", documents(b"\x80" * 100_000))
    assert all(set(splits[split]) == {0x80} for split in SPLITS)


@pytest.mark.parametrize("text", [b"x", b"short text\n" * 20, b"\n"])
def test_a_short_text_names_the_split_what_it_has_and_what_it_needs(text: bytes) -> None:
    with pytest.raises(DataError, match=r"the \w+ split of tiny has 0 bytes, but should have .* needs"):
        split_documents("tiny", documents(text))


def test_many_copies_of_one_document_cannot_be_split() -> None:
    with pytest.raises(DataError, match="the selection split of copies has 0 bytes, but should have 1,500"):
        split_documents("copies", documents(*[b"the same"[:6]] * 5000))


def test_the_rule_is_pinned() -> None:
    splits = split_documents("pinned", documents(numbered(4000), *(b"<%d>" % n for n in range(4000))))
    digest = hashlib.sha256(b"|".join(splits[split] for split in SPLITS)).hexdigest()
    assert digest == "a9c20b1e4dfffa0b9ba9f67aeac5233f7e6e3e7008b3d6f84fa12e525cf8efbb"
