"""Logs and crash dumps that fill their file system."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import concern, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.collect_logs import FOLDERS, MAX_FILES
from clusterproof.plugins.evidence.storage.facts_logs import LogFolder, log_folders

pytestmark = [mark.storage, mark.preflight]

OPEN_TO_USERS = ("/var/crash",)  # any user may create files there, as many and as deep as they like
KIB_IN_MIB = 1024
KIB_IN_GIB = 1024 * 1024


@mark.hyperpod_node_debugger("I.2")
@evidence("du -xsh /var/log /var/crash; df -h /var/log; find /var/log /var/crash -xdev -type f -size +1G -ls")
def test_log_growth(node: Node) -> None:
    """Space taken by logs.

    Logs and crash dumps that nothing limits grow until their file system is full, which mostly is the root volume. What
    counts is the space on the disk; no link is followed, and other file systems below are left out. A file system that
    is mounted for logs alone may fill with them: storage.space says how full it is. It is a concern at most, because
    users can write to logs, too.

    Remedy (clean up): See in the largest files what writes so much, and stop it. Shrink the journal (journalctl
    --vacuum-size=1G) and limit it (SystemMaxUse in journald.conf), have logrotate rotate the other logs (maxsize), and
    remove crash dumps that nobody needs.
    """
    folders = log_folders.of(node)
    if not folders:
        not_applicable(f"there is no {' and no '.join(FOLDERS)}")
    for folder in folders:
        with part:
            _evaluate(node, folder)
        with part:
            if not _is_little_used(node, folder):
                _require_whole(node, folder)


def _evaluate(node: Node, folder: LogFolder) -> None:
    """A concern where a folder takes too much of a file system that is not mounted for it."""
    path, kib, total_kib = _path(folder), folder.kib, folder.total_kib
    most_percent, least_gib = node.threshold("logs.used_concern_percent"), node.threshold("logs.least_concern_gib")
    if not total_kib:
        incomplete(f"the file system of {path} does not report its size")
    if not _is_much(node, kib, total_kib) or path in node.mount_points:
        return
    at_least = "at least " if any(readings(folder, "unread", "is_cut")[0].values()) else ""
    concern(
        f"{path} takes {at_least}{_size(kib)}, {100 * kib / total_kib:.0f} % of its file system{_largest(folder)}"
        f"; expected less than {most_percent:g} %, or {least_gib:g} GiB"
    )


def _is_little_used(node: Node, folder: LogFolder) -> bool:
    """Whether all that is on its file system would be no concern, so that the logs are none."""
    sizes = readings(folder, "used_kib", "total_kib")[0]
    used_kib, total_kib = sizes.get("used_kib"), sizes.get("total_kib")
    return bool(used_kib is not None and total_kib and not _is_much(node, used_kib, total_kib))


def _is_much(node: Node, kib: int, total_kib: int) -> bool:
    """Whether logs of this size are a concern on a file system of that size."""
    return (
        100 * kib >= node.threshold("logs.used_concern_percent") * total_kib
        and kib >= node.threshold("logs.least_concern_gib") * KIB_IN_GIB
    )


def _require_whole(node: Node, folder: LogFolder) -> None:
    """Incomplete where a folder was not looked at to its end; a concern where any user can bring that about."""
    path = _path(folder)
    is_open = path in OPEN_TO_USERS
    with part:
        if folder.is_cut:
            seen = f"{path} has more than {MAX_FILES:,} entries, or its disk is slow: the rest was not read"
            if is_open:
                concern(f"{seen}; expected fewer")
            incomplete(seen)
    if folder.unread:
        seen = f"{number_of(folder.unread, 'folder')} in {path} could not be read{node.if_denied}"
        if is_open:
            concern(f"{seen}; expected folders that can be")
        incomplete(seen, cause="logs could not be read")


def _path(folder: LogFolder) -> str:
    return known(lambda: folder.label, "a folder of logs")


def _largest(folder: LogFolder) -> str:
    """The largest files, as far as they are known."""
    files = [*each(known(lambda: folder.largest, ()), lambda file: (file.path, file.kib))]
    named = ", ".join(f"{path} ({_size(kib)})" for path, kib in files if kib)
    return named and f"; the largest files are {named}"


def _size(kib: int) -> str:
    return f"{kib / KIB_IN_GIB:.1f} GiB" if kib >= KIB_IN_GIB else f"{kib / KIB_IN_MIB:.0f} MiB"
