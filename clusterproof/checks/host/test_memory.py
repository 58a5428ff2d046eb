"""Main memory: its size and use, huge pages and swap; and the room in /dev/shm."""

from __future__ import annotations

from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import SIGNIFICANT, format_pair
from clusterproof.plugins.core.verdict import NotApplicable, concern, concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight, mark.hyperpod_node_debugger("I")]

MIB_IN_KIB, GIB_IN_KIB = 2**10, 2**20
MINUTE_S = 60
OF_RUNTIME = "shm"  # as docker, podman and containerd call the tmpfs that a container gets for itself
EFA_PAGE_KIB = 2048  # what libfabric's EFA provider asks for: MAP_HUGETLB of the default size


@mark.prolog
@mark.epilog
@mark.job
@mark.ami
@evidence("df -h /dev/shm; ls -la /dev/shm")
def test_dev_shm(node: Node) -> None:
    """/dev/shm size.

    NCCL and data loaders exchange data through /dev/shm. If it is too small, they die with a bus error.

    Remedy (fix configuration): Mount a tmpfs of at least 16 GiB on /dev/shm, and remove files that finished jobs left
    there. For a container: --shm-size=16g or --ipc=host; for a pod: an emptyDir of medium Memory.
    """
    mount = node.mount_at("/dev/shm")
    assert mount is not None, "nothing is mounted on /dev/shm; expected a tmpfs"
    with part:
        assert mount.type == "tmpfs", f"/dev/shm is {mount.type}; expected tmpfs"
    if mount.total_kib is None or mount.free_kib is None:
        incomplete(f"/dev/shm does not report its size ({mount.alive})")
    with part:
        total_gib, memory_gib = mount.total_kib / GIB_IN_KIB, node.boot.memory_kib / GIB_IN_KIB
        share = node.threshold("shm.minimum_percent_of_memory") / 100
        least_gib = min(node.threshold("shm.minimum_gib"), memory_gib * share)
        has, least = format_pair(total_gib, least_gib, 3, SIGNIFICANT)
        prefix = "runtime: " if known(lambda: mount.source, "") == OF_RUNTIME else ""
        assert total_gib >= least_gib, f"{prefix}/dev/shm has {has} GiB; expected at least {least} GiB"
    used = 100 * (1 - mount.free_kib / mount.total_kib) if mount.total_kib else 100.0
    limit = node.threshold("shm.used_concern_percent")
    if used > limit:
        full, most = format_pair(used, limit)
        concern(f"/dev/shm is {full} % full; expected at most {most} %")


@mark.prolog
@mark.epilog
@evidence("ls -la /dev/shm/nccl-*; nvidia-smi --query-compute-apps=pid,name --format=csv")
def test_shm_leftovers(node: Node) -> None:
    """NCCL segments in /dev/shm.

    The segments hold memory until they are removed or the node reboots.

    Remedy (clean up): Remove them (rm /dev/shm/nccl-*) when no job is running, and find out why the job was killed.
    """
    left = node.main_memory.nccl_shm
    gpus = known(lambda: node.gpus, None) if left.count else ()
    held = [*each(gpus or (), lambda gpu: gpu.processes)]
    if left.count and not any(held):
        more = "at least " if known(lambda: left.left_out, None) else ""
        age = known(lambda: f", the oldest {more}{left.oldest_s / MINUTE_S:.0f} minutes old", "")
        size = known(lambda: f" of {more}{left.kib / 1024:.0f} MiB", "")
        uses = "uses" if gpus is not None and len(held) == len(gpus) else "is known to use"
        concern(f"{left.count} NCCL segments{size}{age}, but no process {uses} a GPU; expected none")


@mark.ami
@evidence("grep MemTotal /proc/meminfo; dmidecode -t memory")
def test_memory_size(node: Node) -> None:
    """Main memory size.

    The kernel reports a few percent less than is installed. Much less means a failed memory module or a balloon driver.

    Remedy (replace): Look for mem= in /proc/cmdline and for memory errors in the kernel log; otherwise replace the
    node.
    """
    if node.is_outside_ec2:
        not_applicable("only an EC2 type says how much memory there should be")
    due_gib = node.of_type("memory_mib") / 1024
    least_gib = due_gib * (1 - node.threshold("memory.short_fail_percent") / 100)
    total_gib = node.main_memory.total_gib
    has, least = format_pair(total_gib, least_gib)
    expected = f"at least {least} of the {due_gib:.0f} GiB that {node.instance_type} has"
    assert total_gib >= least_gib, f"{has} GiB; expected {expected}"


@evidence("grep MemTotal /proc/meminfo")
def test_memory_uniform(node: Node) -> None:
    """Main memory compared with the group.

    Remedy (investigate): Compare the kernel command line (crashkernel=, mem=) with a healthy node; otherwise replace
    the node.
    """
    total_gib = node.main_memory.total_gib
    counts = node.group.counts("memory", _memory_gib).get("memory")
    reporting, least = sum(counts.values()) if counts else 0, int(node.threshold("group.compared_nodes"))
    if not counts or reporting < least:
        not_applicable(f"{reporting or 'none'} of its group reported it; {least} are needed to compare")
    most_common_gib, count = max(
        counts.items(), key=lambda row: (row[1], float(row[0]))
    )  # of two nodes the one that has more
    is_most_common = _memory_gib(node)["memory"] == most_common_gib
    if not is_most_common and total_gib < float(most_common_gib) * (
        1 - node.threshold("memory.differs_concern_percent") / 100
    ):
        has, most = format_pair(total_gib, float(most_common_gib))
        concern(f"{has} GiB; expected {most} GiB, as on {count} of {reporting} nodes")


