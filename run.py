"""The command line: parse, call one function, print."""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, Union

import tyro
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from harness.errors import RecordError, UsageError


@dataclass(kw_only=True)
class _Common:
    out: Path = Path("results/local")
    """Results folder: records, tables, weights."""
    json: bool = False
    """JSON alone on stdout."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(kw_only=True)
class _Setting(_Common):
    preset: str | None = None
    """Size: quick, small, base or paper-340m; quick unless given, or the task's own."""
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


@dataclass(kw_only=True)
class _Experiment(_Setting):
    task: Annotated[str | None, arg(metavar="{backcopy}")] = None
    """A synthetic task in the place of text; --data then names the text whose characters it draws."""
    seeds: int = 5
    """Seeds of each arm, from 0."""
    keep_weights: Annotated[str, arg(metavar="{all,none}")] = "all"
    """Final weights kept beside the records."""
    fresh: bool = False
    """Train again what is stale or failed."""
    measure_every: Annotated[int | None, arg(metavar="N")] = None
    """Look inside each model after every N steps of its training; 100 costs under a tenth of it."""
    budget: Annotated[str, arg(metavar="{tokens,flops,seconds}")] = "tokens"
    """What every arm gets as much of as the baseline."""
    tuned: bool = False
    """Each arm at the settings that `tune` chose for it, and at its defaults."""
    studies: Annotated[int | None, arg(metavar="N")] = None
    """Independent studies of each arm that --tuned or --retune goes by; 1 unless given, 3 give a verdict."""


@dataclass(kw_only=True)
class Compare(_Experiment):
    """Train arms on the same data with the same recipe, and print one table.

    Example: run.py compare softmax lazy 'lazy[tau_start=-0.5]' --seeds 5
    """

    arms: Annotated[Positional[tuple[str, ...]], arg(metavar="[ARM ...]")] = ()
    """NAME, or NAME[field=value,...], or a path to your own variant; every shipped variant unless given."""
    noise_floor: Annotated[int | None, arg(metavar="N")] = None
    """Train the baseline and its twin of another start on N seeds instead: what could this comparison resolve?"""

    def run(self) -> int:
        """Compare the arms; the exit code."""
        from harness import commands

        if self.noise_floor is not None:
            return _noise_floor(self, self.arms or commands.default_arms())
        return _table(self, name="compare", arms=self.arms or commands.default_arms(aliases=not self.tuned))


@dataclass(kw_only=True)
class Ablate(_Experiment):
    """Take a variant apart: full, each switch off, each switch alone, all off; or run a declared experiment.

    Example: run.py ablate lazy_parts
    """

    name: Positional[str]
    """A declared experiment, a variant, or a path to your own variant."""
    retune: Annotated[str | None, arg(metavar="KNOB")] = None
    """A knob of the recipe, learning_rate say, that every arm gets its own best value of, from one grid for all."""

    def run(self) -> int:
        """Run the ablation; the exit code."""
        from harness import commands

        arms, declared = commands.ablation(self.name)
        return _table(self, arms=arms, **declared)


@dataclass(kw_only=True)
class Tune(_Setting):
    """Search the knobs of each arm and of the recipe, every arm with the same effort.

    Example: run.py tune softmax lazy --trials 12
    """

    arms: Annotated[Positional[tuple[str, ...]], arg(metavar="[ARM ...]")] = ()
    """NAME, or NAME[field=value,...], a path, or one declared experiment; every shipped variant unless given."""
    trials: int = 12
    """Trials of each study; pruned and failed ones count."""
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

    def run(self) -> int:
        """Search and print; the exit code."""
        return _tune(self)


@dataclass(kw_only=True)
class Report(_Common):
    """Print a recorded experiment's table again; nothing is trained.

    Example: run.py report compare
    Example: run.py report compare --html
    """

    experiment: Positional[str] = "compare"
    """Its name, or its name and key."""
    html: bool = False
    """Write one page with tables and figures, and each figure as SVG and PNG; print where."""

    def run(self) -> int:
        """Print it; the exit code."""
        from harness import commands, report
        from harness.records import Store

        store = Store(self.out)
        found = commands.find_experiment(store, self.experiment)
        if self.html:
            files = [str(path) for path in report.write_page(found, store)]
            print(jsonlib.dumps({"page": files[0], "figures": files[1:]}, indent=1) if self.json else files[0])
            return 0
        code = _show(self, report.result(found, store), store)
        try:
            report.write_tables(found, store)
        except RecordError as error:
            print(f"the tables beside the records stay as they are: {error}", file=sys.stderr)
        return code


