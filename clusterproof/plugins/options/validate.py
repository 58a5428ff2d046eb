"""Validates the command line."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.opened import DISK_FULL, NOT_A_FILE, is_file, is_folder
from clusterproof.plugins.evidence.kernel_log.window import window
from clusterproof.plugins.options import MAX_S, MIN_S, perf_table, table

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options


def check_options(option: Options) -> None:
    """Reject empty values and invalid numbers. Raises pytest.UsageError."""
    _check_none_is_empty(option)
    for flag, value, least in (
        ("--fanout", option.fanout, 1),
        ("--connect-timeout", option.connect_timeout, MIN_S),
        ("--probe-timeout", option.probe_timeout, MIN_S),
        ("--answer-timeout", option.answer_timeout, MIN_S),
        ("--ssm-rate", option.ssm_rate, 0.1),
        ("--slurm-wait", option.slurm_wait, 1),
    ):
        if value is not None and not value >= least:
            raise pytest.UsageError(f"{flag} is {value:g}; expected at least {least:g}")
        if value is not None and flag.endswith(("-timeout", "-wait")) and value > MAX_S:
            raise pytest.UsageError(f"{flag} is {value:g}; expected at most {MAX_S} s, a day")
    if option.ssm_output and not option.ssm_output.startswith("s3://"):
        raise pytest.UsageError(f"--ssm-output is {option.ssm_output!r}; expected s3://BUCKET or s3://BUCKET/PREFIX")
    window_minutes(option.fsx_window)
    log_cursor(option.log_cursor)
    if not option.host_root.startswith("/"):
        raise pytest.UsageError(f"--host-root is {option.host_root!r}; expected a folder that begins with /")
    _check_history(option)
    if option.bundle is not None and not option.bundle.endswith(".tar.zst"):
        raise pytest.UsageError(f"--bundle is {option.bundle!r:.200}; expected a file that ends in .tar.zst")
    if option.cloudwatch is not None:
        check_namespace(option.cloudwatch)
    _check_gate(option)
    _check_files(option)
    try:
        window(option.since)
    except ValueError as why:
        raise pytest.UsageError(str(why)) from None


def _check_none_is_empty(option: Options) -> None:
    """Reject an empty value, as from an unset variable: `--nodes "$NODES"` would mean every node."""
    for options in (*table.GROUPS.values(), *perf_table.GROUPS.values()):
        for argument in options:
            value = getattr(option, argument.dest, None)
            is_empty = "" in value if isinstance(value, list) else value == ""
            if is_empty and argument.flag != "--cluster" and argument.more.get("default") != "":
                raise pytest.UsageError(f"{argument.flag} is empty; expected {argument.more.get('metavar', 'a value')}")


def check_root(config: pytest.Config) -> None:
    """Reject a run whose root is not the folder it is started in. Raises pytest.UsageError.

    Pytest looks for its configuration before it knows our options: an existing file of `--history FILE` looks like a
    test, whose folder becomes the root. Then this folder's pytest.toml is ignored, and anything may be collected.
    `argv.restart_joined` prevents that on a command line; not in PYTEST_ADDOPTS, nor for calls of pytest.main.
    """
    own_ini = config.invocation_params.dir / "pytest.toml"
    are_named = config.args_source is pytest.Config.ArgsSource.ARGS  # named tests: then none are searched for
    if is_file(own_ini) and config.inipath is None and config.option.inifilename is None and not are_named:
        raise pytest.UsageError(
            f"pytest took a path of the command line for a test and did not read {own_ini}; "
            "write every option that names a file elsewhere with an equals sign, as --history=FILE"
        )


def check_namespace(name: str) -> None:
    """Reject namespaces that CloudWatch would reject. Raises pytest.UsageError."""
    if not _NAMESPACE.fullmatch(name):
        raise pytest.UsageError(
            f"--cloudwatch is {name!r:.80}; expected a namespace of letters, digits and . - _ / # :, not of AWS/…"
        )


def _check_gate(option: Options) -> None:
    """Reject gate options without a gate. Raises pytest.UsageError."""
    for flag in ("k8s_max_tainted", "k8s_startup_taint", "k8s_evidence", "k8s_keep"):
        if getattr(option, flag) is not None and not option.k8s_gate:
            raise pytest.UsageError(f"--{flag.replace('_', '-')} is for the gate; expected --k8s-gate with it")
    if option.k8s_every is not None and (option.via != "agents" or option.k8s_every < 1):
        raise pytest.UsageError(f"--k8s-every is {option.k8s_every:g}; expected a second or more, with --via agents")


def _check_history(option: Options) -> None:
    """Reject options that make no sense with a history. Raises pytest.UsageError."""
    if option.history and option.redact:
        raise pytest.UsageError(
            "--history with --redact: redacted names differ from run to run; expected one of the two"
        )


def _check_files(option: Options) -> None:
    """Reject, before nodes are asked, output files that cannot be written, and missing input files."""
    if option.report and option.no_report:
        raise pytest.UsageError("--report with --no-report: expected one of the two")
    if option.keep is not None and option.keep < 1:
        raise pytest.UsageError(f"--keep is {option.keep}; expected 1 or more runs")
    if option.keep is not None and (option.report or option.no_report):
        other = "--report" if option.report else "--no-report"
        raise pytest.UsageError(f"--keep with {other}: expected one of the two, as nothing is added to runs/")
    if option.keep is not None and option.redact:
        raise pytest.UsageError("--keep with --redact: older runs are of any cluster then; expected one of the two")
    if option.report_url is not None:
        _check_report_url(option)
    if option.bundle and os.path.lexists(option.bundle) and not stat.S_ISREG(os.lstat(option.bundle).st_mode):
        raise pytest.UsageError(f"--bundle {option.bundle} {NOT_A_FILE}; expected a new file, or one to be replaced")
    for flag in ("report", "record", "results", "bundle", "history", "save_baseline", "xmlpath", "htmlpath"):
        named = getattr(option, flag, None)
        why = why_not_made(Path(named), as_folder=flag in ("report", "record")) if named else ""
        if why:
            flag_as_typed = {"xmlpath": "--junitxml", "htmlpath": "--html"}.get(flag, f"--{flag.replace('_', '-')}")
            raise pytest.UsageError(f"{flag_as_typed} {named}: {why}; expected a place that may be written")
    if option.baseline and not is_file(option.baseline):
        raise pytest.UsageError(f"--baseline {option.baseline}: no such file; expected one that --save-baseline wrote")


def check_recording(option: Options) -> None:
    """Reject a folder that is also read, or contains what readers of redacted evidence must not see.

    Raises pytest.UsageError.
    """
    folder = Path(option.record or "")
    kind, _, replayed = (option.cluster or "").partition(":")
    if kind == "replay" and option.record and os.path.realpath(replayed) == os.path.realpath(folder):
        raise pytest.UsageError(f"--record {folder} is the recording that is replayed; expected another folder")
    if option.redact and option.record and is_folder(folder) and any(folder.iterdir()):
        raise pytest.UsageError(
            f"--record {folder} with --redact: files are there, with names in them; expected a new folder"
        )


def _check_report_url(option: Options) -> None:
    """Reject what cannot be a page's base URL. Raises pytest.UsageError."""
    if not re.fullmatch(r"https?://[^\s?#]+", option.report_url or ""):
        raise pytest.UsageError(f"--report-url is {option.report_url!r:.80}; expected http(s)://… without ? and #")
    if option.no_report:
        raise pytest.UsageError("--report-url with --no-report: expected one of the two, as there is no page")


