"""The files of a run's report, one module each; each is written atomically.

Modules here are found automatically. Their `FORMAT` has the file's name and contents.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import BufferedWriter
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from clusterproof.plugins.core.opened import created

if TYPE_CHECKING:
    from clusterproof.reports.run import Run

SUMMARY = "summary.md"
JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_JOB_SUMMARY = 1_000_000  # bytes; GitHub shows no summary at all above 1 MiB


@dataclass(frozen=True, slots=True)
class Format:
    """One file of a report: its name, and a function that makes its text; None: nothing to write for the run."""

    file: str
    text: Callable[[Run], str | None]


def all_formats() -> list[Format]:
    """The format of each module of this package, by module name."""
    names = sorted(module.name for module in iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").FORMAT for name in names]


def write_report(folder: Path, run: Run) -> None:
    """Write every file of the report that can be written. Raises the first exception afterwards.

    A file that is not written is removed if an earlier run left it, because it would be mistaken for this run's.
    """
    problems: list[Exception] = []
    for file_format in all_formats():
        path, text = folder / file_format.file, None
        try:
            text = file_format.text(run)
            if text is not None:
                write_whole(path, text)
        except Exception as problem:  # a failing file must not affect the others
            problems.append(problem)
            text = None
        if text is None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    try:
        add_to_job(folder / SUMMARY)
    except OSError as problem:
        problems.append(problem)
    if problems:
        raise problems[0]


def add_to_job(summary: Path) -> None:
    """Append it to a GitHub job's summary, if running there: its first lines, if it is too long. Raises OSError."""
    job_summary = os.environ.get(JOB_SUMMARY)
    if not job_summary:
        return
    text = summary.read_bytes()
    if len(text) > MAX_JOB_SUMMARY:
        note = f"_Only the beginning, as GitHub shows no more; all of it is in {SUMMARY} of the report._\n\n"
        text = note.encode() + text[: text.rfind(b"\n", 0, MAX_JOB_SUMMARY) + 1]
    with Path(job_summary).open("ab") as file:
        file.write(text)


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with BufferedWriter(created(new)) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
