"""The folder of a run's reports: `runs/<cluster>/<time>/`, or the one that `--report` names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from clusterproof.reports.document import document
from clusterproof.reports.markdown import markdown
from clusterproof.reports.measurements import measurements_csv
from clusterproof.reports.prometheus import prometheus
from clusterproof.reports.run import Run
from clusterproof.reports.suites import suites
from clusterproof.reports.text import text

RUNS = "runs"
LATEST = "latest"
PAGE = "report.html"
FORMS: Mapping[str, Callable[[Run], str | None]] = {  # None: the run has nothing for it
    PAGE: document,
    "summary.md": markdown,
    "summary.txt": text,
    "junit.xml": suites,
    "metrics.prom": prometheus,
    "pairs.csv": measurements_csv,
}
JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_JOB_SUMMARY = 1_000_000  # bytes; GitHub shows no summary at all above 1 MiB
_LONGEST_NAME = 80
_MOST_AT_ONCE = 1_000  # runs of one cluster that begin in the same second


def folder_of_its_own(where: Path, cluster: str, now: datetime) -> Path:
    """A new folder under `where` for a run that begins now. Raises OSError.

    The folder of all runs tells git to pass over it.
    """
    runs = where / RUNS
    if not runs.exists():
        runs.mkdir()
        (runs / ".gitignore").write_text("*\n", encoding="utf-8")
    of_cluster = runs / safe_name(cluster)
    of_cluster.mkdir(exist_ok=True)
    time = f"{now.astimezone(timezone.utc):%Y-%m-%dT%H-%M-%SZ}"
    for number in range(1, _MOST_AT_ONCE):
        folder = of_cluster / (time if number == 1 else f"{time}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{of_cluster} has {_MOST_AT_ONCE} runs of {time}")


def safe_name(cluster: str) -> str:
    """What a cluster's folder is called, whatever the cluster is called."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", cluster)[:_LONGEST_NAME].strip(".")
    return f"{name}_" if name == LATEST else name or "cluster"


def point_latest(where: Path, folder: Path) -> None:
    """Let `runs/latest` lead to a run's folder. Raises OSError where something else has that name."""
    latest = where / RUNS / LATEST
    if latest.exists() and not latest.is_symlink():
        raise FileExistsError(f"{latest} is no link")
    new = latest.with_name(f".{LATEST}-{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(folder.relative_to(latest.parent), target_is_directory=True)
    new.replace(latest)


def write_forms(folder: Path, run: Run) -> None:
    """Write every form of the report that can be written. Raises what kept the first of the others from it.

    A file that this run has nothing for, and that an earlier one left there, goes.
    """
    trouble: list[Exception] = []
    for name, form in FORMS.items():
        try:
            told = form(run)
            if told is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_whole(folder / name, told)
        except Exception as problem:  # whatever it is: one form that breaks costs none of the others
            trouble.append(problem)
    if trouble:
        raise trouble[0]
    summary = os.environ.get(JOB_SUMMARY)
    if summary:
        of_job = (folder / "summary.md").read_bytes()
        if len(of_job) <= MOST_JOB_SUMMARY:
            with Path(summary).open("ab") as file:
                file.write(of_job)


def write_whole(path: Path, told: str) -> None:
    """Write a file so that nobody ever reads half of it. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(told.encode("utf-8", "backslashreplace"))
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
