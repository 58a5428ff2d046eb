"""Is the node about to run out of open files, or of processes and threads?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]


@mark.hyperpod_node_debugger("I")
@evidence(
    "cat /proc/sys/fs/file-nr; sysctl fs.file-max; lsof -n | awk '{print $1, $3}' | sort | uniq -c | sort -n | tail"
)
def test_open_files(node: Node) -> None:
    """Open files of the whole node.

    At the limit only root can open a file or a connection: data loaders and NCCL's sockets fail, whatever limit a login
    has. Any user can hold many, so this does not keep a node from jobs.

    Remedy (clean up): Find the process that holds them, and restart it; raise fs.file-max if jobs need that many.
    """
    limits, percent = node.kernel_limits, node.threshold("processes.open_files_percent")
    least = node.threshold("limits.nofile")
    concern_if(
        limits.max_files < least, f"fs.file-max {limits.max_files}; expected at least {least:.0f}, as for a user"
    )
    is_full = limits.open_files >= limits.max_files * percent / 100
    concern_if(is_full, f"{limits.open_files} files are open of {limits.max_files}; expected less than {percent:.0f} %")


@mark.hyperpod_node_debugger("I")
@evidence(
    "sysctl kernel.pid_max kernel.threads-max; ps -eLf | wc -l; cat /sys/fs/cgroup/system.slice/*/pids.{current,max}"
)
def test_process_ids(node: Node) -> None:
    """Processes and threads of the whole node.

    At the limit no process or thread can start ("Resource temporarily unavailable"): data loaders, NCCL's threads and
    the daemons that start jobs fail. What Slurm or the kubelet starts shares the limit of its control group (TasksMax).
    Any user can start many, so this does not keep a node from jobs.

    Remedy (clean up): Find whose they are (ps -eLo user= | sort | uniq -c), and end them; raise kernel.pid_max, or
    TasksMax of the daemon's unit, if jobs need that many.
    """
    limits, percent = node.kernel_limits, node.threshold("processes.pids_percent")
    least = node.threshold("processes.pid_max")
    with part:
        concern_if(limits.pid_max < least, f"kernel.pid_max {limits.pid_max}; expected at least {least:.0f}")
    kernel = {"kernel.pid_max": lambda: limits.pid_max, "kernel.threads-max": lambda: limits.threads_max}
    rows = [
        *each(kernel, lambda name: (limits.threads, kernel[name](), name)),
        *each(known(lambda: limits.groups, ()), lambda group: (group.pids, group.most, group.path)),
    ]
    full = [f"{has} of {most} ({whose})" for has, most, whose in rows if has >= most * percent / 100]
    concern_if(full, f"processes and threads: {', '.join(full)}; expected less than {percent:.0f} %")
