"""Studies on disk: one journal for each set of settings and effort, which nobody mixes with another's."""

from __future__ import annotations

import collections
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from harness import environment
from harness.config import canonical
from harness.errors import RecordError, UsageError
from harness.fields import shown
from harness.records import Claim, Store
from harness.tune.effort import PRUNE_AFTER, PRUNE_FROM, Effort
from harness.tune.space import Space

SCHEMA = 1
"""Version of what a study says of itself and of its trials."""

ENDINGS = {"journal": ".journal", "sqlite": ".db"}


_HEAD = b'{"op_code":'
"""How the first line of every journal begins."""


class _Lock(JournalFileOpenLock):
    """The kernel's lock of a journal: free as soon as its holder dies, and none gets it with a torn line in place."""

    def __init__(self, path: Path, store: Store) -> None:
        super().__init__(str(path))
        self.path, self.store = path, store
        self.held: Claim | None = None

    def acquire(self) -> bool:
        # Ctrl-C may come between the lock and whoever was to free it; this process holds it once at most.
        self.release()
        self.held = self.store.hold(f"journal-{self.path.stem}")
        _cut(self.path)
        return True

    def release(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            held.release()


def _cut(path: Path) -> None:
    """Cut a journal back to its last whole line: what a killed writer or a full disk left of one is no entry.

    Raises:
        RecordError: the file does not begin as a journal does; it is left as it is.
    """
    if not path.exists():
        return
    with open(path, "r+b") as file:
        head = file.read(len(_HEAD))
        if head != _HEAD[: len(head)]:
            raise RecordError(f"it begins with {head!r}, a journal with {_HEAD!r}")
        end = size = file.seek(0, 2)
        while end:
            start = max(0, end - 4096)
            file.seek(start)
            block = file.read(end - start)
            if b"\n" in block:
                end = start + block.rindex(b"\n") + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def _entry(path: Path) -> None:
    """Refuse a journal whose last line is no entry: the next one written behind it would make all of them unreadable.

    Raises:
        ValueError: it is none.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        last = collections.deque(file, maxlen=1)
    if last and not isinstance(json.loads(last[0]), dict):
        raise ValueError("its last line is no entry")


def journal_path(store: Store, settings: Mapping[str, Any], effort: Effort, storage: str) -> Path:
    """File of the studies of some settings and effort."""
    return store.studies / f"{settings_key(settings)}-{_hash(effort.identity())[:4]}{ENDINGS[storage]}"


def settings_key(settings: Mapping[str, Any]) -> str:
    """Short hash of the settings that all arms share, with which the name of a journal begins."""
    return _hash(settings)[:8]


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def open_storage(path: Path, store: Store) -> BaseStorage:
    """A journal, new or old.

    Raises:
        RecordError: it cannot be read or written.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".db":
            return RDBStorage(f"sqlite:///{path}")
        lock = _Lock(path, store)
        lock.acquire()
        try:
            _entry(path)
        finally:
            lock.release()
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except OSError as error:
        raise RecordError(f"{path} cannot be used: {error.strerror or error}") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecordError(f"{path} is no readable journal ({reason}); move it away, or name another --out") from error


def put_aside(path: Path) -> None:
    """Rename a journal, so that the next search starts anew and nothing is lost."""
    number = 1
    while (other := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    if path.exists():
        path.rename(other)


def study_name(label: str, index: int) -> str:
    """What Optuna and its dashboard call a study."""
    return label if index == 0 else f"{label} ({index + 1})"


def _changed(section: str, then: Any, now: Any) -> list[str]:
    if then == now:
        return []
    if not (isinstance(then, Mapping) and isinstance(now, Mapping)):
        return [f"another {section.replace('_', ' ')}"]
    fields = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return [f"{section}.{name} {shown(then.get(name))} there, {shown(now.get(name))} here" for name in fields]


def made_of(space: Space, label: str, effort: Effort) -> dict[str, Any]:
    """What a study was made of, and where; kept with it."""
    run = space.run.to_dict()
    run["train"].pop("seed")
    return {
        "schema": SCHEMA,
        "arm": label,
        "run": run,
        "pins": dict(space.pins),
        "space": [dim.plain() for dim in space.dims],
        "effort": effort.identity(),
        "code": environment.code_hash(space.run.variant, space.run.model.pattern),
        "optuna": optuna.__version__,
        "environment": environment.describe(),
        **environment.commit(),
    }


def open_study(storage: BaseStorage, path: Path, name: str, made: Mapping[str, Any]) -> optuna.Study:
    """A study, made where it is missing; the caller holds the journal's turn.

    Raises:
        UsageError: it was made of other data, settings or code; says what differs.
    """
    steps = int(made["run"]["train"]["steps"])
    pruner = optuna.pruners.MedianPruner(PRUNE_AFTER, n_warmup_steps=math.ceil(steps * PRUNE_FROM))
    try:
        # To create one that exists would write to the journal, even where it is another's.
        study = optuna.load_study(study_name=name, storage=storage, pruner=pruner)
    except KeyError:
        study = optuna.create_study(storage=storage, study_name=name, direction="minimize", pruner=pruner)
    known = study.user_attrs.get("made")
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr("made", dict(made))
        return study
    different = differences(known or {}, made)
    if different:
        raise UsageError(
            f"the study of {name} in {path} is not of this command: {'; '.join(different)}; "
            "--fresh puts the file aside and starts anew, --out names another folder"
        )
    return study


def differences(known: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """What differs between what a study was made of and what it would be made of now, in words."""
    if known.get("schema") != SCHEMA:
        return [f"its layout is version {known.get('schema')}, this program writes {SCHEMA}"]
    then, now = known["run"], made["run"]
    found = []
    if then["fingerprint"] != now["fingerprint"]:
        found.append(f"other data (SHA-256 {then['fingerprint'][:12]} there, {now['fingerprint'][:12]} here)")
    if known["code"] != made["code"]:
        found.append(f"other code ({known['code'][:8]} there, {made['code'][:8]} here)")
    for section in ("variant", "mixer", "model", "train", "data", "file_hash"):
        found += _changed(section, then[section], now[section])
    found += [f"another {part}" for part in ("space", "pins") if canonical(known[part]) != canonical(made[part])]
    major = str(known["optuna"]).split(".")[0]
    if major != optuna.__version__.split(".")[0]:
        found.append(f"Optuna {known['optuna']} there, {optuna.__version__} here")
    return found
