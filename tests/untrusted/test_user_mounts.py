"""User mounts through FUSE, and user files at expected paths: they hide nothing, fail nothing and mislead nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import verdict_of
from tests.builders.probed import PATIENT, SOON, probe_node
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_hung_mount, needs_nodes
from tests.testbed.node import Node, entered, healthy_cpu, with_file, with_tmpfs
from tests.untrusted.programs import USER

FSTAB = "tmpfs /scratch tmpfs size=64m 0 0\n"
# A user's file systems at the paths on the command line, mounted as setuid fusermount3 does if /etc/fuse.conf has
# user_allow_other. Each accepts every request from others and answers none: the caller cannot even be killed.
FUSE = """
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
files = []
for path in sys.argv[1:]:
    os.makedirs(path, exist_ok=True)
    files.append(os.open("/run/fuse", os.O_RDWR))
    options = f"fd={files[-1]},rootmode=40000,user_id=65534,group_id=65534,allow_other".encode()
    if libc.mount(b"mine", path.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), path)
os.setgid(65534)
os.setuid(65534)
def take(file):
    unique = struct.unpack_from("<IIQ", os.read(file, 1 << 18))[2]
    os.write(file, struct.pack("<IiQIIIIHHIIHH8I", 80, 0, unique, 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, *[0] * 8))
    while os.read(file, 1 << 18):
        pass
