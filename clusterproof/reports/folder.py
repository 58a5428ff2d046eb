"""What is in the folder of a run's reports: every form, each written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BufferedWriter
from pathlib import Path

from clusterproof.plugins.core.written import created
from clusterproof.reports.document import document
from clusterproof.reports.markdown import markdown
from clusterproof.reports.measurements import measurements_csv
from clusterproof.reports.prometheus import prometheus
from clusterproof.reports.run import Run
from clusterproof.reports.runs import PAGE
from clusterproof.reports.suites import suites
from clusterproof.reports.text import text

FORMS: Mapping[str, Callable[[Run], str | None]] = {  # None: the run has nothing for it
    PAGE: document,
    "summary.md": markdown,
    "summary.txt": text,
    "junit.xml": suites,
    "metrics.prom": prometheus,
    "pairs.csv": measurements_csv,
}
JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_JOB_SUMMARY = 1_000_000  # bytes; GitHub shows no summary at all above 1 MiB


def write_forms(folder: Path, run: Run) -> None:
    """Write every form of the report that can be written. Raises what kept the first of the others from it.

    A file that this run has nothing for, and that an earlier one left there, goes.
    """
    problems: list[Exception] = []
    for name, form in FORMS.items():
        try:
            data = form(run)
            if data is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_whole(folder / name, data)
        except Exception as problem:  # whatever it is: one form that breaks costs none of the others
            problems.append(problem)
    if problems:
        raise problems[0]
    summary = os.environ.get(JOB_SUMMARY)
    if summary:
        of_job = (folder / "summary.md").read_bytes()
        if len(of_job) <= MAX_JOB_SUMMARY:
            with Path(summary).open("ab") as file:
                file.write(of_job)


def write_whole(path: Path, data: str) -> None:
    """Write a file so that no reader ever sees half of it. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with BufferedWriter(created(new)) as file:
            file.write(data.encode("utf-8", "backslashreplace"))
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
