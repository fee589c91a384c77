"""Flags that several verbs take."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction, arg

from harness.cli.answer import Answer
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.experiment import Request
    from harness.tasks import Task


@dataclass(kw_only=True)
class Common:
    """Flags of every verb."""

    out: Path = Path("results/local")
    """Results folder: records, tables, weights."""
    json: bool = False
    """JSON alone on stdout."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Do what the verb says.

        Args:
            progress: where to show how it goes.

        Raises:
            UsageError: the user's mistake.
            RecordError: the disk failed.
        """
        raise NotImplementedError


@dataclass(kw_only=True)
class Setting(Common):
    """Flags of the verbs that train."""

    preset: str | None = None
    """Size: quick, study, small, base or paper-340m; quick unless given, or the task's own."""
    data: Annotated[str | None, arg(metavar="CORPUS")] = None
    """Corpus: kjv, python-stdlib, or a path (.txt, .md, .jsonl, .parquet, a folder); kjv unless given."""
    tokenizer: Annotated[str | None, arg(metavar="TOKENIZER")] = None
    """bytes, bpe:VOCABULARY, or a tokenizer.json; bytes unless given."""
    baseline: Annotated[str | None, arg(metavar="ARM")] = None
    """The arm that the others are held against; the first one unless given."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=VALUE")] = ()
    """section.field=value, with a section of model, train or data; may be repeated."""
    device: Annotated[str | None, arg(metavar="{auto,cpu,cuda}")] = None
    """Where it trains; auto unless given."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that train; one a core unless given."""
    match: Annotated[str | None, arg(metavar="{parameters,flops,state}")] = None
    """Bring every arm to the baseline's size: by the MLP's width, for the state by the variant's own knob."""
    dry_run: bool = False
    """Say what would be trained, and stop."""

    def request(
        self, *, name: str, arms: Sequence[str], task: Task | None = None, preset: str | None = None, **more: Any
    ) -> Request:
        """What these flags ask of the arms.

        Args:
            name: of the experiment.
            arms: as text.
            task: a synthetic task in the place of text.
            preset: size, where no flag names one; the task's own, or `quick`, unless given.
            more: further fields of the request.

        Raises:
            UsageError: a `--set` without an equals sign.
        """
        from harness.experiment import Request

        sets = {
            "data.corpus": task.corpus(self.data) if task else self.data,
            "data.tokenizer": self.tokenizer,
            "train.device": self.device,
            **_pairs(self.set),
        }
        return Request(
            name=name,
            arms=arms,
            baseline=self.baseline,
            preset=self.preset or preset or (task.preset if task else "quick"),
            sets={field: value for field, value in sets.items() if value is not None},
            match=self.match,
            cache=self.out / "cache",
            command=shlex.join(["python", "run.py", *sys.argv[1:]]),
            **more,
        )


def _pairs(settings: Sequence[str]) -> Mapping[str, str]:
    for setting in settings:
        if "=" not in setting:
            raise UsageError(f"--set {setting}: write section.field=value, e.g. --set train.steps=500")
    return {field.strip(): value.strip() for field, _, value in (setting.partition("=") for setting in settings)}


@dataclass(kw_only=True)
class Experiment(Setting):
    """Flags of the verbs that end in a table."""

    task: Annotated[str | None, arg(metavar="{backcopy}")] = None
    """A synthetic task in the place of text; --data then names the text whose characters it draws."""
    seeds: int = 5
    """Seeds of each arm, from 0."""
    keep_weights: Annotated[str, arg(metavar="{all,none}")] = "all"
    """Final weights kept beside the records."""
    fresh: bool = False
    """Train again what is stale or failed."""
    measure_every: Annotated[int | None, arg(metavar="N")] = None
    """Look inside each model after every N steps of its training, and after the last; each look costs time."""
    budget: Annotated[str, arg(metavar="{tokens,flops,seconds}")] = "tokens"
    """What every arm gets as much of as the baseline."""
    tuned: bool = False
    """Each arm at the settings that `tune` chose for it, and at its defaults."""
    studies: Annotated[int | None, arg(metavar="N")] = None
    """Independent studies of each arm that --tuned or --retune goes by; 1 unless given, 3 give a verdict."""
