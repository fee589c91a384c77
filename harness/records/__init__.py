"""What was found, as files: the only room that writes results. Each is written whole or not at all."""

from __future__ import annotations

from harness.records.claims import Claim
from harness.records.kinds import (
    Arm,
    ArmTiming,
    Corpus,
    ExperimentFile,
    MeasurementRecord,
    ReferenceRecord,
    ReferenceRow,
    RunRecord,
    Status,
    TimingRecord,
)
from harness.records.schema import SCHEMA, Record
from harness.records.store import FOLDERS, Store
from harness.records.whole import try_folder, whole, write_whole

__all__ = [
    "FOLDERS",
    "SCHEMA",
    "Arm",
    "ArmTiming",
    "Claim",
    "Corpus",
    "ExperimentFile",
    "MeasurementRecord",
    "Record",
    "ReferenceRecord",
    "ReferenceRow",
    "RunRecord",
    "Status",
    "Store",
    "TimingRecord",
    "try_folder",
    "whole",
    "write_whole",
]
