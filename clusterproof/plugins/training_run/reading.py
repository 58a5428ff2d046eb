"""Reads a run: every file that is named, and of a folder those whose format is known."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from shlex import quote
from typing import NoReturn

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.opened import Budget, is_folder
from clusterproof.plugins.training_run import RunError, formats
from clusterproof.plugins.training_run.files import HEAD, LONG_HEAD, MAX_BYTES, Format, RunFile, folders_of, head_of
from clusterproof.plugins.training_run.other_files import how_it_ended, what_is
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData

MAX_FILES = 20_000
MAX_NAMED = 3  # files in a note
OF_FILE_SYSTEM = "lost+found"  # which root alone may list


def _found() -> tuple[Format, ...]:
    """What the files of `formats` read, in the order of their names, and behind these what is known by few words."""
    names = sorted(module.name for module in iter_modules(formats.__path__))
    modules = [import_module(f"{formats.__name__}.{name}") for name in names]
    every = [file_format for module in modules for file_format in getattr(module, "FORMATS", ())]
    return tuple(sorted(every, key=lambda file_format: file_format.is_tried_last))


FORMATS = _found()
_PRINTED = re.compile(r"\.(?:out|err)$|^std(?:out|err)\.log$")  # by ranks and launchers
_NAMES = ", ".join(file_format.name for file_format in FORMATS)

_EXPECTED = "expected a file that a training run wrote (docs/training-runs.md)"


def read_run(paths: Sequence[str]) -> TrainingRun:
    """The run that these files and folders describe together. Raises RunError."""
    recorded = RunData()
    unknown: list[str] = []
    others: dict[str, str] = {}  # by what it is: the first file's name
    links: list[str] = []
    failed: dict[str, Path] = {}  # by what it says of that: the first log
    budget = Budget(MAX_BYTES)
    is_known = False
    given = [
        (path, named if is_folder(named) else None)
        for named in map(Path, paths)
        for path in (_files(named, links) if is_folder(named) else (named,))
    ]
    folders = folders_of([path for path, _ in given])
    for path, below in given:
        file = RunFile(path, below, budget, folders[path])
        known = format_of(file)
        if known:
            _read(file, known, recorded)
            is_known = True
            if said := how_it_ended(file):
                failed.setdefault(said, path)
        elif not below:
            raise RunError(f"{path}{_not_known(file)}")
        elif _is_of_recording(path.relative_to(below)):
            is_known = True
        elif other := what_is(file):
            others.setdefault(other, path.name)
        else:
            unknown.append(path.name)
    not_read = [f"{name} is {what}" for what, name in others.items()]
    if not is_known:
        if not_read:
            raise RunError(f"{', '.join(paths):.200}: {not_read[0]}")
        what_is_there = (
            f"none of its files ({_named(unknown)}) has a form that is known" if unknown else "no file in it"
        )
        raise RunError(f"{', '.join(paths):.200}: {what_is_there}; expected {_NAMES}")
    recorded.notes += [
        f"{what}: {_named(names)}"
        for what, names in (
            ("not understood", unknown),
            ("cut", recorded.cut),
            ("nothing of a run in", recorded.empty),
            ("not followed, as they are links", links),
        )
        if names
    ]
    recorded.notes += [f"not read: {note}" for note in not_read]
    recorded.notes += [
        f"{number_of(count, 'duration')} left out, as they are negative or no number, as where a clock is set: {file}"
        for file, count in recorded.no_durations.items()
    ]
    if recorded.moved:
        rank, places = next(iter(recorded.moved.items()))
        more = f", and {len(recorded.moved) - 1} more ranks like it" if len(recorded.moved) > 1 else ""
        seen = f"rank {rank} was on {', then on '.join(places[:MAX_NAMED])}{more}"
        recorded.notes.append(f"{seen}: of which of these a slow step was is not known, and no node is named")
    recorded.notes += [
        f"{path.name} has {words!r}: what ended its job is read by: clusterproof case {quote(str(path.parent))}"
        for words, path in list(failed.items())[:1]
    ]
    printed = [path for path in map(Path, paths) if is_folder(path)] if any(map(_PRINTED.search, unknown)) else []
    recorded.notes += [f"what its job printed is read by: clusterproof case {quote(str(path))}" for path in printed[:1]]
    return TrainingRun(_name(paths), recorded)


def _not_known(file: RunFile) -> str:
    """What is said behind the name of a file of no known form. Raises RunError."""
    if what := what_is(file):
        return f": {what}"
    head = head_of(file, HEAD)
    if not head.strip():
        return f" is empty; {_EXPECTED}"
    if b"\0" in head:
        return f" is neither text nor a form that is known; {_EXPECTED}"
    return f": its form is not known; expected {_NAMES}"


def _read(file: RunFile, file_format: Format, recorded: RunData) -> None:
    """Take in a file of this format. Raises RunError, whatever its reader breaks of."""
    try:
        recorded.add(file_format.read(file), str(file))
    except RunError:
        raise
    except Exception as wrong:  # what others have written may be anything
        raise RunError(f"{file}: {type(wrong).__name__}: {wrong!s:.100}; expected {file_format.name}") from None


def _is_of_recording(path: Path) -> bool:
    """Whether `clusterproof watch --record` has put it beside its samples: it is about nodes, and not about a run."""
    return path.name in ("cluster.json", "changes.jsonl") or path.parts[0] == "nodes"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def format_of(file: RunFile) -> Format | None:
    """The format of a file of a run; None where it is of none that is known. Raises RunError."""
    for size in (HEAD, LONG_HEAD):
        head = head_of(file, size)
        known = next((candidate for candidate in FORMATS if _is_of(candidate, head)), None)
        if known or len(head) < size:
            return known
    return next((candidate for candidate in FORMATS if candidate.begins_late and candidate.begins_late(file)), None)


def _is_of(file_format: Format, head: bytes) -> bool:
    try:
        return file_format.is_of(head)
    except Exception:  # it begins like nothing that anybody means to write
        return False


def _files(folder: Path, links: list[str]) -> Iterator[Path]:
    """The files under a folder, in the order of their names, without links, which are noted. Raises RunError."""
    files: list[Path] = []
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = (name for name in folders if not (name.startswith(".") or name == OF_FILE_SYSTEM))
        files += (Path(where, name) for name in names if not name.startswith("."))
    if len(files) > MAX_FILES:
        raise RunError(f"{folder}: more than {MAX_FILES:,} files; expected the folder of one run")
    for path in sorted(files):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # of a run that goes on
            continue
        except OSError as wrong:
            _refuse(wrong)
        if stat.S_ISLNK(mode):
            links.append(path.name)
        elif stat.S_ISREG(mode):
            yield path


def _refuse(wrong: OSError) -> NoReturn:
    """Refuse a run of which a folder or a file may not be read: that of the slow rank may be in it. Raises RunError."""
    raise RunError(f"{wrong.filename}: {wrong.strerror}; expected a run whose folders may all be read") from None


def _name(paths: Sequence[str]) -> str:
    """What the run is called: its first file or folder, without what says its form."""
    path = Path(paths[0]).resolve()
    return path.name.partition(".")[0] or path.name or "run"
