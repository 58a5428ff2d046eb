"""A fake node matches its image, misbehaves as configured, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed import needs
from tests.testbed.cluster import testbed
from tests.testbed.compiled import LIBRARIES
from tests.testbed.needs import needs_cluster, needs_frozen, needs_hung_mount, needs_nodes
from tests.testbed.node import (
    BootError,
    Node,
    NodeImage,
    entered,
    healthy_cpu,
    healthy_p5,
    with_file,
    with_frozen,
    with_full_root,
    with_hung_mount,
    with_kernel_line,
    with_line,
    with_memlock,
    with_service,
    with_tool,
    without_efa,
    without_file,
    without_libfabric_domain,
    without_module,
    without_tmpfs,
)

SETTLE_S = 600.0
IB = "/sys/class/infiniband"
PCI = "/sys/bus/pci/devices"
LIB = LIBRARIES.removeprefix("/usr")
DOMAINS = "/opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM | grep domain:"
SLURMD_LIMIT = "grep '^Max locked memory' /proc/$(cat /run/slurmd.pid)/limits | awk '{print $4}'"
SHOW = "systemctl show -p Id,LoadState,ActiveState,SubState,UnitFileState"
FAILED_UNITS = "systemctl list-units --state=failed --plain --no-legend"


def output(image: NodeImage, command: str, user: int = 0) -> str:
    """The output of a shell command on a node, with errors mixed in."""
    with entered(image) as node:
        return node.run(["/bin/sh", "-c", f"exec 2>&1; {command}"], user=user).stdout.decode().strip()


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# ---- what a node is ----


@needs_nodes
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("cat /proc/sys/kernel/hostname; id -u", "node001\n0"),
        (f"grep -l 0x10de {PCI}/*/vendor | wc -l", "12"),
        (f"grep -l 0x030200 {PCI}/*/class | wc -l", "8"),
        (f"cat {PCI}/0000:53:00.0/current_link_width", "16"),
        (f"basename $(readlink -f {PCI}/0000:53:00.0/driver)", "nvidia"),
        (f"cat {IB}/*/ports/1/state | sort | uniq -c", "32 4: ACTIVE"),
        (f"grep -l 0xefa2 {IB}/*/device/device | wc -l", "32"),
        ("ls /dev/infiniband | wc -l", "32"),
        (f"{DOMAINS} | wc -l; {DOMAINS} | sort -u | wc -l", "64\n32"),
        ("cat /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name", "Amazon EC2\np5.48xlarge"),
        ("cat /sys/module/efa/initstate /sys/module/nvidia/version", "live\n580.126.09"),
        ("nv-fabricmanager --version", "Fabric Manager version is : 580.126.09"),
        ("cat /proc/uptime", "86400.50 16500000.00"),
        ("cat /proc/sys/kernel/osrelease", "6.8.0-1021-aws"),
        ("stat -f -c %T /dev/shm; df --output=size -h /dev/shm | tail -1", "tmpfs\n 1.0T"),
        ("head -1 /dev/kmsg | cut -d, -f1-3", "6,0,0"),
        ("ulimit -l; ulimit -H -l", "unlimited\nunlimited"),
        ("cat /proc/$(cat /run/slurmd.pid)/comm", "slurmd"),
        (SLURMD_LIMIT, "unlimited"),
        ("command -v python3", "/usr/bin/python3"),
        ("ls /sys | sort | tr '\\n' ' '", "bus class devices fs kernel module"),
        (". /etc/os-release; echo $PRETTY_NAME", "Ubuntu 22.04.5 LTS"),
    ],
)
def test_a_healthy_p5_is_whole(command: str, answer: str) -> None:
    assert output(healthy_p5(), command) == answer


@needs_nodes
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (f"{SHOW} slurmd", "Id=slurmd.service loaded active running enabled"),
        (f"{SHOW} dcgm", "Id=dcgm.service not-found inactive dead "),
        (f"{SHOW} never-heard-of", "Id=never-heard-of.service not-found inactive dead "),
        (f"{SHOW} --no-pager sshd", "Id=ssh.service loaded active running enabled"),
        ("systemctl show --property=Id munge slurmd", "Id=munge.service\n\nId=slurmd.service"),
        (FAILED_UNITS, ""),
        ("systemctl list-units --state=failed", "0 loaded units listed."),
        ("systemctl is-active slurmd", "active"),
    ],
)  # fmt: skip
def test_systemctl_answers_in_its_own_form(command: str, answer: str) -> None:
    keys = ("LoadState", "ActiveState", "SubState", "UnitFileState")
    text = output(healthy_p5(), command)
    for key in keys:
        text = text.replace(f"\n{key}=", " ")
    assert text.strip() == answer.strip()


@needs_nodes
def test_a_healthy_cpu_node_has_no_gpu_and_no_efa() -> None:
    command = f"ls {IB}; grep -l 0x10de {PCI}/*/vendor; ls /dev/infiniband /opt/amazon 2>/dev/null"
    assert output(healthy_cpu(), command) == ""


@needs_nodes
def test_an_ordinary_user_may_not_read_the_kernel_log() -> None:
    assert output(healthy_p5(), "cat /dev/kmsg", user=65534) == "cat: /dev/kmsg: Permission denied"


@needs_nodes
def test_a_node_sees_its_own_processes_only() -> None:
    names = output(healthy_cpu(), "cat /proc/[0-9]*/comm").split()
    of_passing = {"cat", "sh", "sleep"}  # may come or go during the comparison
    assert set(names) - of_passing == {"containerd", "imds", "slurmd", "ticks"}


@needs_nodes
def test_input_is_given_and_the_exit_status_comes_back() -> None:
    with entered(healthy_cpu()) as node:
        done = node.run(["/bin/sh", "-c", "tr a-z A-Z; exit 7"], input=b"words")
    assert (done.returncode, done.stdout) == (7, b"WORDS")


@needs_nodes
def test_a_node_that_cannot_come_up_says_why() -> None:
    image = with_file(healthy_cpu(), "/proc/nothing-here", "")
    with pytest.raises(BootError, match="nothing-here"), entered(image):
        pass


# ---- faults ----


@needs_nodes
@pytest.mark.parametrize(
    ("change", "command", "answer"),
    [
        (lambda p5: with_file(p5, "/lib/a", "new"), f"cat /usr/lib/a; ls -d {LIB}", f"new{LIB}"),
        (lambda p5: with_file(p5, "/etc/late", lambda: "now"), "cat /etc/late", "now"),
        (lambda p5: with_file(p5, "/proc/uptime", "12.00 1.00"), "cat /proc/uptime", "12.00 1.00"),
        (lambda p5: with_file(p5, f"{IB}/rdmap80s0/ports/1/state", "1: DOWN"),
         f"grep -l DOWN {IB}/*/ports/1/state", f"{IB}/rdmap80s0/ports/1/state"),
        (lambda p5: without_file(p5, "/etc/hostname"), "test -e /etc/hostname || echo none", "none"),
        (lambda p5: without_file(p5, "/usr/bin/nv-fabricmanager"), "which nv-fabricmanager || echo no", "no"),
        (lambda p5: without_file(p5, "/dev/infiniband/uverbs3"), "ls /dev/infiniband | wc -l", "31"),
        (lambda p5: without_efa(p5, "rdmap80s0"), f"ls {IB} | wc -l; {DOMAINS} | sort -u | wc -l", "31\n31"),
        (lambda p5: without_libfabric_domain(p5, "rdmap80s0"),
         f"ls {IB} | wc -l; {DOMAINS} | sort -u | wc -l", "32\n31"),
        (lambda p5: without_module(p5, "efa"), "test -e /sys/module/efa || echo none", "none"),
        (lambda p5: with_tool(p5, "fi_pingpong", "#!/bin/sh\necho pong\n"), "fi_pingpong", "pong"),
        (lambda p5: with_service(p5, "slurmd", active="failed", sub="failed"),
         FAILED_UNITS, "slurmd.service loaded failed failed slurmd.service"),
        (lambda p5: with_kernel_line(p5, "NVRM: Xid (PCI:0000:53:00): 79"),
         "tail -1 /dev/kmsg | cut -d, -f1,3-", "3,80000000000,-;NVRM: Xid (PCI:0000:53:00): 79"),
        (lambda p5: with_line(p5, "/etc/fstab", "a:/fsx /fsx nfs"), "tail -1 /etc/fstab", "a:/fsx /fsx nfs"),
        (lambda p5: with_memlock(p5, "65536"), "ulimit -l", "64"),
        (lambda p5: with_memlock(p5, "65536", "slurmd"), SLURMD_LIMIT, "65536"),
        (lambda p5: with_full_root(p5, 93), "df --output=pcent / | tail -1", "93%"),
        (lambda p5: without_tmpfs(p5, "/dev/shm"), "stat -f -c %T /dev/shm", "overlayfs"),
    ],
)  # fmt: skip
def test_a_fault_is_seen_inside(change: Callable[[NodeImage], NodeImage], command: str, answer: str) -> None:
    assert output(change(healthy_p5()), command) == answer


@needs_hung_mount
def test_a_hung_mount_never_answers_but_who_waits_can_be_killed() -> None:
    with entered(with_hung_mount(healthy_cpu(), "/fsx")) as node:
        with pytest.raises(subprocess.TimeoutExpired):
            node.run(["stat", "-f", "/fsx"], timeout=0.5)
        assert node.run(["pgrep", "-x", "stat"]).stdout == b""
        assert b" /fsx " in node.run(["cat", "/proc/self/mountinfo"]).stdout


@needs_frozen
def test_a_writer_to_a_frozen_file_system_cannot_be_killed() -> None:
    with entered(with_frozen(healthy_cpu(), "/stuck")) as node:
        for timeout_s in (0.5, 5.0, 50.0):  # on a busy machine it is killed before it writes
            with pytest.raises(subprocess.TimeoutExpired):
                node.run(["touch", "/stuck/file"], timeout=timeout_s)
            if states := node.run(["ps", "-o", "state=", "-C", "touch"]).stdout:
                break
        assert states == b"D\n"


# ---- nothing is left ----


def namespaces(pid: int) -> set[Path]:
    return {Path(f"/proc/{pid}/ns/{kind}").readlink() for kind in ("mnt", "net", "pid")}


def users_of(spaces: set[Path]) -> list[Path]:
    """The processes in one of these namespaces."""
    links = []
    for link in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            if link.readlink() in spaces:
                links.append(link)
        except OSError:  # it ended meanwhile
            continue
    return links


def traces() -> set[str]:
    """What a testbed could leave behind on this machine; other tests come and go meanwhile."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    mounts = Path("/proc/self/mounts").read_text()
    return {*mounts.splitlines(), *links.splitlines(), *map(str, Path("/run").iterdir())}


