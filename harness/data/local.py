"""A tokenizer.json of the user's."""

from __future__ import annotations

import json
from pathlib import Path

from harness.data.vocabulary import VocabularyTokenizer, package
from harness.errors import DataError, UsageError


def read(path: Path, cache: Path | None) -> VocabularyTokenizer:
    """The tokenizer in a local tokenizer.json, with its truncation, its padding and its dropout switched off.

    Args:
        path: the file.
        cache: where the tokens of a text are kept, or None.

    Returns:
        The tokenizer.

    Raises:
        UsageError: the package is missing.
        DataError: the file cannot be read or is not a tokenizer.
    """
    package(str(path))
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise DataError(f"the tokenizer {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the tokenizer {path} is not JSON in UTF-8: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataError(f"{path} is not a tokenizer.json: it has no model")
    content.update(truncation=None, padding=None)
    if "dropout" in content["model"]:
        content["model"]["dropout"] = None
    try:
        return VocabularyTokenizer("tokenizer.json", path.name, json.dumps(content, sort_keys=True), cache)
    except UsageError:
        raise
    except Exception as error:  # the package raises nothing more special than this
        raise DataError(f"{path} is not a tokenizer.json that the package tokenizers can read: {error}") from error
