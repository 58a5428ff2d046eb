"""Open files, processes and threads of a whole node."""

from __future__ import annotations

from tests.faults.fault import CONCERN, INCOMPLETE, Fault
from tests.testbed.host_faults import with_pids
from tests.testbed.node import with_file

FILES, KERNEL = "/proc/sys/fs/file-nr", "/proc/sys/kernel"
PIDS = "/sys/fs/cgroup/system.slice/slurmd.service/pids.current"

FAULTS = (
    Fault(
        "a node that runs out of open files",
        lambda image: with_file(image, FILES, "68813\t0\t98304\n"),
        {"host.open_files": CONCERN},
        "68813 of 98304 files are open; expected less than 70 %",
    ),
    Fault(
        "a node that does not say how many files may be open",
        lambda image: with_file(image, FILES, "68813\n"),
        {"host.open_files": INCOMPLETE},
        "max_files could not be read (EINVAL)",
    ),
    Fault(
        "a node that runs out of process ids",
        lambda image: with_file(
            with_file(image, f"{KERNEL}/pid_max", "32768\n"), "/proc/loadavg", "0.52 0.58 0.59 2/22938 98765\n"
        ),
        {"host.process_ids": CONCERN, "host.kernel_settings": CONCERN},
        "22938 of 32768 (kernel.pid_max); expected less than 70 %",
    ),
    Fault(
        "a kernel that lets few files be open",
        lambda image: with_file(image, FILES, "480\t0\t2000\n"),
        {"host.open_files": CONCERN},
        "fs.file-max 2000; expected at least 65536",
    ),
    Fault(
        "a kernel that has few process ids",
        lambda image: with_file(
            with_file(image, f"{KERNEL}/pid_max", "4096\n"), "/proc/loadavg", "0.52 0.58 0.59 2/1200 3765\n"
        ),
        {"host.process_ids": CONCERN, "host.kernel_settings": CONCERN},
        "kernel.pid_max 4096; expected at least 32768",
    ),
    Fault(
        "a node that runs out of threads",
        lambda image: with_file(image, f"{KERNEL}/threads-max", "5000\n"),
        {"host.process_ids": CONCERN},
        "4312 of 5000 (kernel.threads-max)",
    ),
    Fault(
        "a slurmd that may not start much more",
        lambda image: with_pids(image, "slurmd", 512, 512),
        {"host.process_ids": CONCERN},
        "512 of 512 (/sys/fs/cgroup/system.slice/slurmd.service)",
    ),
    Fault(
        "a control group that does not say what it has",
        lambda image: with_file(with_pids(image, "slurmd", 0, 512), PIDS, "many\n"),
        {"host.process_ids": INCOMPLETE},
        "pids could not be read (EINVAL)",
    ),
)