def _memory_gib(node: Node) -> dict[str, str]:
    """The size in whole GiB, or to the nearest 1/200 if that is finer."""
    total_gib = node.main_memory.total_gib
    return {"memory": str(round(total_gib, max(0, 3 - len(str(int(total_gib))))))}


@evidence("free -g; grep -wE 'size|c_min' /proc/spl/kstat/zfs/arcstats; ps -eo rss,pid,comm --sort=-rss | head")
def test_memory_available(node: Node) -> None:
    """Available memory.

    What ZFS caches and gives back when memory is short is available, too.

    Remedy (clean up): Find what uses the memory (ps aux --sort=-rss, df /dev/shm, grep Huge /proc/meminfo), and kill
    processes that an earlier job left running.
    """
    memory = node.main_memory
    available_kib = memory.available_kib + known(lambda: memory.arc_kib, 0)
    percent = 100 * available_kib / memory.total_kib if memory.total_kib else 0.0
    fail, worry = node.threshold("memory.available_fail_percent"), node.threshold("memory.available_concern_percent")
    of_all = f"% of {memory.total_gib:.0f} GiB available"
    has, least = format_pair(percent, fail)
    assert percent >= fail, f"{has} {of_all}; expected at least {least} %"
    if percent < worry:
        has, least = format_pair(percent, worry)
        concern(f"{has} {of_all}; expected at least {least} %")


@mark.ami
@evidence("swapon --show; grep Swap /proc/meminfo")
def test_swap(node: Node) -> None:
    """Swap.

    A training job that swaps does not fail: it crawls, and all its other nodes wait.

    Remedy (fix configuration): Turn swap off (swapoff -a) and remove it from /etc/fstab.
    """
    memory = node.main_memory
    total_gib = memory.swap_total_kib / GIB_IN_KIB
    limit_gib = node.threshold("memory.swap_concern_gib")
    if total_gib > limit_gib:
        has, most = format_pair(total_gib, limit_gib, 3, SIGNIFICANT)
        expected = f"at most {most} GiB" if limit_gib else "none"
        in_use = known(lambda: f", {total_gib - memory.swap_free_kib / GIB_IN_KIB:.3g} GiB in use", "")
        concern(f"{has} GiB of swap{in_use}; expected {expected}")


@mark.ami
@evidence("grep -i huge /proc/meminfo; sysctl vm.nr_hugepages")
def test_hugepages(node: Node) -> None:
    """Huge pages.

    Reserved huge pages are lost to every job's memory. The amount that EFA's software reserves is small. Whether 1 GiB
    pages are reserved is compared with the group.

    Remedy (fix configuration): Lower vm.nr_hugepages in /etc/sysctl.d and hugepages= on the kernel command line.
    """
    memory = node.main_memory
    with part:
        unused_gib = sum(each(memory.huge_pages, lambda pages: pages.size_kib * pages.free)) / GIB_IN_KIB
        limit = node.threshold("memory.unused_huge_pages_percent")
        most_gib = memory.total_gib * limit / 100
        if unused_gib > most_gib:
            unused, most = format_pair(unused_gib, most_gib)
            concern(f"{unused} GiB reserved and unused; expected at most {most} GiB, {limit:g} %")
    with suppress(NotApplicable):
        deviations = differences(node, "huge pages", _reserved)
        concern_if(deviations, describe(deviations))


def _reserved(node: Node) -> Values:
    """The sizes of huge pages of which some are reserved, apart from those covered by host.efa_huge_pages."""
    sizes = [*each(node.main_memory.huge_pages, lambda pages: (pages.size_kib, pages.pages))]
    return {f"huge pages of {kib / MIB_IN_KIB:g} MiB": "some" for kib, count in sizes if count and kib != EFA_PAGE_KIB}


@mark.ami
@evidence("grep HugePages_Total /proc/meminfo; grep -r FI_EFA_USE_HUGE_PAGE /etc/environment /etc/profile.d")
def test_efa_huge_pages(node: Node) -> None:
    """Huge pages for EFA.

    libfabric's EFA provider puts its buffers into 2 MiB huge pages. Without them it falls back to small pages, and each
    buffer uses more of the device's memory registrations. Pods that request hugepages-2Mi are not scheduled.

    Remedy (fix configuration): Set vm.nr_hugepages=5128 in /etc/sysctl.d, as EFA's installer does, or
    FI_EFA_USE_HUGE_PAGE=0 if the node should do without.
    """
    if not node.efa_devices:
        not_applicable("no EFA device on this node")
    least = int(node.threshold("memory.efa_huge_pages"))
    sizes = [*each(node.main_memory.huge_pages, lambda pages: (pages.size_kib, pages))]
    of_efa = [pages for kib, pages in sizes if kib == EFA_PAGE_KIB]
    if not of_efa and len(sizes) < len(node.main_memory.huge_pages):
        return  # those of unread size may be of this one
    reserved = sum(pages.pages for pages in of_efa)
    if reserved >= least:
        return
    environment = known(lambda: node.environment, ())
    if any(variable.name == "FI_EFA_USE_HUGE_PAGE" and variable.value == "0" for variable in environment):
        not_applicable("FI_EFA_USE_HUGE_PAGE=0: EFA's software does not use huge pages here")
    concern(f"{reserved} huge pages of 2 MiB; expected at least {least}")
