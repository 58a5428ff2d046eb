"""Reads a run: every file that is named, and in a folder those of a known format."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from shlex import quote
from typing import NoReturn

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.opened import Budget, is_folder
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run import RunError, formats
from clusterproof.plugins.training_run.files import (
    HEAD,
    LONG_HEAD,
    MAX_BYTES,
    Format,
    RunFile,
    folders_of,
    head_of,
    in_series,
)
from clusterproof.plugins.training_run.not_recorded import how_it_ended, what_is
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import Fact, RunData

MAX_FILES = 20_000
MAX_NAMED = 3  # files in a note
OF_FILE_SYSTEM = "lost+found"  # only root may list it


def _formats() -> tuple[Format, ...]:
    """The formats of the modules in `formats` by name, and after them those recognized by few words."""
    names = sorted(module.name for module in iter_modules(formats.__path__))
    modules = [import_module(f"{formats.__name__}.{name}") for name in names]
    every = [file_format for module in modules for file_format in getattr(module, "FORMATS", ())]
    return tuple(sorted(every, key=lambda file_format: file_format.is_tried_last))


FORMATS = _formats()
_NUMBER = re.compile(r"([0-9]{1,18})")
_PRINTED = re.compile(r"\.(?:out|err)$|^std(?:out|err)\.log$")  # by ranks and launchers

_EXPECTED = "expected a log, trace, table, dump or samples of a training run (docs/training-runs.md lists their forms)"


@record
class _Unread:
    """Files without data of the run: their names, and the message about them."""

    unknown: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)  # by description: the first file's name
    links: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # the file, the line and why
    failed: dict[str, Path] = field(default_factory=dict)  # by message about the job's end: the first log


class _RefusedError(RunError):
    """A fault of a file itself, whatever the others contain."""


def read_run(paths: Sequence[str]) -> TrainingRun:
    """The run that these files and folders describe together.

    Raises RunError for a faulty file only if no other file was read completely.
    """
    recorded = RunData()
    unread = _Unread()
    budget = Budget(MAX_BYTES)
    given = [
        (path, named if is_folder(named) else None)
        for named in map(Path, paths)
        for path in (_files(named, unread.links) if is_folder(named) else (named,))
    ]
    folders = folders_of([path for path, _ in given])
    known = [_take(RunFile(path, below, budget, folders[path]), recorded, unread) for path, below in given]
    recorded.refused = unread.refused
    if not any(known):
        raise RunError(unread.refused[0] if unread.refused else f"{', '.join(paths):.200}: {_nothing_known(unread)}")
    recorded.notes += _notes(recorded, unread)
    if any(map(_PRINTED.search, unread.unknown)):
        named = [path for path in map(Path, paths) if is_folder(path)]
        recorded.notes += [
            f"what its job printed is read by: clusterproof case {quote(str(path))}" for path in named[:1]
        ]
    return TrainingRun(_name(paths), recorded)


def _take(file: RunFile, recorded: RunData, unread: _Unread) -> bool:
    """Read a file, or note what it is; returns whether all of it is understood.

    Raises RunError for a faulty named file.
    """
    path, below = file.path, file.below
    try:
        known = format_of(file)
    except RunError as wrong:
        unread.refused.append(str(wrong))
        return False
    if known:
        is_whole = _read(file, known, recorded, unread)
        with suppress(OSError):  # rotated away since, in a run in progress
            if ending := how_it_ended(file):
                unread.failed.setdefault(ending, path)
        return is_whole
    if not below:
        raise RunError(f"{path}{_not_known(file)}")
    if _is_of_recording(path.relative_to(below)):
        return True
    if other := what_is(file):
        unread.others.setdefault(other, path.name)
    else:
        unread.unknown.append(path.name)
    return False


def _nothing_known(unread: _Unread) -> str:
    """The error if there is no data."""
    for what, name in unread.others.items():
        return f"{name} is {what}"
    files = f"none of its files ({_named(unread.unknown)}) has a form that is known" if unread.unknown else ""
    return f"{files or 'no file in it'}; {_EXPECTED}"


def _notes(recorded: RunData, unread: _Unread) -> Iterator[str]:
    """Remarks on what was not read, and what is unknown."""
    for what, names in (
        ("not understood", unread.unknown),
        ("cut", recorded.cut),
        ("nothing of a run in", recorded.empty),
        ("not followed, as they are links", unread.links),
    ):
        if names:
            yield f"{what}: {_named(names)}"
    yield from (f"not read: {name} is {what}" for what, name in unread.others.items())
    for file, count in recorded.no_durations.items():
        left_out = f"{number_of(count, 'duration')} left out"
        yield f"{left_out}, as they are negative or no number, as where a clock is set: {file}"
    for file, (first, count) in recorded.out_of_range.items():
        left_out = f"{number_of(count, 'sample')} left out, as {'it is' if count == 1 else 'they are'}"
        yield f"{left_out} out of range ({first}): {file}"
    for file, (first, count) in recorded.other_lines.items():
        yield f"{number_of(count, 'line')} among samples {'is' if count == 1 else 'are'} none ({first}): {file}"
    if recorded.moved:
        rank, locations = next(iter(recorded.moved.items()))
        more = f", and {len(recorded.moved) - 1} more ranks like it" if len(recorded.moved) > 1 else ""
        seen = f"rank {rank} was on {', then on '.join(locations[:MAX_NAMED])}{more}"
        yield f"{seen}: of which of these a slow step was is not known, and no node is named"
    for ending, path in list(unread.failed.items())[:1]:
        yield f"{path.name} has {ending!r}: what ended its job is read by: clusterproof case {quote(str(path.parent))}"


def _not_known(file: RunFile) -> str:
    """The remark after the name of a file of unknown format. Raises RunError."""
    if what := what_is(file):
        return f": {what}"
    head = head_of(file, HEAD)
    if not head.strip():
        return f" is empty; {_EXPECTED}"
    if b"\0" in head:
        return f" is neither text nor a form that is known; {_EXPECTED}"
    return f": its form is not known; {_EXPECTED}"


def _read(file: RunFile, file_format: Format, recorded: RunData, unread: _Unread) -> bool:
    """Read a file of this format; returns whether it was read to its end.

    Raises RunError if other files contradict it.
    """
    try:
        recorded.add(_facts(file, file_format), str(file))
    except _RefusedError as wrong:
        unread.refused.append(str(wrong))
        return False
    return True


def _facts(file: RunFile, file_format: Format) -> Iterator[Fact]:
    """The contents of a file. Raises _RefusedError for any exception of its reader."""
    try:
        yield from file_format.read(file)
    except RunError as wrong:
        raise _RefusedError(str(wrong)) from None
    except Exception as wrong:  # third-party files may contain anything
        raise _RefusedError(f"{file}: {type(wrong).__name__}: {wrong!s:.100}; expected {file_format.name}") from None


def _is_of_recording(path: Path) -> bool:
    """Whether `clusterproof watch --record` wrote it next to its samples: it is about nodes, not about a run."""
    return path.name in ("cluster.json", "changes.jsonl") or path.parts[0] == "nodes"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def format_of(file: RunFile) -> Format | None:
    """The format of a run's file; None if unknown. Raises RunError."""
    for size in (HEAD, LONG_HEAD):
        head = head_of(file, size)
        known = next((candidate for candidate in FORMATS if _is_of(candidate, head)), None)
        if known or len(head) < size:
            return known
    return next((candidate for candidate in FORMATS if candidate.begins_late and candidate.begins_late(file)), None)


