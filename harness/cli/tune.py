"""The verb `tune`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from harness.cli.answer import Answer
from harness.cli.flags import Setting

if TYPE_CHECKING:
    from rich.console import Console

    from harness.tune.results import TuneResult


@dataclass(kw_only=True)
class Tune(Setting):
    """Search the knobs of each arm and of the recipe, every arm with the same effort.

    Example: run.py tune softmax lazy --trials 12
    """

    arms: Annotated[Positional[tuple[str, ...]], arg(metavar="[ARM ...]")] = ()
    """NAME, or NAME[field=value,...], a path, or one declared experiment; every shipped variant unless given."""
    trials: int = 12
    """Trials of each study; pruned and failed ones count. More go on with a study, fewer than it had are refused."""
    sampler: Annotated[str, arg(metavar="{tpe,random,qmc}")] = "tpe"
    """How points are proposed."""
    pruning: Annotated[str, arg(metavar="{median,none}")] = "median"
    """Whether a trial stops once it is above the median of the finished ones."""
    space: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=RANGE")] = ()
    """field=low:high, field=value (held), or field=a,b,c (a choice or switch too); may be repeated."""
    seed: int = 0
    """Of the points."""
    studies: int = 1
    """Independent studies of each arm."""
    retries: int = 2
    """Further attempts at a trial whose process died."""
    storage: Annotated[str, arg(metavar="{journal,sqlite}")] = "journal"
    """File of the studies; sqlite for one worker."""
    fresh: bool = False
    """Put the studies that there are aside, and start anew."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Search, and answer with the best of each arm."""
        from harness.commands import tune
        from harness.records import Store
        from harness.report.study_view import StudyView
        from harness.report.tuning import space_table
        from harness.tune.effort import Effort
        from harness.tune.space import words_of
        from harness.tune.studies import Terms

        arms, declared = tune.arms_to_tune(self.arms)
        request = self.request(name="tune", arms=arms, **declared)
        space = words_of(self.space)
        effort = Effort(trials=self.trials, sampler=self.sampler, pruning=self.pruning, seed=self.seed, space=space)
        terms = Terms(studies=self.studies, retries=self.retries, storage=self.storage, fresh=self.fresh)
        if self.dry_run:
            found = tune.dry_run(request, effort, terms)
            yield Answer(payload=found, shown=lambda width: space_table(found))
            return
        try:
            with StudyView(progress) as view:
                result = tune.tune(request, effort, terms, Store(self.out), workers=self.workers, notify=view)
        except tune.TuneInterrupted as stopped:
            yield _searched(stopped.result)
            yield Answer(told=["interrupted: trials that ended are kept; the same command goes on"], code=130)
            return
        yield _searched(result)


def _searched(result: TuneResult) -> Answer:
    from harness.report.tuning import all_failed, render_tuning, tuning_payload

    hopeless = all_failed(result)
    return Answer(
        payload=tuning_payload(result),
        shown=lambda width: render_tuning(result, width),
        told=[f"error: {line}" for line in hopeless],
        code=2 if hopeless else 0,
    )