def loop_device(node: Node, path: str) -> tuple[Path, str]:
    """The loop device under a mount of the node, and the number of this use."""
    mounts = [line.split() for line in Path(f"/proc/{node.pid}/mounts").read_text().splitlines()]
    source = next(source for source, target, *_ in mounts if target == path)
    device = Path("/sys/block", Path(source).name)
    return device, (device / "diskseq").read_text()


@needs_frozen
@needs_cluster
def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = traces()
    with testbed({"gpu001": with_frozen(healthy_p5(), "/stuck"), "gpu002": healthy_cpu()}) as bed:
        device, use = loop_device(bed.nodes["gpu001"], "/stuck")
        spaces = {bed.network.readlink()}.union(*(namespaces(node.pid) for node in bed.nodes.values()))
        spaces -= namespaces(os.getpid())
        bed.nodes["gpu001"].start(["/bin/sh", "-c", "echo >/stuck/file"])
        assert users_of(spaces)
    assert users_of(spaces) == []
    assert eventually(lambda: traces() <= before), traces() - before
    assert list(tmp_path.iterdir()) == []
    assert eventually(lambda: not (device / "loop").exists() or (device / "diskseq").read_text() != use)


ORPHANED = """
import os, sys
sys.path.insert(0, os.getcwd())
from tests.testbed.node import boot, healthy_cpu, with_frozen
node = boot(with_frozen(healthy_cpu(), "/stuck"))
node.start(["/bin/sh", "-c", "echo >/stuck/file"])
print(node.pid, flush=True)
sys.stdin.read()
"""


@needs_frozen
def test_a_node_ends_with_the_process_that_made_it() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", ORPHANED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as maker:
        assert maker.stdout
        pid = int(maker.stdout.readline())
        spaces = namespaces(pid) - namespaces(os.getpid())
        maker.send_signal(signal.SIGKILL)
    assert eventually(lambda: not users_of(spaces))


# ---- what it needs ----


def test_a_missing_program_is_named_with_what_brings_it() -> None:
    assert needs._without("no-such-sshd", "openssh-server") == (
        "no-such-sshd is not installed: apt-get install openssh-server"
    )


@needs_nodes
def test_a_refusal_of_the_kernel_is_reported() -> None:
    assert needs._refused("a trial", "echo no such thing >&2; exit 1") == (
        "a trial is not permitted here: no such thing"
    )
