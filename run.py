"""The command line: parse, call one function, print."""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
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
class _Experiment(_Common):
    preset: str = "quick"
    """Size: quick, small, base or paper-340m."""
    data: Annotated[str | None, arg(metavar="CORPUS")] = None
    """Corpus: kjv, python-stdlib, or a path (.txt, .md, .jsonl, .parquet, a folder); kjv unless given."""
    tokenizer: Annotated[str | None, arg(metavar="TOKENIZER")] = None
    """bytes, bpe:VOCABULARY, or a tokenizer.json; bytes unless given."""
    seeds: int = 5
    """Seeds of each arm, from 0."""
    baseline: Annotated[str | None, arg(metavar="ARM")] = None
    """The arm that the others are held against; the first one unless given."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=VALUE")] = ()
    """section.field=value, with a section of model, train or data; may be repeated."""
    device: Annotated[str | None, arg(metavar="{auto,cpu,cuda}")] = None
    """Where it trains; auto unless given."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Processes that train; one a core unless given."""
    keep_weights: Annotated[str, arg(metavar="{all,none}")] = "all"
    """Final weights kept beside the records."""
    fresh: bool = False
    """Train again what is stale or failed."""
    dry_run: bool = False
    """Say what would be trained, and stop."""


@dataclass(kw_only=True)
class Compare(_Experiment):
    """Train arms on the same data with the same recipe, and print one table.

    Example: run.py compare softmax lazy 'lazy[tau_start=-0.5]' --seeds 5
    """

    arms: Annotated[Positional[tuple[str, ...]], arg(metavar="[ARM ...]")] = ()
    """NAME, or NAME[field=value,...], or a path to your own variant; every shipped variant unless given."""

    def run(self) -> int:
        """Compare the arms; the exit code."""
        from harness import commands

        return _table(self, name="compare", arms=self.arms or commands.default_arms())


@dataclass(kw_only=True)
class Ablate(_Experiment):
    """Take a variant apart: full, each switch off, each switch alone, all off; or run a declared experiment.

    Example: run.py ablate lazy_parts
    """

    name: Positional[str]
    """A declared experiment, a variant, or a path to your own variant."""

    def run(self) -> int:
        """Run the ablation; the exit code."""
        from harness import commands

        arms, declared = commands.ablation(self.name)
        name = self.name if "question" in declared and "expectation" in declared else f"ablate-{Path(self.name).stem}"
        return _table(self, name=name, arms=arms, **declared)


@dataclass(kw_only=True)
class Report(_Common):
    """Print a recorded experiment's table again; nothing is trained.

    Example: run.py report compare
    """

    experiment: Positional[str] = "compare"
    """Its name, or its name and key."""

    def run(self) -> int:
        """Print it; the exit code."""
        from harness import commands, report
        from harness.records import Store

        store = Store(self.out)
        found = commands.find_experiment(store, self.experiment)
        report.write_tables(found, store)
        return _show(self, report.result(found, store), store)


@dataclass(kw_only=True)
class List(_Common):
    """What there is: variants with their switches, knobs and backends here, and declared experiments.

    Example: run.py list
    """

    def run(self) -> int:
        """Print it; the exit code."""
        from harness import commands, report

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
        from harness import commands_check, report

        console, found = _console(), []
        with _console(stderr=True).status("") as status:
            for checked in commands_check.check(self.names, self.claim, lambda word: status.update(f"checking {word}")):
                found.append(checked)
                if not self.json:
                    console.print(report.checks(checked.variant, checked.groups, checked.seconds))
        if self.json:
            payloads = [checked.payload() for checked in found]
            print(jsonlib.dumps(payloads[0] if len(payloads) == 1 else payloads, indent=1))
        return 0 if all(checked.passed for checked in found) else 1


Verb = OmitSubcommandPrefixes[
    Union[  # noqa: UP007
        Annotated[List, subcommand("list")],
        Annotated[Doctor, subcommand("doctor")],
        Annotated[Compare, subcommand("compare")],
        Annotated[Ablate, subcommand("ablate")],
        Annotated[Check, subcommand("check")],
        Annotated[Report, subcommand("report")],
    ]
]


def _table(verb: _Experiment, *, name: str, arms: Any, **declared: Any) -> int:
    from harness import commands
    from harness.execute import Options
    from harness.experiment import Request
    from harness.records import Store
    from harness.report.progress import ProgressView

    sets = {
        "data.corpus": verb.data,
        "data.tokenizer": verb.tokenizer,
        "train.device": verb.device,
        **_pairs(verb.set),
    }
    cache = verb.out / "cache"
    request = Request(
        name=name,
        arms=arms,
        baseline=verb.baseline,
        seeds=verb.seeds,
        preset=verb.preset,
        sets={field: value for field, value in sets.items() if value is not None},
        cache=cache,
        **declared,
    )
    options = Options(workers=verb.workers, keep_weights=_keep(verb.keep_weights), fresh=verb.fresh, cache=cache)
    store = Store(verb.out)
    planned = commands.prepare(request)
    if verb.dry_run:
        return _dry(verb, commands.dry_run(planned, store, options))
    try:
        with ProgressView(_console(stderr=True)) as view:
            result = commands.run(planned, store, options, view)
    except commands.Interrupted as stopped:
        _show(verb, stopped.result, store)
        print("interrupted: finished runs are kept; the same command goes on", file=sys.stderr)
        return 130
    return _show(verb, result, store)


def _pairs(settings: tuple[str, ...]) -> Mapping[str, str]:
    for setting in settings:
        if "=" not in setting:
            raise UsageError(f"--set {setting}: write section.field=value, e.g. --set train.steps=500")
    return {field.strip(): value.strip() for field, _, value in (setting.partition("=") for setting in settings)}


def _keep(word: str) -> bool:
    if word not in ("all", "none"):
        raise UsageError(f"--keep-weights {word}: allowed is all or none")
    return word == "all"


def _dry(verb: _Experiment, found: Mapping[str, Any]) -> int:
    from harness import report

    if verb.json:
        print(jsonlib.dumps(found, indent=1))
    else:
        _console().print(report.dry_run(found))
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
    try:
        code: int = verb.run()
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


if __name__ == "__main__":
    sys.exit(main())