@dataclass(kw_only=True)
class Measure(_Common):
    """Look inside the trained models of a recorded experiment: sink, mass, sparsity, collapse, longer sequences.

    Example: run.py measure compare --only sink mass
    """

    experiment: Positional[str] = "compare"
    """Its name, or its name and key."""
    only: Annotated[tuple[str, ...], arg(metavar="[MEASURE ...]")] = ()
    """Measures; all unless given."""
    fresh: bool = False
    """Measure again what is recorded."""

    def run(self) -> int:
        """Measure, and print what was found; the exit code."""
        from harness import commands, commands_measure, report
        from harness.records import Store

        store = Store(self.out)
        experiment = commands.find_experiment(store, self.experiment)
        commands_measure.measure(experiment, store, only=self.only, fresh=self.fresh, notify=_told)
        found = report.findings(experiment, store)
        if self.json:
            print(jsonlib.dumps(report.measured_payload(found), indent=1, allow_nan=False))
        else:
            console = _console()
            console.print(report.measured(found, console.width))
        return 0


@dataclass(kw_only=True)
class List(_Common):
    """What there is: variants with their switches, knobs and backends here, and declared experiments.

    Example: run.py list
    Example: run.py list --cost --length 512
    """

    cost: bool = False
    """What a layer of each variant costs: FLOPs, bytes of state, parameters."""
    length: int | None = None
    """Tokens of the sequence, for --cost."""

    def run(self) -> int:
        """Print it; the exit code."""
        from harness import commands, report

        if self.cost or self.length is not None:
            return _costs(self)
        found = commands.listing()
        if self.json:
            print(jsonlib.dumps(found, indent=1))
        else:
            _console().print(report.listing(found))
        return 0


@dataclass(kw_only=True)
class Doctor(_Common):
    """This machine: versions, cores, and why an optional backend cannot run.

    Example: run.py doctor
    """

    def run(self) -> int:
        """Print it; the exit code."""
        from harness import commands, report

        found = commands.doctor()
        if self.json:
            print(jsonlib.dumps(found, indent=1))
        else:
            _console().print(report.doctor(found))
        return 0


