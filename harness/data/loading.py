"""From the names on the command line to a source."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.data import backcopy, bpe, documents, kjv, local, split, stdlib, vocabulary
from harness.data.source import Source
from harness.data.text import TextSource, tokenised
from harness.data.tokenizer import ByteTokenizer, Tokenizer
from harness.errors import DataError, UsageError, unknown

CORPORA: Final = ("kjv", stdlib.NAME)
"""Corpora with a name of their own; everything else is a path."""

TOKENIZERS: Final = ("bytes", "bpe:4096", "a path to a tokenizer.json")
"""What a tokenizer may be; the number of tokens after `bpe:` is free."""


def load(corpus: str, tokenizer: str = "bytes", *, cache: Path | None = None) -> Source:
    """A corpus, checked whole, split and tokenised.

    Args:
        corpus: `kjv`, `python-stdlib`, or the path of a file or folder; see `documents.read` for what can be
            read. `backcopy-1`, or `backcopy-1:CORPUS`, is the task of that name over the characters of a corpus.
        tokenizer: `bytes`; `bpe:N`, trained on the training split, N from 257 to 1,000,000; or the path of a
            tokenizer.json.
        cache: folder for trained tokenizers and for tokens, by content; nothing is kept without one.

    Returns:
        The source.

    Raises:
        UsageError: there is no such corpus or tokenizer, or a package is missing.
        DataError: the text or the tokenizer cannot be read, they do not fit, or a split is too small.
    """
    task, _, text = corpus.partition(":")
    if task == backcopy.NAME:
        if tokenizer != "bytes":
            raise UsageError(f"the task {task} has characters for tokens; leave --tokenizer {tokenizer} out")
        source = load(text or "kjv")
        if not isinstance(source, TextSource):
            raise UsageError(f"the task {task} needs a text, not {text}")
        return backcopy.backcopy(source.name, source.texts["train"])
    make = _tokenizer(tokenizer, cache)
    if corpus == "kjv":
        texts, rule, name, about = kjv.read(), kjv.RULE, "kjv", "kjv (66 books)"
    else:
        found, name, about = _documents(corpus)
        if tokenizer != "bytes":
            documents.require_utf8(found)
        texts, rule = split.split_documents(name, found), split.RULE
    return tokenised(name, texts, make(texts["train"]), rule, about)


def _documents(corpus: str) -> tuple[list[split.Document], str, str]:
    if corpus == stdlib.NAME:
        found = stdlib.read()
        return found, stdlib.NAME, f"{stdlib.NAME} ({stdlib.version()}, {len(found):,} documents)"
    path = Path(os.path.expanduser(corpus))
    if not corpus or not os.path.lexists(path):
        raise _no_such(corpus, path)
    found = documents.read(path)
    name = path.resolve().name
    return found, name, f"{name} ({len(found):,} {'document' if len(found) == 1 else 'documents'})"


def _no_such(corpus: str, path: Path) -> UsageError:
    if corpus == path.name and not path.suffix:
        return unknown("corpus or path", corpus, CORPORA)
    try:
        names = os.listdir(path.parent)
    except OSError:  # the folder is missing too, or closed: nothing to suggest
        names = []
    hint = f"a corpus is a path, {' or '.join(CORPORA)}"
    for close in difflib.get_close_matches(path.name, names, n=1):
        hint = f"did you mean {str(path.with_name(close))!r}?"
    return DataError(f"there is no file or folder {corpus!r}; {hint}")


def _tokenizer(name: str, cache: Path | None) -> Callable[[bytes], Tokenizer]:
    if name == "bytes":
        return lambda train: ByteTokenizer()
    if name.startswith("bpe:"):
        size = int(name[4:]) if re.fullmatch("[0-9]{1,9}", name[4:]) else 0
        if not bpe.SMALLEST <= size <= bpe.LARGEST:
            allowed = f"bpe:N with a whole number N from {bpe.SMALLEST} to {bpe.LARGEST:,}"
            raise UsageError(f"no tokenizer {name!r}: {allowed}, for example bpe:4096")
        vocabulary.package(name)
        return lambda train: bpe.trained(size, train, cache)
    path = Path(os.path.expanduser(name))
    if not name or not os.path.lexists(path):
        raise unknown("tokenizer", name, TOKENIZERS)
    if os.path.isdir(path):
        raise DataError(f"the tokenizer {name} is a folder; give the path of the tokenizer.json itself")
    read = local.read(path, cache)
    return lambda train: read
