"""Log lines that users can cause without limit, and faults that they must not hide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from string import ascii_lowercase

from tests.evidence.kernel_log.user_text import COMM_CHARACTERS, OF_A_PROCESS

FAULTS = {
    "EXT4-fs (nvme1n1p1): Remounting filesystem read-only": "storage.disk_errors",
    "NVRM: GPU 0000:53:00.0: GPU has fallen off the bus.": "gpu.no_xid",
    "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x22:0x56:884)": "gpu.no_xid",
    "mlx5_core 0000:5c:00.0: poll_health:825:(pid 0): Fatal error 1 detected": "network.nic_driver_errors",
    "slurmd: page allocation failure: order:0, mode:0x20(GFP_ATOMIC), nodemask=(null),cpuset=/,mems_allowed=0": (
        "host.no_oom_kill"
    ),
    "Out of memory: Killed process 1 (slurmd) total-vm:1kB, anon-rss:1kB, UID:0": "host.no_oom_kill",
    "nvidia-nvswitch0: SXid (PCI:0000:45:00.0): 20034, Fatal, Link 28 LTSSM Fault Up": "gpu.no_sxid",
}
BEGINS = ("", "EXT4-fs (", "NVRM: GPU", "mlx5_core ", "nvidia-nvs", "Out of mem", "a[7]: ", "traps: ", "oom-kill:c")


def names(begin: str, count: int) -> list[str]:
    """Distinct process names, as a user may choose them."""
    ends: Iterator[str] = map("".join, product(ascii_lowercase, repeat=4))
    return [(begin + end)[:COMM_CHARACTERS] for end in islice(ends, count)]


def crashes(count: int) -> list[str]:
    """Crashes of processes with distinct names that begin like kernel lines."""
    each = -(-count // len(BEGINS))
    return [OF_A_PROCESS["a crash"].format(name) for begin in BEGINS for name in names(begin, each)][:count]


def in_the_middle(many: list[str], few: list[str]) -> list[str]:
    return [*many[: len(many) // 2], *few, *many[len(many) // 2 :]]
