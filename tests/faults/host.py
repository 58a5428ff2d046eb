"""The host: memory, processes, services."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, Fault
from tests.testbed.needs import needs_frozen
from tests.testbed.node import with_frozen, with_full_root, with_service, with_tmpfs, without_tmpfs

# A process that no signal ends, and that last ran (says /proc) in the machine's first second.
STUCK_LONG_AGO = """
sh -c 'echo >/stuck/file' &
while ! grep -q '^State:.D' /proc/$!/status; do :; done
sed 's/^se.exec_start .*/se.exec_start : 1000.0/' /proc/$!/sched >/run/sched
mount --bind /run/sched /proc/$!/sched
echo ready
wait
"""

ZOMBIES = """exec python3 -c 'import os, time
for _ in range(1001): os.fork() or os._exit(0)
print(flush=True); time.sleep(60)'"""

FAULTS = (
    Fault(
        "a small /dev/shm",
        lambda image: with_tmpfs(image, "/dev/shm", "64m"),
        {"host.dev_shm": FAIL},
        "expected at least 16 GiB",
    ),
    Fault(
        "no /dev/shm",
        lambda image: without_tmpfs(image, "/dev/shm"),
        {"host.dev_shm": FAIL, "storage.mounts_expected": FAIL},  # its like have it
        "nothing is mounted on /dev/shm",
    ),
    Fault(
        "a root volume that is full",
        lambda image: with_full_root(image, 93),
        {"host.root_volume": FAIL},
        "/ is 93 % full; expected less than 90 %",
    ),
    Fault(
        "a root volume that fills up",
        lambda image: with_full_root(image, 84),
        {"host.root_volume": CONCERN},
        "/ is 84 % full",
    ),
    Fault(
        "a process that hangs in the kernel",
        lambda image: with_frozen(image, "/stuck"),
        {"host.d_state": FAIL},
        "in state D: sh (pid ",
        beside=STUCK_LONG_AGO,
        marks=(needs_frozen,),
    ),
    Fault(
        "a process that hangs, of which the kernel does not tell for how long",
        lambda image: with_frozen(image, "/stuck"),
        {"host.d_state": CONCERN},
        "does not tell for how long: sh (pid ",
        beside=STUCK_LONG_AGO.replace("1000.0/", "/"),
        marks=(needs_frozen,),
    ),
    Fault(
        "processes that nobody waits for",
        lambda image: image,
        {"host.zombies": CONCERN},
        "zombies; expected at most 1000",
        beside=ZOMBIES,
    ),
    Fault(
        "a failed unit",
        lambda image: with_service(image, "slurmd", active="failed", sub="failed"),
        {"host.services": FAIL},
        "slurmd",
    ),
    Fault(
        "an enabled service that does not run",
        lambda image: with_service(image, "munge", active="inactive", sub="dead"),
        {"host.services": FAIL},
        "munge is inactive",
    ),
)
