"""A user's processes that wait for ever, on a real kernel: only waits in a kernel driver or file system are hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusterproof.plugins.catalog.node import waits_for
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import verdict_of
from tests.builders.probed import PATIENT, probe_node
from tests.testbed.needs import needs_frozen, needs_hung_mount, needs_nodes
from tests.testbed.node import Node, entered, healthy_cpu, with_frozen
from tests.untrusted.programs import USER

LONG_S = 3600.0
VFORK = """
#include <unistd.h>
int main(void) {
    if (!vfork()) { write(1, "held\\n", 5); sleep(60); _exit(0); }
    return 0;
}
"""
# A user's own file system, mounted as setuid fusermount3 does, which answers only the mount request.
FUSE = """
import ctypes, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
fuse = os.open("/run/fuse", os.O_RDWR)
os.mkdir("/dev/shm/mine")
options = f"fd={fuse},rootmode=40000,user_id=65534,group_id=65534".encode()
if libc.mount(b"mine", b"/dev/shm/mine", b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
os.setgid(65534)
os.setuid(65534)
unique = struct.unpack_from("<IIQ", os.read(fuse, 1 << 18))[2]
os.write(fuse, struct.pack("<IiQIIIIHHIIHH8I", 80, 0, unique, 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, *[0] * 8))
signal.signal(signal.SIGUSR1, lambda *_: None)
child = os.fork()
if not child:
    os.close(fuse)  # with its other end open it could not be killed
    os.listdir("/dev/shm/mine")
os.read(fuse, 1 << 18)
os.kill(child, signal.SIGUSR1)  # from here on it waits where only a fatal signal would end it
os.read(fuse, 1 << 18)
os.write(1, b"held\\n")
while True:
    os.read(fuse, 1 << 18)
"""


def vfork(node: Node) -> list[str]:
    """A parent that waits for its vfork child, which sleeps."""
    subprocess.run(["gcc", "-x", "c", "-", "-o", str(node.root / "usr/bin/held")], input=VFORK.encode(), check=True)
    return ["/usr/bin/held"]


def fuse(node: Node) -> list[str]:
    """A reader of a file system that a user has mounted for himself and does not serve."""
    node.run(["mknod", "/run/fuse", "c", "10", "229"])
    return ["/usr/bin/python3", "-c", FUSE]


@contextmanager
def held(hold: Callable[[Node], list[str]]) -> Iterator[Node]:
    with entered(healthy_cpu()) as node:
        process = node.start(hold(node), user=USER if hold is vfork else 0, stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield node


@pytest.mark.parametrize("hold", [pytest.param(vfork, marks=needs_nodes), pytest.param(fuse, marks=needs_hung_mount)])
def test_state_d_that_a_user_holds_is_no_hang(hold: Callable[[Node], list[str]]) -> None:
    with held(hold) as node:
        processes = probe_node(node, ["processes"], PATIENT).collectors["processes"].value
    assert processes["blocked"], "nothing is in state D"
    assert after_an_hour(processes).verdict is Verdict.PASS


@needs_frozen
def test_state_d_in_a_file_system_of_the_kernels_is_a_hang() -> None:
    with entered(with_frozen(healthy_cpu(), "/stuck")) as node:
        node.start(["sh", "-c", "echo $$ >/run/pid; exec touch /stuck/file"])
        node.run(["sh", "-c", "until grep -q '^State:.D' /proc/$(cat /run/pid)/status; do :; done"])
        processes = probe_node(node, ["processes"], PATIENT).collectors["processes"].value
    assert len(processes["blocked"]) == 1
    assert after_an_hour(processes).verdict is Verdict.FAIL


def after_an_hour(processes: dict[str, Any]) -> Any:
    """The verdict, had the process been blocked for an hour."""
    blocked = [{**process, "blocked_s": LONG_S, "age_s": LONG_S} for process in processes["blocked"]]
    return verdict_of("host.d_state", processes={**processes, "blocked": blocked}, kernel_log={"lines": []})


STACKS = {  # innermost first, as in /proc/PID/stack
    ("kernel_clone", "__do_sys_vfork", "do_syscall_64"): "user",
    ("request_wait_answer", "__fuse_simple_request", "fuse_readdir_uncached", "iterate_dir"): "user",
    ("handle_userfault", "do_anonymous_page", "__handle_mm_fault", "exc_page_fault"): "user",
    ("folio_wait_bit_common", "filemap_fault", "__do_fault", "__handle_mm_fault", "ext4_buffered_write_iter"): "shared",
    ("ext4_buffered_write_iter", "vfs_write", "ksys_write"): "shared",
    ("path_openat", "do_filp_open", "do_sys_openat2"): "",
    ("jbd2_log_wait_commit", "ext4_sync_file", "do_fsync"): "file_system",
    ("rpc_wait_bit_killable", "__rpc_execute", "nfs4_proc_getattr", "vfs_statx"): "file_system",
    ("ptlrpc_set_wait", "ptlrpc_queue_wait", "mdc_getattr", "ll_getattr"): "file_system",
    ("folio_wait_bit_common", "ext4_read_inode_bitmap", "ext4_create"): "file_system",
    ("os_acquire_rwlock_write", "_nv049051rm", "rm_ioctl", "nvidia_ioctl"): "driver",
    ("uvm_va_space_mm_shutdown", "exit_mmap", "do_exit"): "driver",
    ("uvm_vm_fault_entry", "__do_fault", "__handle_mm_fault", "exc_page_fault"): "driver",
    ("nv_drm_wait", "nvidia_ioctl"): "driver",
    ("ib_uverbs_write", "vfs_write"): "driver",
    (): "",
}


@pytest.mark.parametrize(("stack", "kind"), STACKS.items(), ids=lambda given: str(given[:1]))
def test_the_innermost_function_that_is_known_says_what_is_waited_for(stack: tuple[str, ...], kind: str) -> None:
    assert waits_for(stack) == kind


@pytest.mark.parametrize(
    ("wait", "stack", "verdict"),
    [
        ("uvm_va_space_mm_shutdown", None, Verdict.FAIL),  # as read without root, and in older recordings
        ("kernel_clone", None, Verdict.PASS),
        ("", None, Verdict.CONCERN),
        ("folio_wait_bit_common", ["folio_wait_bit_common", "exc_page_fault"], Verdict.CONCERN),
        ("path_openat", ["path_openat", "do_filp_open"], Verdict.CONCERN),
    ],
)
def test_a_long_wait_fails_only_in_a_driver_or_a_file_system(
    wait: str, stack: list[str] | None, verdict: Verdict
) -> None:
    process = {"pid": 7, "name": "train", "wait": wait} | ({"stack": stack} if stack is not None else {})
    assert after_an_hour({"total": 9, "zombies": 0, "blocked": [process]}).verdict is verdict
