"""A folder of records: the only place where results are written."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import RecordError, UsageError
from harness.records.claims import Claim, claim
from harness.records.kinds import ExperimentFile, MeasurementRecord, ReferenceRecord, RunRecord, TimingRecord
from harness.records.shelf import Shelf
from harness.records.whole import sweep, try_folder, write_whole

FOLDERS: Final = (
    "runs",
    "timings",
    "references",
    "measurements",
    "experiments",
    "studies",
    "checkpoints",
    "weights",
    "locks",
    "tables",
)
"""What a results folder holds; a committed study has the same, less checkpoints, weights and locks."""


class Store:
    """The records under one folder. Any number of processes may read and write it at once.

    Records are never edited: a second one of the same name is a new file, `<name>-2.json`, and the newest
    counts. Only an experiment's file, an index, is rewritten. A file that cannot be used is noted in
    `problems` and passed over. Each `write_…` raises `RecordError`, naming file and reason, where it fails,
    and then leaves no part of a file behind.

    Args:
        root: the folder; nothing is made before the first write.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._problems: dict[Path, str] = {}
        self._runs = Shelf(root, "runs", RunRecord, self._problems)
        self._timings = Shelf(root, "timings", TimingRecord, self._problems)
        self._references = Shelf(root, "references", ReferenceRecord, self._problems)
        self._measurements = Shelf(root, "measurements", MeasurementRecord, self._problems)
        self._experiments = Shelf(root, "experiments", ExperimentFile, self._problems)

    @property
    def problems(self) -> list[str]:
        """One line for each file that was met and could not be used, with its reason."""
        return list(self._problems.values())

    @property
    def tables(self) -> Path:
        """Folder of the tables."""
        return self.root / "tables"

    @property
    def studies(self) -> Path:
        """Folder of the searches' journals."""
        return self.root / "studies"

    def checkpoint_path(self, id: str) -> Path:
        """File of a run's checkpoint."""
        return self.root / "checkpoints" / f"{_plain(id)}.pt"

    def weights_path(self, id: str) -> Path:
        """File of a run's final weights."""
        return self.root / "weights" / f"{_plain(id)}.safetensors"

    def check_writable(self) -> None:
        """Tries, with a real file in each folder and a real lock, what training will have to rely on.

        What writers that were killed left unfinished is removed on the way.

        Raises:
            UsageError: the folder cannot be made or written.
        """
        try:
            for folder in FOLDERS:
                try_folder(self.root / folder)
                sweep(self.root / folder)
            self._runs.writing().release()
        except (RecordError, OSError) as error:
            message = f"results folder {self.root} cannot be used ({error}); name another (--out DIR)"
            raise UsageError(message) from error

    def claim(self, id: str) -> Claim | None:
        """The right to train a run, until it is released or this process dies.

        Look for the run's record once more when it is yours: its last holder may have written it meanwhile.

        Returns:
            The claim, to be used as a context; None where somebody else holds it.

        Raises:
            RecordError: the lock cannot be made.
        """
        return claim(self.root / "locks" / f"{_plain(id)}.lock")

    def hold(self, name: str) -> Claim:
        """A lock of that name, waited for; the kernel frees it when its holder dies.

        Raises:
            RecordError: the lock cannot be made.
        """
        held = claim(self.root / "locks" / f"{_plain(name)}.lock", wait=True)
        if held is None:
            raise RecordError(f"{name} cannot be locked in {self.root}")
        return held

    def write_run(self, record: RunRecord) -> RunRecord:
        """Writes a run's record; returns it as it stands on the disk, numbered (`fresh`)."""
        with self._runs.writing():
            numbered = dataclasses.replace(record, fresh=self._runs.next_number(record.stem))
            self._runs.write(numbered, numbered.fresh)
        return numbered

    def run(self, id: str, code_hash: str | None) -> RunRecord | None:
        """The record of a run that counts: the newest of this code, else the newest of any other (stale).

        Args:
            id: of the run.
            code_hash: `environment.code_hash` of its variant; None where any code will do.

        Returns:
            The record; None where there is none, or none that is sound: those are named in `problems`.
        """
        found = []
        for record in self._runs.named(id):
            if record.unsound is None:
                found.append(record)
            else:
                self._problems[self.root / "runs" / id] = f"run {id}: {record.unsound}"
        current = [record for record in found if record.code_hash == code_hash]
        return current[-1] if current else found[-1] if found else None

    def all_runs(self) -> list[RunRecord]:
        """Every run record there is, older ones of the same id included."""
        return self._runs.all()

    def write_timing(self, record: TimingRecord) -> None:
        """Writes a timing record."""
        self._timings.add(record)

    def timing(self, key: str) -> TimingRecord | None:
        """The newest timing record of that key."""
        found = self._timings.named(key)
        return found[-1] if found else None

    def all_timings(self) -> list[TimingRecord]:
        """Every timing record there is."""
        return self._timings.all()

    def write_reference(self, record: ReferenceRecord) -> None:
        """Writes the trivial rows of a corpus."""
        self._references.add(record)

    def reference(self, fingerprint: str, length: int, tokens: int) -> ReferenceRecord | None:
        """The newest trivial rows of that data, sequence length and number of scored tokens."""
        found = self._references.named(f"{fingerprint}-{length}-{tokens}")
        return found[-1] if found else None

    def all_references(self) -> list[ReferenceRecord]:
        """Every set of trivial rows there is."""
        return self._references.all()

    def write_experiment(self, file: ExperimentFile) -> None:
        """Writes an experiment's index, in the place of an older one."""
        self._experiments.write(file)

    def experiment(self, name: str, key: str) -> ExperimentFile | None:
        """The experiment of that name and key."""
        found = self._experiments.named(f"{name}-{key}")
        return found[-1] if found else None

    def all_experiments(self) -> list[ExperimentFile]:
        """Every experiment there is."""
        return self._experiments.all()

    def latest_experiment(self, name: str) -> ExperimentFile | None:
        """The experiment of that name, or of that name and key; of several the one written last."""
        found = [file for file in self.all_experiments() if name in (file.name, file.stem)]
        folder = self.root / "experiments"
        return max(found, key=lambda file: (folder / f"{file.stem}.json").stat().st_mtime_ns, default=None)

    def write_measurement(
        self, record: MeasurementRecord, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> MeasurementRecord:
        """Writes a measurement.

        Args:
            record: what was found.
            arrays: what is too large for JSON, by name, any shape; kept beside it as compressed NumPy.

        Returns:
            The record as it stands on the disk, with the hash of its arrays.
        """
        if arrays is not None:
            content = _packed(arrays)
            record = dataclasses.replace(record, arrays=hashlib.sha256(content).hexdigest())
            write_whole(self._arrays_path(record), content)
        self._measurements.add(record)
        return record

    def measurement(self, run: str, measure: str, version: int, step: int) -> MeasurementRecord | None:
        """The newest measurement of that run by that version of a measure, at that step."""
        found = self._measurements.named(f"{run}-{measure}-v{version}-{step}")
        return found[-1] if found else None

    def all_measurements(self) -> list[MeasurementRecord]:
        """Every measurement there is."""
        return self._measurements.all()

    def arrays(self, record: MeasurementRecord) -> dict[str, NDArray[Any]]:
        """The arrays beside a measurement, by name; none where it has none.

        Raises:
            RecordError: the file is missing, or not the one that the record names.
        """
        if record.arrays is None:
            return {}
        path = self._arrays_path(record)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(content).hexdigest() != record.arrays:
            raise RecordError(f"{path}: not what its record says (another SHA-256)")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            return dict(found)

    def _arrays_path(self, record: MeasurementRecord) -> Path:
        # The hash in the name keeps the arrays of an older measurement beside those of a newer one.
        return self._measurements.folder / f"{_plain(record.stem)}-{(record.arrays or '')[:8]}.npz"


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    # np.savez stamps the time of day into the file; the same arrays should give the same bytes.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(arrays[name]), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content.getvalue())
    return buffer.getvalue()


def _plain(id: str) -> str:
    if not re.fullmatch(r"\w[\w.=+-]*", id, re.ASCII):
        raise RecordError(f"{id!r} cannot be the name of a file")
    return id