@dataclass(kw_only=True)
class Check(_Common):
    """Hold variants to the contract: causality, decoding, gradients, precision, each backend, each switch off.

    Example: run.py check lazy my_mixer.py
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME ...")] = ()
    """NAME, NAME[field=value,...], a path to your own variant, or all."""
    claim: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="CLAIM")] = ()
    """This claim alone; may be repeated."""

    def run(self) -> int:
        """Check and print; the exit code."""
        from rich.text import Text

        from harness import commands_check, report

        console, found = _console(), []
        with _console(stderr=True).status("") as status:

            def say(word: str) -> None:
                status.update(Text(f"checking {word}"))

            for checked in commands_check.check(self.names, self.claim, say):
                found.append(checked)
                if not self.json:
                    # On one terminal the status line and the table would be written over each other.
                    status.stop()
                    console.print(report.checks(checked.variant, checked.groups, checked.seconds))
                    status.start()
        if self.json:
            payloads = [checked.payload() for checked in found]
            print(jsonlib.dumps(payloads[0] if len(payloads) == 1 else payloads, indent=1))
        return 0 if all(checked.passed for checked in found) else 1


@dataclass(kw_only=True)
class Bench(_Common):
    """How fast everything is here, as ratios measured side by side: cores, layers, training steps, decoding.

    Example: run.py bench cores --lengths 256 1024
    """

    parts: Annotated[Positional[tuple[str, ...]], arg(metavar="[PART ...]")] = ()
    """cores, blocks, step, decode, workers; all unless given."""
    lengths: Annotated[tuple[int, ...], arg(metavar="N ...")] = ()
    """Tokens of the cores; 256, 1024 and 4096 unless given."""
    dtypes: Annotated[tuple[str, ...], arg(metavar="DTYPE ...")] = ()
    """float32, bfloat16; float32 unless given, both on a GPU."""
    device: Annotated[str, arg(metavar="{cpu,cuda}")] = "cpu"
    """Where it is measured."""
    against: Annotated[Path | None, arg(metavar="FILE")] = None
    """An earlier result: compare its ratios."""

    def run(self) -> int:
        """Measure and print; the exit code."""
        from harness import commands_bench
        from harness.bench import Options

        options = Options(parts=self.parts, lengths=self.lengths, dtypes=self.dtypes, device=self.device)
        result, table = commands_bench.measure(
            options, self.out, self.against, lambda stage: print(stage, file=sys.stderr)
        )
        print(jsonlib.dumps(result, indent=1, allow_nan=False) if self.json else "\n".join(table))
        return 1 if result["machine"]["wrong"] else 0


Verb = OmitSubcommandPrefixes[
    Union[  # noqa: UP007
        Annotated[List, subcommand("list")],
        Annotated[Doctor, subcommand("doctor")],
        Annotated[Compare, subcommand("compare")],
        Annotated[Ablate, subcommand("ablate")],
        Annotated[Tune, subcommand("tune")],
        Annotated[Bench, subcommand("bench")],
        Annotated[Check, subcommand("check")],
        Annotated[Measure, subcommand("measure")],
        Annotated[Report, subcommand("report")],
    ]
]


def _request(verb: _Setting, *, name: str, arms: Any, task: Any = None, **more: Any) -> Any:
    from harness.experiment import Request

    sets = {
        "data.corpus": task.corpus(verb.data) if task else verb.data,
        "data.tokenizer": verb.tokenizer,
        "train.device": verb.device,
        **_pairs(verb.set),
    }
    return Request(
        name=name,
        arms=arms,
        baseline=verb.baseline,
        preset=verb.preset or (task.preset if task else "quick"),
        sets={field: value for field, value in sets.items() if value is not None},
        match=verb.match,
        cache=verb.out / "cache",
        **more,
    )


def _table(verb: _Experiment, *, name: str, arms: Any, **declared: Any) -> int:
    from harness import commands, commands_measure, report, tasks
    from harness.execute import Options
    from harness.records import Store
    from harness.report.progress import ProgressView

    task = tasks.find(verb.task) if verb.task else None
    if task is not None:
        name, declared = f"{name}-{task.name}", task.declared(declared)
    request = _request(verb, name=name, arms=arms, task=task, seeds=verb.seeds, budget=verb.budget, **declared)
    options = Options(
        workers=verb.workers,
        keep_weights=_keep(verb.keep_weights),
        fresh=verb.fresh,
        cache=request.cache,
        measure_every=commands_measure.interval(verb.measure_every),
    )
    store = Store(verb.out)
    planned = _planned(verb, request, store)
    if verb.dry_run:
        return _dry(verb, commands.dry_run(planned, store, options), report.dry_run)
    try:
        with ProgressView(_console(stderr=True)) as view:
            result = commands.run(planned, store, options, view)
    except commands.Interrupted as stopped:
        _show(verb, stopped.result, store)
        print("interrupted: finished runs are kept; the same command goes on", file=sys.stderr)
        return 130
    return _show(verb, result, store)


def _planned(verb: _Experiment, request: Any, store: Any) -> Any:
    from harness import commands

    retune = verb.retune if isinstance(verb, Ablate) else None
    if not verb.tuned and retune is None:
        if verb.studies is not None:
            raise UsageError("--studies belongs to --tuned and --retune")
        return commands.prepare(request, None if verb.dry_run else store, lambda event: _told(event.label))
    if retune is not None and (verb.tuned or verb.dry_run):
        raise UsageError(f"--retune goes without {'--tuned' if verb.tuned else '--dry-run'}")
    if request.noise_floor:
        raise UsageError("--noise-floor trains the baseline as it is; leave --tuned out")
    from harness import commands_tune
    from harness.report.study_view import StudyView

    if verb.tuned:
        return commands_tune.tuned(request, store, studies=verb.studies or 1)
    with StudyView(_console(stderr=True)) as view:
        return commands_tune.retuned(
            request, retune or "", store, studies=verb.studies or 1, workers=verb.workers, notify=view
        )


def _tune(verb: Tune) -> int:
    from harness import commands_tune
    from harness.records import Store
    from harness.report.study_view import StudyView
    from harness.report.tuning import space_table
    from harness.tune.effort import Effort
    from harness.tune.space import words_of
    from harness.tune.studies import Terms

    arms, declared = commands_tune.arms_to_tune(verb.arms)
    request = _request(verb, name="tune", arms=arms, **declared)
    space = words_of(verb.space)
    effort = Effort(trials=verb.trials, sampler=verb.sampler, pruning=verb.pruning, seed=verb.seed, space=space)
    terms = Terms(studies=verb.studies, retries=verb.retries, storage=verb.storage, fresh=verb.fresh)
    if verb.dry_run:
        return _dry(verb, commands_tune.dry_run(request, effort, terms), space_table)
    try:
        with StudyView(_console(stderr=True)) as view:
            result = commands_tune.tune(request, effort, terms, Store(verb.out), workers=verb.workers, notify=view)
    except commands_tune.TuneInterrupted as stopped:
        _show_tuning(verb, stopped.result)
        print("interrupted: trials that ended are kept; the same command goes on", file=sys.stderr)
        return 130
    return _show_tuning(verb, result)


def _show_tuning(verb: Tune, result: Any) -> int:
    from harness.report.tuning import all_failed, render_tuning, tuning_payload

    if verb.json:
        print(jsonlib.dumps(tuning_payload(result), indent=1, allow_nan=False))
    else:
        console = _console()
        console.print(render_tuning(result, console.width))
    hopeless = all_failed(result)
    for line in hopeless:
        print(f"error: {line}", file=sys.stderr)
    return 2 if hopeless else 0


def _told(word: str) -> None:
    print(word, file=sys.stderr)


def _noise_floor(verb: Compare, arms: Any) -> int:
    if verb.noise_floor is None or verb.noise_floor < 2:
        raise UsageError(f"--noise-floor {verb.noise_floor}: allowed is a whole number of at least 2 seeds")
    verb.seeds = verb.noise_floor
    question = "How far apart are two trainings of the same thing?"
    return _table(verb, name="noise-floor", arms=arms, question=question, noise_floor=True)


def _costs(verb: List) -> int:
    from harness import commands_equal, report

    if not verb.cost:
        raise UsageError("--length belongs to --cost")
    found = commands_equal.costs(verb.length)
    if verb.json:
        print(jsonlib.dumps(found, indent=1))
    else:
        _console().print(report.costs(found))
    return 0


def _pairs(settings: tuple[str, ...]) -> Mapping[str, str]:
    for setting in settings:
        if "=" not in setting:
            raise UsageError(f"--set {setting}: write section.field=value, e.g. --set train.steps=500")
    return {field.strip(): value.strip() for field, _, value in (setting.partition("=") for setting in settings)}


def _keep(word: str) -> bool:
    if word not in ("all", "none"):
        raise UsageError(f"--keep-weights {word}: allowed is all or none")
    return word == "all"


def _dry(verb: _Setting, found: Mapping[str, Any], shown: Callable[[Mapping[str, Any]], Any]) -> int:
    if verb.json:
        print(jsonlib.dumps(found, indent=1))
    else:
        _console().print(shown(found))
    return 0


def _show(verb: _Common, result: Any, store: Any) -> int:
    from harness import report

    if verb.json:
        print(jsonlib.dumps(report.payload(result), indent=1, allow_nan=False))
    else:
        console = _console()
        console.print(report.render(result, console.width))
    for problem in store.problems:
        print(f"skipped: {problem}", file=sys.stderr)
    return 1 if any(arm.failed for arm in result.arms) else 0


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    # Piped, rich assumes 80 columns; a file or a pager has room for the whole table.
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(shutil.get_terminal_size((140, 24)).columns, 80)
    return console


def _stop(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Parse the command line and run its verb.

    Returns:
        0 fine, 1 a run failed, 2 the user's mistake, 130 interrupted.
    """
    verb = tyro.cli(
        Verb,
        prog="run.py",
        description="lazybench: benchmark and take apart attention variants.",
        config=(FlagCreatePairsOff,),
    )  # type: ignore[call-overload]
    signal.signal(signal.SIGTERM, _stop)
    # A terminal or pipe that knows no ± gets a question mark in its place.
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    try:
        code: int = verb.run()
        sys.stdout.flush()
        return code
    except (UsageError, RecordError) as error:
        if verb.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe, `head` say, had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if verb.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2


if __name__ == "__main__":
    sys.exit(main())
