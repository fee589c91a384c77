"""Byte-level BPE, trained on the training split and kept by content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from harness.data import cache as kept
from harness.data.vocabulary import VocabularyTokenizer, cut, package

SMALLEST: Final = 257
"""One merge beyond the 256 bytes."""

LARGEST: Final = 1_000_000


def trained(size: int, train: bytes, cache: Path | None) -> VocabularyTokenizer:
    """A byte-level BPE tokenizer, trained on the training split and on nothing else.

    Each of the 256 bytes is a token; pairs seen twice or more are merged until there are `size` tokens or no
    such pair is left. Digits, letters, other signs and blanks are kept apart as in GPT-2.

    Args:
        size: tokens wanted, 257 to 1,000,000.
        train: the training text, UTF-8.
        cache: where the tokenizer and the tokens are kept, or None.

    Returns:
        The tokenizer; the same text and size give the same one.

    Raises:
        UsageError: the package is missing.
    """
    label = f"bpe:{size}"
    tokenizers = package(label)
    name = f"bpe-{size}-{hashlib.sha256(train).hexdigest()}.json"
    content = kept.get(cache, name)
    if content is None:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(cut(train.decode("utf-8")), trainer)
        content = tokenizer.to_str().encode()
        kept.put(cache, name, content)
    return VocabularyTokenizer(name=label, label=label, content=content.decode("utf-8"), cache=cache)
