"""The records: what runs, timings, measurements and trivial rows gave, and which arms an experiment has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypedDict

from harness.config import RunConfig
from harness.errors import UsageError
from harness.records.schema import Record

Status = Literal["ok", "diverged", "leaks", "out of memory", "crashed"]


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """One training at one seed, and what it gave.

    Args:
        id: of its config (`RunConfig.id`).
        status: how it ended.
        error: one line of why, where it did not end well.
        config: `RunConfig.to_dict()`.
        backend: what the core ran on.
        parameters: of the model; None where none was built.
        metrics: name with unit to value at the last step, e.g. `val_loss_nats`, `val_bits_per_byte`.
        curve: one entry a point of the training curve.
        environment: `environment.describe()`.
        commit, dirty: `environment.commit()`.
        code_hash: `environment.code_hash(variant, pattern)`.
        fresh: which training of this id it is, from 1; the store counts.
        started: UTC, ISO 8601.
        seconds: from start to end.
    """

    kind: ClassVar[str] = "run"

    id: str
    status: Status
    error: str | None = None
    config: dict[str, Any]
    backend: str
    parameters: int | None
    metrics: dict[str, float | None]
    curve: list[dict[str, Any]]
    environment: dict[str, Any]
    commit: str | None
    dirty: bool | None
    code_hash: str
    fresh: int = 1
    started: str
    seconds: float

    @property
    def stem(self) -> str:
        """Its id."""
        return self.id

    @property
    def unsound(self) -> str | None:
        """Why it is not the record of the run its name says, as after an edit by hand; None where it is."""
        try:
            run = RunConfig.from_dict(self.config)
        except UsageError as error:
            return f"holds a config that no run has: {error}"
        if run.id != self.id:
            return f"its config belongs to run {run.id}"
        return "ended well, but holds no metric" if self.status == "ok" and not self.metrics else None

    def fits(self, number: int) -> bool:
        """Whether its file may have that number."""
        return number == self.fresh


class ArmTiming(TypedDict):
    """Step time and memory of one arm.

    `step_ms` is the median in milliseconds, `quartiles_ms` the first and the third quartile,
    `peak_memory_bytes` None where it cannot be measured.
    """

    step_ms: float
    quartiles_ms: list[float]
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class TimingRecord(Record):
    """Step times of a set of arms, measured together.

    Args:
        key: names the set of arms and the machine.
        machine: `environment.machine()`.
        environment: `environment.describe()`.
        arms: an arm's key to its timing.
        started: UTC, ISO 8601.
        seconds: from start to end.
    """

    kind: ClassVar[str] = "timing"

    key: str
    machine: str
    environment: dict[str, Any]
    arms: dict[str, ArmTiming]
    started: str
    seconds: float

    @property
    def stem(self) -> str:
        """Its key."""
        return self.key


class ReferenceRow(TypedDict):
    """The loss of one trivial predictor."""

    name: str
    nats_per_token: float
    bits_per_byte: float


@dataclass(frozen=True, kw_only=True)
class ReferenceRecord(Record):
    """Trivial rows of one corpus.

    Args:
        fingerprint: SHA-256 of the data.
        length: tokens of a sequence.
        tokens: scored tokens of the report split.
        rows: the predictors.
    """

    kind: ClassVar[str] = "references"

    fingerprint: str
    length: int
    tokens: int
    rows: list[ReferenceRow]

    @property
    def stem(self) -> str:
        """Data, length and tokens."""
        return f"{self.fingerprint}-{self.length}-{self.tokens}"


@dataclass(frozen=True, kw_only=True)
class MeasurementRecord(Record):
    """What one measure found in one run.

    Args:
        run: id of the run.
        measure: its name, and `version`, which rises when its meaning changes.
        step: of the training at which it looked.
        values: name with unit to value.
        arrays: SHA-256 of the arrays beside it, where there are any; the store fills it in.
        measured_by: hashes of the code that looked: `code`, as a run's `code_hash`, and `measures`; None where it was
            not recorded.
    """

    kind: ClassVar[str] = "measurement"
    later: ClassVar[Mapping[str, Any]] = {"measured_by": None}

    run: str
    measure: str
    version: int
    step: int
    values: dict[str, Any]
    arrays: str | None = None
    measured_by: dict[str, str] | None = None

    @property
    def stem(self) -> str:
        """Run, measure, version and step."""
        return f"{self.run}-{self.measure}-v{self.version}-{self.step}"


class Corpus(TypedDict):
    """The data that every arm of an experiment was trained on."""

    name: str
    sha256: str
    description: str
    tokenizer: str


class Arm(TypedDict):
    """One arm of an experiment.

    Its runs are `ids`, one a seed, and its timing stands under `timing` in the experiment's timing record.
    `same_as` is the label of an earlier row that computes the same function, so that the arm gets no verdict;
    `equal_function` the arm that the variant's own file says it equals, in this table or not.
    """

    label: str
    variant: str
    config: dict[str, Any]
    backend: str
    same_as: str | None
    equal_function: str | None
    ids: list[str]
    timing: str


@dataclass(frozen=True, kw_only=True)
class ExperimentFile(Record):
    """Which runs answer which question: an index over records, which know nothing of it.

    Args:
        name, key: its name, and a short hash of what it asks for.
        question, expectation, metric: as declared before it ran.
        baseline: label of an arm.
        seeds: in the order of every arm's `ids`.
        corpus: the data.
        settings: the preset's name; the sections that all arms share, resolved; what arms were made equal in (`match`,
            `budget`) with the `costs` of each; of a noise floor the `twin` and the `comparisons` it speaks for.
        arms: the rows.
        timing: key of the timing record.
        command: that asked for it.
        notes: what a reader should know.
    """

    kind: ClassVar[str] = "experiment"
    later: ClassVar[Mapping[str, Any]] = {"command": ""}

    name: str
    key: str
    question: str
    expectation: str
    metric: str
    baseline: str
    seeds: list[int]
    corpus: Corpus
    settings: dict[str, Any]
    arms: list[Arm]
    timing: str | None = None
    command: str = ""
    notes: str = ""

    @property
    def stem(self) -> str:
        """Name and key."""
        return f"{self.name}-{self.key}"

    def check(self) -> None:
        """Hold its parts against each other.

        Raises:
            ValueError: an arm has not one run a seed, or the baseline is no arm.
        """
        for arm in self.arms:
            if not self.seeds or len(arm["ids"]) != len(self.seeds):
                raise ValueError(f"arm {arm['label']} has {len(arm['ids'])} runs for {len(self.seeds)} seeds")
        if self.baseline not in [arm["label"] for arm in self.arms]:
            raise ValueError(f"its baseline {self.baseline} is none of its arms")
