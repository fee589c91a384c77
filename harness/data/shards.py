"""Files that hold many documents: JSON lines and Parquet, both with the column names of FineWeb-Edu."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.data.split import Document
from harness.errors import DataError, UsageError

FIELD: Final = "text"
"""The field, or column, with the text of a document; every other one is ignored."""

_ROWS = 1024


def read_jsonl(path: Path) -> Iterator[Document]:
    """The documents of a file with one JSON object a line, plain or compressed with gzip.

    Lines end at a line feed. Blank lines are skipped, and so is a byte order mark at the start of the file.

    Args:
        path: the file; compressed when its name ends in `.gz`.

    Yields:
        The documents, UTF-8; without the null ones.

    Raises:
        DataError: names the file, the line and what stands there.
    """
    line = 0
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            for line, content in enumerate(file, start=1):
                where = f"{path}, line {line:,}"
                text = _text_of(content, where, encoding="utf-8-sig" if line == 1 else "utf-8")
                if text is not None:
                    yield Document(where, text)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read after line {line:,}: {error}") from error


def _text_of(content: bytes, where: str, *, encoding: str) -> bytes | None:
    if not content.strip():
        return None
    try:
        value = json.loads(content.decode(encoding))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON in UTF-8 ({error}): {_shown(content)}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: a JSON object is needed, this is {_shown(content)}")
    if FIELD not in value:
        raise DataError(f"{where}: no field {FIELD!r}; its fields are {', '.join(map(repr, value)) or 'none'}")
    return _encoded(value[FIELD], where)


def read_parquet(path: Path) -> Iterator[Document]:
    """The documents of a Parquet file.

    Args:
        path: the file; its column `text` holds strings, large or dictionary-coded ones too.

    Yields:
        The documents, UTF-8; without the null ones.

    Raises:
        UsageError: pyarrow is not installed.
        DataError: names the file, the row and what stands there.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(f"{path} needs the package pyarrow ({error}); pip install -e '.[data]'") from error
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            _require_strings(path, file.schema_arrow, arrow)
            for batch in file.iter_batches(batch_size=_ROWS, columns=[FIELD]):
                for value in batch.column(0):
                    row += 1
                    where = f"{path}, row {row:,}"
                    text = _encoded(value.as_py(), where)
                    if text is not None:
                        yield Document(where, text)
    except (OSError, arrow.ArrowException, UnicodeDecodeError) as error:
        place = f", row {row:,}" if row else ""
        raise DataError(f"{path}{place} cannot be read: {str(error).splitlines()[0]}") from error


def _require_strings(path: Path, schema: Any, arrow: Any) -> None:
    if FIELD not in schema.names:
        raise DataError(f"{path}: no column {FIELD!r}; its columns are {', '.join(schema.names) or 'none'}")
    kind = schema.field(FIELD).type
    value = kind.value_type if arrow.types.is_dictionary(kind) else kind
    tests = (
        arrow.types.is_string,
        arrow.types.is_large_string,
        arrow.types.is_string_view,
        arrow.types.is_null,
    )
    if not any(test(value) for test in tests):
        raise DataError(f"{path}: the column {FIELD!r} holds {kind}, not strings")


def _encoded(value: object, where: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise DataError(
            f"{where}: the field {FIELD!r} should be a string, this is {_shown(json.dumps(value).encode())}"
        )
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: the text holds half a surrogate pair, {value[error.start]!r}") from error


def _shown(content: bytes) -> str:
    text = content.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= 60 else text[:57] + "..."
