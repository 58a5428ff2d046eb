"""`clusterproof case JOB`: why a job ended, from the traces it left."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.case import CaseError, Collected, kubernetes
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.folder import read_folder
from clusterproof.plugins.case.period import of_folder, of_slurm, since
from clusterproof.plugins.case.period_report import as_record as period_record
from clusterproof.plugins.case.period_report import markdown as period_markdown
from clusterproof.plugins.case.period_report import text as period_text
from clusterproof.plugins.case.redaction import redacted
from clusterproof.plugins.case.report import as_record, markdown, text
from clusterproof.plugins.case.slurm import NUMBER, read_job
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.opened import is_folder
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import KubernetesError

EXIT_UNREADABLE = 4  # as pytest's for a usage error
ZONE = "--utc-offset"
MAX_OFFSET_S = 14 * 3600  # range of time zones
_OFFSET = re.compile(r"([+-])(\d\d):?([0-5]\d)", re.ASCII)


def case(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what to print. Raises SystemExit as argparse does."""
    option = parser().parse_args(list(_with_zone(arguments)))
    try:
        if option.since is not None:
            return 0, _period(option)
        collected = _collected(option)
    except CaseError as problem:
        return EXIT_UNREADABLE, f"clusterproof case: {problem}\n"
    except OSError as problem:
        return EXIT_UNREADABLE, f"clusterproof case: {option.job!r:.120}: {problem.strerror or problem}\n"
    opened = opened_case(redacted(collected) if option.redact else collected)
    if option.json:
        return 0, json.dumps(as_record(opened), indent=1) + "\n"
    return 0, markdown(opened) if option.markdown else text(opened)


def _period(option: argparse.Namespace) -> str:
    """The report on all jobs that died in a period. Raises CaseError, OSError."""
    now = datetime.now(timezone.utc).timestamp()
    begins = since(option.since, now, option.utc_offset)
    if option.cluster:
        raise CaseError("--cluster is for one job: with --since no node is asked; expected one of the two")
    if option.redact:
        raise CaseError(
            "--redact is for one job: with several, different nodes would get the same names; expected --since without "
            "it"
        )
    if option.job and NUMBER.fullmatch(option.job) and not _is_meant_folder(option.job):
        raise CaseError(
            "a job ID and --since do not go together; expected --since with a folder of job folders, or alone for all "
            "Slurm jobs"
        )
    if option.job:
        period = of_folder(Path(option.job), begins, now, option.utc_offset, _progress)
    else:
        period = of_slurm(begins, now, Path(option.logs) if option.logs else None, option.utc_offset, done=_progress)
    if option.json:
        return json.dumps(period_record(period), indent=1) + "\n"
    return period_markdown(period) if option.markdown else period_text(period)


def _progress(done: int, of: int) -> None:
    """Progress in one line on a terminal, removed at the end."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done} of {of} jobs" if done < of else "\r\x1b[K")
        sys.stderr.flush()


def _collected(option: argparse.Namespace) -> Collected:
    """What is available about the job. Raises CaseError, OSError."""
    if not option.job or not option.job.strip():
        raise CaseError("the job is empty; expected a Slurm job ID, or a folder with what a job left")
    try:
        name, builder = _read_case(option)
        if option.cluster:
            from clusterproof.plugins.case import probe

            probe.read_nodes(option.cluster, builder, builder.job.nodes, builder.job.ran.ends)
    except (InventoryError, KubernetesError, AwsError) as problem:
        raise CaseError(str(problem)) from None
    return joined(name, builder)


def _read_case(option: argparse.Namespace) -> tuple[str, CaseBuilder]:
    """What is available, and the name of the case; also raises the exceptions of inventories and API servers."""
    if kubernetes.is_named(option.job) and not is_folder(option.job):
        cluster, access, named = kubernetes.access_of(option.job)
        builder = CaseBuilder(cluster=cluster)
        if option.logs:
            read_folder(Path(option.logs), builder, option.utc_offset)
        kubernetes.read_job(open_api(access), named, builder, option.utc_offset)
        return f"job {named}", builder
    builder = CaseBuilder()
    if not NUMBER.fullmatch(option.job) or _is_meant_folder(option.job):
        if option.logs:
            raise CaseError("--logs is for a job ID or name; expected a folder without --logs")
        read_folder(Path(option.job), builder, option.utc_offset)
        return Path(option.job).resolve().name, builder
    if option.logs:
        read_folder(Path(option.logs), builder, option.utc_offset, option.job)
    passed_over = f"another user's: clusterproof case ./{option.job} reads it" if is_folder(option.job) else ""
    if passed_over:
        builder.lack(f"the folder {option.job} here, as it is {passed_over}")
    try:
        read_job(option.job, builder, option.utc_offset)
    except CaseError as problem:
        if not passed_over:
            raise
        raise CaseError(f"{problem}; the folder {option.job} here is {passed_over}") from None
    return f"job {option.job}", builder


def _is_meant_folder(number: str) -> bool:
    """Whether the folder of a job's number is meant: another user's could stand in the place of the job."""
    path = Path(number)
    return is_folder(number) and {path.stat().st_uid, path.lstat().st_uid} <= {0, os.geteuid()}


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof case`."""
    line = OneLineParser(
        prog="clusterproof case",
        description="Why a job ended and which node was at fault, from what job, scheduler and nodes left.",
    )
    line.add_argument(
        "job",
        metavar="JOB",
        nargs="?",
        help="a Slurm job ID, NAMESPACE/NAME of a Kubernetes or HyperPod job (also "
        "k8s:CONTEXT/job:NAMESPACE/NAME), or a folder with what a job left: output, sacct, kernel logs, dumps",
    )
    line.add_argument(
        "--since",
        metavar="TIME",
        help="all jobs that died since then (7d, 36h, 2026-03-01): Slurm's, or those in a folder of job folders",
    )
    line.add_argument(
        "--logs",
        metavar="FOLDER",
        help="with a job's name or --since: a folder with kernel logs and output that you saved",
    )
    line.add_argument(
        "--cluster",
        metavar="X",
        help="also read the kernel logs and clock offsets of the job's nodes now (ssh:, slurm:, k8s:…)",
    )
    form = line.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything that was found, as JSON")
    form.add_argument("--markdown", action="store_true", help="Markdown, e.g. for a ticket")
    line.add_argument("--redact", action="store_true", help="replace the names of nodes, files and jobs")
    line.add_argument(
        ZONE,
        metavar="+HH:MM",
        type=_offset_s,
        default=0.0,
        help="the zone of times without one (default: UTC, as on the nodes)",
    )
    return line


def _with_zone(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments; a zone west of UTC looks like an option to argparse unless joined to its option."""
    rest = iter(arguments)
    for word in rest:
        if word == ZONE and (zone := next(rest, None)) is not None:
            yield f"{ZONE}={zone}"
        else:
            yield word


def _offset_s(text: str) -> float:
    match = _OFFSET.fullmatch(text)
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 if match else 0
    if not match or seconds > MAX_OFFSET_S:
        raise argparse.ArgumentTypeError(f"{text!r:.40}; expected a zone such as +02:00, of at most 14 hours")
    return float(-seconds if match[1] == "-" else seconds)
