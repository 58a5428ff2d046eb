"""Leftovers of ended jobs: processes, and files in /dev/shm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.host.facts_node import JobProcess, OwnedShm
from clusterproof.plugins.evidence.kernel_log.wording import joined
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.host,
    mark.preflight,
    mark.prolog,
    mark.epilog,
    mark.hyperpod_node_debugger("I"),
]

MIB_IN_KIB = 2**10
GIB_IN_KIB = 2**20
MINUTE_S = 60


@evidence("grep -H job_ /proc/[0-9]*/cgroup; grep -lz SLURM_JOB_ID= /proc/[0-9]*/environ; pgrep -af slurmstepd")
def test_job_leftovers(node: Node) -> None:
    """Leftover job processes.

    A process that Slurm started for a job, but that belongs to none of the job's running steps on this node, takes CPU
    time and memory from later jobs. It is matched to a job by its cgroup, otherwise by the environment that a step
    sets; salloc's own shell is ignored. This fails after a job; at any other time it is a concern. Since a process can
    change its own environment, an epilog trusts it only for the user of its own job.

    Remedy (clean up): Kill the processes. Set ProctrackType=proctrack/cgroup in slurm.conf so that none escapes.
    """
    left, more = node.jobs.left, known(lambda: node.jobs.left_out, 0)
    seen = "; ".join([*_by_job(left), *([f"and {more} more"] if more else [])])
    message = f"processes of jobs that no longer run here: {seen}; expected none"
    is_after_job = node.occasion == "epilog"
    fail_if(left and is_after_job, message)
    concern_if(left and not is_after_job, message)
    if node.jobs.unread:
        incomplete(f"processes of other users may not be read{node.if_denied}")


def _by_job(left: Iterable[JobProcess]) -> Iterator[str]:
    """Each job once, with the first of its processes, so that many of one job leave room for all others."""
    by_owner: dict[str, list[str]] = {}
    for process in left:
        of_job = f"in the control group of job {process.job}"
        claimed = f"of user {process.uid}, by its environment of job {process.job}"
        by_owner.setdefault(of_job if process.is_sure else claimed, []).append(f"{process.name} (pid {process.pid})")
    for origin, (first, *others) in by_owner.items():
        yield f"{first}{f' and {len(others)} more' if others else ''} {origin}"


@evidence("ls -la /dev/shm; ps -eo uid= | sort -u")
def test_shm_leaked(node: Node) -> None:
    """Orphaned files in /dev/shm.

    The files hold memory until they are removed or the node reboots. This fails before and after a job if they take up
    much of the memory; otherwise it is a concern.

    Remedy (clean up): Remove the files when their owner has no job on this node, and find out why the job was killed.
    """
    leaked = node.jobs.shm
    if not leaked:
        return
    kib = sum(each(leaked, lambda owned: owned.kib))
    percent = known(lambda: 100 * kib / max(node.boot.memory_kib, 1), None)
    owners = joined(each(leaked, _files))
    size = f"{kib / GIB_IN_KIB:.3g} GiB" if kib >= GIB_IN_KIB else f"{kib / MIB_IN_KIB:.3g} MiB"
    share = f", {percent:.1f} % of the memory," if percent is not None else ""
    message = f"{size}{share} owned by users who run no process: {owners}; expected none"
    is_much = (percent or 0) >= node.threshold("shm.leaked_fail_percent") and node.occasion in ("prolog", "epilog")
    fail_if(is_much, message)
    concern_if(not is_much, message)


def _files(owned: OwnedShm) -> str:
    age = known(lambda: f", the oldest {owned.oldest_s / MINUTE_S:.0f} minutes old", "")
    return f"{number_of(owned.count, 'file')} of user {owned.uid}{age}"
