"""What the system allows a job."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, not_applicable
from clusterproof.plugins.evidence.field import require
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.host, mark.preflight, mark.ami]

LOGIN = "a login"


@mark.hyperpod_nccl("17")
@evidence("ulimit -s -n -u; cat /proc/$(pgrep -o slurmd)/limits")
def test_ulimits(node: Node) -> None:
    """Stack, file and process limits.

    Jobs inherit the limits of the daemon that starts them. A training process has a connection to many others and many
    threads; with a stack and locked memory that are both unlimited, glibc gives threads a stack of 2 MiB.

    Remedy (fix configuration): Set nofile, nproc and stack in /etc/security/limits.conf, and LimitNOFILE, LimitNPROC
    and LimitSTACK in the daemon's unit; restart it.
    """
    least = {"nofile": node.threshold("limits.nofile"), "nproc": node.threshold("limits.nproc")}
    data, unread = _limits(node)
    stack_kib = node.threshold("stack.minimum_kib")
    stacks = [(owner, size) for owner, limits in data.items() if (size := limits.get("stack")) is not None]
    small = ", ".join(f"{size // 1024} KiB for {owner}" for owner, size in stacks if size < stack_kib * 1024)
    assert not small, f"stack is {small}; expected at least {stack_kib:.0f} KiB"
    require(unread)
    few = [
        (f"{name} {has} for {owner}", f"{name} {limit:.0f}")
        for name, limit in least.items()
        for owner, limits in data.items()
        if (has := limits[name]) is not None and has < limit
    ]
    if few:
        wanted = ", ".join(dict.fromkeys(words for _, words in few))
        concern(f"{', '.join(words for words, _ in few)}; expected at least {wanted}")
    _look_at_threads(node, data)


def _limits(node: Node) -> tuple[dict[str, dict[str, int | None]], list[Incomplete | NotApplicable]]:
    """The limits that could be read, by their owner and their name, and why the others could not."""
    data: dict[str, dict[str, int | None]] = {}
    unread: list[Incomplete | NotApplicable] = []
    for owner, limits in node.process_limits.items():
        data[owner] = {}
        for name in ("stack", "nofile", "nproc", "memlock"):
            try:
                data[owner][name] = limits.soft(name)
            except Incomplete as why:
                unread.append(why)
    return data, unread


def _look_at_threads(node: Node, data: dict[str, dict[str, int | None]]) -> None:
    """A concern about small thread stacks where a job can be that large."""
    nodes, large = len(node.group.nodes), node.threshold("stack.large_job_nodes")
    both = [owner for owner, limits in data.items() if limits["stack"] is None and limits["memlock"] is None]
    if both and nodes >= large:
        concern(
            f"stack and memlock are both unlimited for {', '.join(both)}, and jobs can have {nodes} nodes; "
            f"expected a stack with a limit where there are {large:.0f} nodes or more"
        )


@mark.hyperpod_node_debugger("I")
@evidence("systemctl show -p MemoryMax slurmd containerd; cat /sys/fs/cgroup/system.slice/slurmd.service/memory.max")
def test_daemon_memory(node: Node) -> None:
    """Job daemon memory limit.

    What the daemon starts shares the limit of its control group, or of one above, unless it is moved to another. A job
    killed at that limit has used no more than it was given, and the node has memory left.

    Remedy (fix configuration): Remove MemoryMax and MemoryHigh from the daemon's unit and its slice (systemctl edit),
    and restart it.
    """
    total_kib = node.main_memory.total_kib
    percent = node.threshold("memory.daemon_percent")
    daemons = {name: limits for name, limits in node.process_limits.items() if name != LOGIN}
    if not daemons:
        not_applicable("neither slurmd nor containerd runs here")
    data = {name: limits.soft("memory") for name, limits in daemons.items()}
    little = {name: most for name, most in data.items() if most is not None and most < total_kib * 1024 * percent / 100}
    if little:
        words = ", ".join(f"{name} may use {most / 2**30:.4g} GiB" for name, most in little.items())
        concern(f"{words} of {total_kib / 2**20:.0f} GiB; expected at least {percent:.0f} %, or no limit")
