"""The records of one kind: a folder of files, each whole, each checked when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

from harness.errors import RecordError
from harness.records.claims import Claim, claim
from harness.records.schema import Record
from harness.records.whole import write_whole

_R = TypeVar("_R", bound=Record)
_NAME = re.compile(r"\w[\w.=+-]*", re.ASCII)


class Shelf(Generic[_R]):
    """A folder of records of one kind.

    The first record of a name is `<name>.json`, later ones `<name>-2.json` and so on; none is ever deleted.

    Args:
        root: of the results.
        folder: below it.
        kind: of the records.
        problems: where files that cannot be used are noted, each with its reason.
    """

    def __init__(self, root: Path, folder: str, kind: type[_R], problems: dict[Path, str]) -> None:
        self.folder = root / folder
        self._lock = root / "locks" / f"write-{folder}.lock"
        self._kind = kind
        self._problems = problems

    def writing(self) -> Claim:
        """The right to give out numbers, waited for; writers hold it for one file.

        Raises:
            RecordError: the lock cannot be made.
        """
        held = claim(self._lock, wait=True)
        if held is None:
            raise RecordError(f"{self._lock} cannot be locked")
        return held

    def next_number(self, stem: str) -> int:
        """The number that the next record of that name gets; a file that cannot be read keeps its own."""
        return 1 + max((number for number, _ in self._files(stem)), default=0)

    def write(self, record: _R, number: int = 1) -> None:
        """Writes the file of that record and number, whole or not at all.

        Raises:
            RecordError: it cannot be written; the message names the file and the reason.
        """
        write_whole(self._path(record.stem, number), record.to_json().encode())

    def add(self, record: _R) -> None:
        """Writes a record beside the older ones of its name, unless the newest of them says the same.

        Raises:
            RecordError: as `write`.
        """
        with self.writing():
            files, text = sorted(self._files(record.stem)), record.to_json()
            newest = self._read(path for _, path in files[-1:])
            if all(other.to_json() != text for other in newest):
                self.write(record, 1 + max((number for number, _ in files), default=0))

    def named(self, stem: str) -> list[_R]:
        """The readable records of that name, oldest first."""
        found = self._read(path for _, path in self._files(stem))
        return [record for record in found if record.stem == stem]

    def all(self) -> list[_R]:
        """Every readable record, in the order of names and numbers."""
        return self._read(self._listed())

    def _path(self, stem: str, number: int) -> Path:
        if not _NAME.fullmatch(stem):
            raise RecordError(f"{stem!r} cannot be the name of a file in {self.folder}")
        return self.folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")

    def _listed(self) -> list[Path]:
        # Hidden files are the unfinished ones of writers, living or dead.
        try:
            named = [path for path in self.folder.iterdir() if path.suffix == ".json" and path.name[0] != "."]
            # A pipe in the place of a file would be waited for without end.
            return [path for path in named if not path.is_fifo()]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._problems[self.folder] = f"{self.folder} cannot be read: {error.strerror or error}"
            return []

    def _files(self, stem: str) -> list[tuple[int, Path]]:
        found = ((_number(path.stem, stem), path) for path in self._listed())
        return [(number, path) for number, path in found if number]

    def _read(self, paths: Iterable[Path]) -> list[_R]:
        found = []
        for path in paths:
            try:
                record = self._kind.from_json(path.read_text(encoding="utf-8"), where=path)
                number = _number(path.stem, record.stem)
                if not number or not record.fits(number):
                    raise RecordError(f"{path}: holds {record.kind} {record.stem}, which is named otherwise")
                found.append((number, record))
            except FileNotFoundError:
                continue
            except RecordError as error:
                self._problems[path] = str(error)
            except UnicodeDecodeError:
                self._problems[path] = f"{path}: not text"
            except OSError as error:
                self._problems[path] = f"{path} cannot be read: {error.strerror or error}"
        return [record for _, record in sorted(found, key=lambda entry: (entry[1].stem, entry[0]))]


def _number(name: str, stem: str) -> int:
    """Which record of `stem` the file `name` holds, from 1; 0 where it is none of them."""
    if name == stem:
        return 1
    tail = name.removeprefix(f"{stem}-")
    return int(tail) if tail != name and re.fullmatch(r"[1-9][0-9]{0,8}", tail) and tail != "1" else 0