def _is_of(file_format: Format, head: bytes) -> bool:
    try:
        return file_format.is_of(head)
    except Exception:  # it does not begin like anything meaningful
        return False


def _files(folder: Path, links: list[str]) -> Iterator[Path]:
    """The files under a folder, those of a series in order, without links, which are recorded. Raises RunError."""
    files: list[Path] = []
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = (name for name in folders if not (name.startswith(".") or name == OF_FILE_SYSTEM))
        files += (Path(where, name) for name in names if not name.startswith("."))
    if len(files) > MAX_FILES:
        raise RunError(f"{folder}: more than {MAX_FILES:,} files; expected the folder of one run")
    for path in sorted(files, key=_in_series):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # of a run in progress
            continue
        except OSError as wrong:
            _refuse(wrong)
        if stat.S_ISLNK(mode):
            links.append(path.name)
        elif stat.S_ISREG(mode):
            yield path


def _in_series(path: Path) -> tuple[tuple[str | int, ...], tuple[bool, int]]:
    """A sort key for the order of writing: slurm-9, slurm-10; and the parts of a log that was rotated."""
    name, place = in_series(path.name)
    parts = _NUMBER.split(str(path.with_name(name)))
    return tuple(int(word) if at % 2 else word for at, word in enumerate(parts)), place


def _refuse(wrong: OSError) -> NoReturn:
    """Reject a run with an unreadable folder or file: it may contain the slow rank. Raises RunError."""
    raise RunError(f"{wrong.filename}: {wrong.strerror}; expected a run whose folders may all be read") from None


def _name(paths: Sequence[str]) -> str:
    """The run's name: its first file or folder, without suffixes."""
    path = Path(paths[0]).resolve()
    return path.name.partition(".")[0] or path.name or "run"