def why_not_made(path: Path, *, as_folder: bool) -> str:
    """Why a file or folder cannot be created, in words; empty if it can, or if the disk is full."""
    try:
        there = next(parent for parent in (path, *path.absolute().parents) if _is_there(parent))
        if is_folder(there) != (as_folder or there != path):
            return os.strerror(errno.ENOTDIR if as_folder or there != path else errno.EISDIR)
        if is_folder(there):
            with tempfile.TemporaryFile(dir=there):
                return ""
        return "" if os.access(there, os.W_OK) else os.strerror(errno.EACCES)
    except OSError as problem:
        return "" if problem.errno in DISK_FULL else problem.strerror or str(problem)


def _is_there(path: Path) -> bool:
    """Whether it exists, if only as a link. Raises OSError if that cannot be determined."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def window_minutes(text: str) -> int:
    """`--fsx-window` in minutes. Raises pytest.UsageError."""
    number, unit = text[:-1], text[-1:]
    minutes = int(number) * _MINUTES[unit] if _IS_NUMBER(number) and unit in _MINUTES else 0
    if not _MIN_WINDOW <= minutes <= _MAX_WINDOW:
        raise pytest.UsageError(f"--fsx-window is {text!r:.40}; expected from 15m to 15d, as 90m, 12h or 2d")
    return minutes


def log_cursor(text: str) -> tuple[str, int, float]:
    """The cursor in `--log-cursor`. Raises pytest.UsageError."""
    if not text:
        return NO_CURSOR
    match = _CURSOR.fullmatch(text)
    if not match:
        raise pytest.UsageError(f"--log-cursor is {text!r:.80}; expected BOOT_ID:SEQUENCE:SECONDS")
    return match[1], int(match[2]), float(match[3])


_CURSOR = re.compile(r"([0-9a-f-]{1,64}):(-1|[0-9]{1,18}):([0-9]{1,12}(?:\.[0-9]{1,9})?)")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_MIN_WINDOW = 15  # minutes: the rule for sustained load needs as many
_MAX_WINDOW = 15 * 24 * 60  # CloudWatch keeps one-minute points for so long
_IS_NUMBER = re.compile(r"[0-9]{1,6}").fullmatch
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._/#-][A-Za-z0-9._/#:-]{0,254}")  # as in CloudWatch