threads = [threading.Thread(target=take, args=(file,), daemon=True) for file in files]
[thread.start() for thread in threads]
os.write(1, b"mounted\\n")
threads[0].join()
"""


@contextmanager
def mounted(*paths: str) -> Iterator[Node]:
    """A node with a file system of fstab, and a user's at these paths, none of which answers."""
    with entered(image()) as node:
        node.run(["mknod", "/run/fuse", "c", "10", "229"])
        process = node.start(["/usr/bin/python3", "-c", FUSE, *paths], stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"mounted\n"
        yield node


def image() -> NodeImage:
    return with_file(with_tmpfs(healthy_cpu(), "/scratch", "64m"), "/etc/fstab", FSTAB)


def output_of(node: Node, collector: str) -> Collected:
    return probe_node(node, [collector], PATIENT).collectors[collector]


MANY = tuple(f"/dev/shm/{number}" for number in range(70))


@needs_hung_mount
@pytest.mark.parametrize(
    ("paths", "alive", "verdict"),
    [
        (MANY, "yes", Verdict.PASS),
        (("/scratch/mine",), "yes", Verdict.PASS),
        (("/scratch",), "covered", Verdict.INCOMPLETE),
    ],
    ids=["many elsewhere", "below it", "over it"],
)
def test_a_file_system_of_fstab_is_neither_hidden_nor_failed(
    paths: tuple[str, ...], alive: str, verdict: Verdict
) -> None:
    with mounted(*paths) as node:
        collector = output_of(node, "mounts")
    assert collector.status is Status.READ, collector.detail
    assert [mount["alive"] for mount in collector.value["mounts"] if mount["path"] == "/scratch"] == [alive]
    assert {mount["path"] for mount in collector.value["mounts"]}.isdisjoint(MANY)
    assert verdict_of("storage.mounts_alive", mounts=collector.value).verdict is verdict


@needs_hung_mount
@pytest.mark.parametrize("collector", ["jobs", "memory"])
def test_a_users_file_system_in_shared_memory_is_not_waited_for(collector: str) -> None:
    with mounted("/dev/shm/nccl-mine", "/dev/shm/other") as node:
        answer = output_of(node, collector)
    assert answer.status is Status.READ, answer.detail


LOOKING = """
import os
from clusterproof.plugins.agent.reading import Node
def read(node: Node) -> object:
    return os.stat("/dev/shm/mine").st_mode
"""


@needs_hung_mount
def test_a_process_that_a_user_holds_in_his_file_system_does_not_fail_the_node(tmp_path: Path) -> None:
    collector = tmp_path / "looking.py"
    collector.write_text(LOOKING)
    with mounted("/dev/shm/mine") as node:
        evidence = probe_node(node, ["looking"], SOON, further=[collector])
    assert evidence.collectors["looking"].status is Status.STUCK
    assert evidence.collectors["looking"].waits[0] == "request_wait_answer"
    assert evaluated(evidence) is Verdict.CONCERN


@needs_hung_mount
@pytest.mark.parametrize(
    ("waits", "verdict"),
    [
        (("uvm_va_space_mm_shutdown",), Verdict.FAIL),
        (("rwsem_down_read_slowpath", "os_acquire_rwlock_read", "nvidia_ioctl"), Verdict.FAIL),
        (("rwsem_down_read_failed", "down_read", "__access_remote_vm", "environ_read"), Verdict.CONCERN),
        (("request_wait_answer",), Verdict.CONCERN),
        (("schedule_timeout",), Verdict.FAIL),
        ((), Verdict.FAIL),  # as in older recordings
    ],
)
def test_evidence_that_hangs_fails_unless_a_user_can_hold_it(waits: tuple[str, ...], verdict: Verdict) -> None:
    assert evaluated(NodeEvidence("node0", {"nvml": Collected(Status.STUCK, waits=waits)})) is verdict


def evaluated(evidence: NodeEvidence) -> Verdict:
    cluster = Cluster("one", "local", (Target("node0"),))
    return evaluate(node_checks()["node.evidence_complete"], nodes(cluster, {"node0": evidence})["node0"]).verdict


KEYS = "/home/eve/.ssh/authorized_keys"
# What the user does below /home/eve/.ssh, and what is then known of his keys. A process that opens /run/watched for
# reading releases its writer, which leaves a mark.
LURES = {
    "a link to a file of root's": ("ln -s /etc/shadow authorized_keys", "ELOOP"),
    "a link to a device": ("ln -s /dev/watchdog authorized_keys", "ELOOP"),
    "a link to a pipe": ("ln -s /run/watched authorized_keys", "ELOOP"),
    "a pipe": ("mkfifo authorized_keys; (exec 3>authorized_keys; touch /tmp/opened) &", "EINVAL"),
    "a folder": ("mkdir authorized_keys", "EINVAL"),
    "a link for the folder": ("cd ..; mv .ssh aside; ln -s /run/lure .ssh", "ENOTDIR"),
    "a file that he may not read himself": ("echo x >authorized_keys; chmod 0 authorized_keys", "EACCES"),
}


def with_home(node: Node, script: str) -> None:
    """A user's home in which he does this."""
    prepare = f"""
        mkdir -p /home/eve/.ssh /run/lure; chown -R {USER} /home/eve; chmod 1777 /tmp
        mkfifo /run/watched; chmod 666 /run/watched; (exec 3>/run/watched; touch /tmp/opened) >/dev/null 2>&1 &
        echo 'root:$6$secret:1' >/run/lure/authorized_keys; chmod 600 /run/lure/authorized_keys"""
    node.run(["sh", "-c", prepare])
    lure = f"cd /home/eve/.ssh; ({script}) >/dev/null 2>&1"
    node.run(["setpriv", f"--reuid={USER}", "--clear-groups", "sh", "-c", lure])


def keys_of(node: Node) -> Any:
    collector = probe_node(node, ["image"], SOON).collectors["image"]
    assert collector.status is Status.READ
    return collector.value["keys"].get("eve")


@needs_nodes
@pytest.mark.parametrize("lure", LURES)
def test_what_is_no_file_of_the_users_is_not_opened_and_not_known(lure: str) -> None:
    script, why = LURES[lure]
    with entered(healthy_cpu()) as node:
        with_home(node, script)
        keys = keys_of(node)
        assert keys["error"] == why
        assert not (node.root / "tmp/opened").exists()


@needs_nodes
def test_a_file_of_the_users_own_is_read_as_he_would_read_it() -> None:
    with entered(healthy_cpu()) as node:
        with_home(node, "printf 'ssh-rsa A a\\nssh-rsa B b\\n' >authorized_keys; chmod 600 authorized_keys")
        assert keys_of(node) == {"keys": 2, "commands": 0}


@needs_nodes
def test_a_history_that_is_linked_to_nothing_is_not_left_behind() -> None:
    with entered(healthy_cpu()) as node:
        with_home(node, "ln -s /dev/null ../.bash_history; ln -s /etc/shadow id_rsa")
        record = probe_node(node, ["image"], SOON).collectors["image"].value
    of_user = {entry["path"]: entry["bytes"] for entry in record["left"] if "eve" in entry["path"]}
    assert {path: size["error"] for path, size in of_user.items()} == {"/home/eve/.ssh/id_rsa": "ELOOP"}
