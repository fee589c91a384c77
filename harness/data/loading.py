"""From the names on the command line to a source."""

from __future__ import annotations

from pathlib import Path

from harness.data import kjv
from harness.data.source import Source
from harness.data.text import tokenised
from harness.data.tokenizer import ByteTokenizer
from harness.errors import unknown


def load(corpus: str, tokenizer: str = "bytes", *, cache: Path | None = None) -> Source:
    """A corpus, split and tokenised.

    Args:
        corpus: `kjv`.
        tokenizer: `bytes`.
        cache: folder for trained tokenizers and token streams; nothing is kept without one.

    Returns:
        The source.

    Raises:
        DataError: the corpus cannot be read or is too small to be split.
        UsageError: there is no such corpus or tokenizer.
    """
    if corpus != "kjv":
        raise unknown("corpus", corpus, ["kjv"])
    if tokenizer != "bytes":
        raise unknown("tokenizer", tokenizer, ["bytes"])
    return tokenised("kjv", kjv.read(), ByteTokenizer(), kjv.RULE)
