"""A text corpus as a source: three token streams, cut into sequences."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.data.source import SPLITS, Batch, Evaluation
from harness.data.tokenizer import Stream, Tokenizer
from harness.data.windows import cut, evaluation_starts, training_starts
from harness.errors import DataError, unknown


@dataclass(frozen=True, eq=False)
class TextSource:
    """Text in three splits, tokenised; the documents of a split follow each other without a mark between
    them.

    Args:
        name: short name of the corpus.
        fingerprint: SHA-256 of the split rule, the text of each split and its tokens.
        vocab_size: number of token ids.
        description: corpus, tokenizer and sizes, one line.
        texts: the bytes of each split.
        tokens: token ids of each split, [N].
        sizes: bytes of text each token stands for, [N]; they sum to the length of the text.
    """

    name: str
    fingerprint: str
    vocab_size: int
    description: str
    texts: Mapping[str, bytes]
    tokens: Mapping[str, Stream]
    sizes: Mapping[str, Stream]

    def training_batch(self, *, seed: int, step: int, rows: int, length: int) -> Batch:
        """Sequences that start anywhere in the training split, each start equally likely; see `Source`."""
        stream = self.tokens["train"]
        self._require("train", length=length, count=1)
        starts = training_starts(seed=seed, step=step, rows=rows, choices=len(stream) - length)
        window = cut(stream, starts, length + 1)
        return Batch(inputs=window[:, :-1], targets=window[:, 1:])

    def evaluation(self, split: str, *, length: int, tokens: int) -> Evaluation:
        """Evenly spaced sequences of a split, no target twice; see `Source`."""
        starts = self._starts(split, length, tokens)
        window = cut(self.tokens[split], starts, length + 1)
        return Evaluation(
            inputs=window[:, :-1],
            targets=window[:, 1:],
            target_bytes=cut(self.sizes[split], starts + 1, length),
        )

    def check(self, *, length: int, tokens: int) -> None:
        """Every split must hold the sequences of one evaluation; see `Source`."""
        for split in SPLITS:
            self._require(split, length=length, count=-(-tokens // length))

    def covered(self, split: str, *, length: int, tokens: int) -> bytes:
        """The text behind the targets of an evaluation, its sequences one after another.

        Args:
            split: name of the split.
            length: tokens a sequence, as in `evaluation`.
            tokens: targets, as in `evaluation`.

        Returns:
            The bytes; as many as the `target_bytes` of the evaluation sum to.
        """
        starts = self._starts(split, length, tokens)
        ends = np.concatenate(([0], np.cumsum(self.sizes[split], dtype=np.int64)))
        text = self.texts[split]
        return b"".join(text[ends[start + 1] : ends[start + 1 + length]] for start in starts)

    def _starts(self, split: str, length: int, tokens: int) -> NDArray[np.int64]:
        if split not in self.tokens:
            raise unknown("split", split, SPLITS)
        count = -(-tokens // length)
        self._require(split, length=length, count=count)
        return evaluation_starts(available=len(self.tokens[split]), length=length, count=count)

    def _require(self, split: str, *, length: int, count: int) -> None:
        has, needs = len(self.tokens[split]), count * length + 1
        if has < needs:
            raise DataError(
                f"the {split} split of {self.name} has {has:,} tokens, but {count:,} sequences of "
                f"{length:,} need {needs:,}; use a longer text, or lower data.report_tokens, data.curve_tokens or "
                "data.length"
            )


def tokenised(name: str, texts: Mapping[str, bytes], tokenizer: Tokenizer, rule: str, about: str = "") -> TextSource:
    """Tokenise three splits and take their fingerprint.

    Args:
        name: short name of the corpus.
        texts: the bytes of each split.
        tokenizer: turns a split's bytes into ids.
        rule: name and version of the rule that made the splits.
        about: the corpus in a few words; its name unless given.

    Returns:
        The source.

    Raises:
        DataError: the tokenizer cannot account for every byte of the text.
    """
    encoded = {split: tokenizer.encode(texts[split], where=f"{name}, {split} split") for split in SPLITS}
    digest = hashlib.sha256(f"{rule}\n{tokenizer.name}\n{tokenizer.vocab_size}\n".encode())
    for split in SPLITS:
        tokens = encoded[split].ids
        digest.update(f"{split} {len(texts[split])} {len(tokens)}\n".encode())
        digest.update(texts[split])
        digest.update(np.ascontiguousarray(tokens, dtype=tokens.dtype.newbyteorder("<")).data)
    sizes = ", ".join(f"{split} {len(texts[split]):,}" for split in SPLITS)
    return TextSource(
        name=name,
        fingerprint=digest.hexdigest(),
        vocab_size=tokenizer.vocab_size,
        description=f"{about or name}, {tokenizer.description}; bytes: {sizes}",
        texts=texts,
        tokens={split: encoded[split].ids for split in SPLITS},
        sizes={split: encoded[split].sizes for split in SPLITS},
    )
