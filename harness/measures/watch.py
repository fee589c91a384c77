"""Measures while a run trains: a callback for the loop, and the records it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from harness.data import Source
from harness.measures import scalars
from harness.measures.code import measured_by
from harness.measures.finding import Finding, failed
from harness.measures.suite import PROBED, VERSIONS, WHILE_TRAINING, measure
from harness.model import Decoder
from harness.records import MeasurementRecord, Store
from harness.train import Moment


@dataclass(frozen=True)
class Watch:
    """Measures after every so many steps, and after the last one.

    A look on the way leaves its values, and arrays of the variant's own scalars alone: a study of 15 runs has hundreds
    of looks, and the shape of a map is read off the trained model.

    Args:
        store: where the records go.
        source: the data of the run.
        every: steps between two looks.
        code_hash: of the code that trains.
    """

    store: Store
    source: Source
    every: int
    code_hash: str

    def __call__(self, moment: Moment) -> None:
        """See `train`."""
        if moment.step % self.every == 0 or moment.step == moment.steps:
            model = cast(Decoder, moment.model)
            try:
                found = measure(model, moment.run, self.source, WHILE_TRAINING, small=True)
            # A look never decides how a run ends.
            except (Exception, SystemExit) as error:
                found = dict.fromkeys(WHILE_TRAINING, failed(error))
            if moment.step < moment.steps:
                found = {name: one if name == scalars.NAME else Finding(one.values) for name, one in found.items()}
            hashes = {"code_hash": self.code_hash, "measuring": self.code_hash}
            write(self.store, moment.run.id, moment.step, found, **hashes, small=True)


def write(
    store: Store,
    run: str,
    step: int,
    found: Mapping[str, Finding],
    *,
    code_hash: str,
    measuring: str,
    small: bool = False,
) -> None:
    """Record findings; one that is recorded already, as by a training that was killed and went on, is not twice.

    Args:
        store: where.
        run: id of the run.
        step: of the training at which it was looked.
        found: measure to finding.
        code_hash: of the run's record: a run that was trained again by other code is another model.
        measuring: `environment.code_hash` now, of the code that rebuilt the model and looked at it.
        small: whether fewer sequences were looked at than a trained model is measured on.

    Raises:
        RecordError: a record cannot be written.
    """
    for name, finding in found.items():
        values = {**finding.values, "small_probe": small and name in PROBED, "code_hash": code_hash}
        record = MeasurementRecord(
            run=run,
            measure=name,
            version=VERSIONS[name],
            step=step,
            values=values,
            measured_by=measured_by(measuring),
        )
        store.write_measurement(record, finding.arrays or None)
