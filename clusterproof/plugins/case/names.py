"""What the names of files say: what is in them, of which rank or node, which are parts of one log, which are ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from clusterproof.plugins.captures.file_names import prefix
from clusterproof.plugins.training_run.files import CURRENT, in_series

KERNEL_LOG = re.compile(r"(?:^|[._-])(?:dmesg|kern|kernel|kmsg|journal(?:ctl)?)(?=[._-]|$)", re.IGNORECASE)
_NODE_BEHIND = re.compile(r"(?:dmesg|kern|kernel|kmsg|journal(?:ctl)?)[._-]([A-Za-z0-9][A-Za-z0-9-]{0,200})")
SHARED_LOG = re.compile(r"(?:^|[._-])(?:messages|syslog)(?=[._-]|$)", re.IGNORECASE)
_SCHEDULER = re.compile(r"sacct|scontrol", re.IGNORECASE)
_OF_JOB = re.compile(r"job", re.IGNORECASE)
JOBS_OWN = re.compile(r"\.(?:out|err|stdout|stderr)$", re.IGNORECASE)
_OUTPUT = re.compile(r"\.(?:out|err|log|txt|stdout|stderr)$", re.IGNORECASE)
_RANK = re.compile(r"(?:rank|task|proc)[_.-]?(\d{1,7})(?=[._-]|$)|^log\.(\d{1,7})$|^(\d{1,6})\.(?:out|err|log)$")
_SLURM_RANK = re.compile(r"\d{1,12}_(\d{1,7})_log\.(?:out|err)$")
REPORT = (
    "report.html",
    "junit.xml",
    "metrics.prom",
    "summary.md",
    "summary.txt",
)  # of the suite, next to results.jsonl
_OUTBOX = re.compile(r"outbox-\d{1,6}\.jsonl")


def in_parts(files: Iterable[Path]) -> list[list[Path]]:
    """Each file alone, but the parts of a rotated log of output together, in the order of writing.

    Files without the one that is still written, or from number 0 on, may each be another rank's.
    """
    series: dict[Path, list[Path]] = {}
    for path in files:
        name, _ = in_series(path.name)
        is_other = KERNEL_LOG.search(name) or SHARED_LOG.search(name) or is_named_record(name)
        is_log = is_output(path.name) and not is_other
        series.setdefault(path.with_name(name) if is_log else path, []).append(path)
    return [group for parts in series.values() for group in _of_one_log(parts)]


def _of_one_log(parts: list[Path]) -> list[list[Path]]:
    places = {path: in_series(path.name)[1] for path in parts}
    known = set(places.values())
    is_one = CURRENT in known and (False, 0) not in known and len(known) == len(parts)
    return [sorted(parts, key=places.__getitem__)] if is_one else [[path] for path in parts]


def is_output(name: str) -> bool:
    """Whether a file may be the output of ranks or launchers by its name."""
    return bool(_OUTPUT.search(in_series(name)[0]) or "." not in name or rank_of(name) is not None)


def rank_of(name: str) -> int | None:
    """The rank or task that a file is named after."""
    of_log, _ = in_series(name)  # log.rank.3 is no part of one
    match = _RANK.search(name) or _RANK.search(of_log) or _SLURM_RANK.search(of_log)
    return int(next(filter(None, match.groups()))) if match else None


def node_named(path: Path, root: Path) -> str:
    """The node in a kernel log's name, or in its folder's; empty if there is none."""
    name, _ = in_series(path.name)
    behind = _NODE_BEHIND.search(name)
    named = behind[1] if behind else ""
    if named.lower() in ("txt", "log") or named.isdecimal():  # as in dmesg.1.gz
        named = ""
    return prefix(name) or named or (path.parent.name if path.parent != root else "")


def is_packed_log(name: str) -> bool:
    """Whether a file is a packed log by its name, rather than a packed trace, which may be much longer."""
    written_as = in_series(name)[0]
    is_log = _OUTPUT.search(written_as) or KERNEL_LOG.search(written_as) or _SCHEDULER.search(written_as)
    return name.endswith((".gz", ".zst")) and bool(is_log)


def is_named_record(name: str) -> bool:
    """Whether a file may be a record by its name: `job-77.out` is a job's output, whatever it prints."""
    return bool(_SCHEDULER.search(name) or (_OF_JOB.search(name) and not JOBS_OWN.search(name)))


def is_own(path: Path) -> bool:
    """Whether a file of the suite's reports and recordings says nothing of a job, or what others of them say.

    The files next to it show it: a job's own output may have such a name.
    """
    folder = path.parent
    if path.name in REPORT:
        return (folder / REPORT[0]).is_file() and (folder / "results.jsonl").is_file()
    if path.name == "cluster.json":
        return (folder / "nodes").is_dir()
    if folder.name == "nodes":
        return path.suffix == ".json" and (folder.parent / "cluster.json").is_file()
    return bool(_OUTBOX.fullmatch(path.name)) and (folder / "cluster.json").is_file()
