"""The host: memory, processes, services."""

from __future__ import annotations

from dataclasses import replace

from clusterproof.plugins.core.policy import Policy
from tests.faults.fault import CONCERN, FAIL, NA, Fault
from tests.faults.gpu import dgx_h100
from tests.testbed.faults import with_spare_port
from tests.testbed.needs import needs_frozen
from tests.testbed.node import (
    with_file,
    with_frozen,
    with_full_root,
    with_nvml,
    with_service,
    with_tmpfs,
    without_driver,
    without_tmpfs,
)

# A process that no signal ends, and that (by /proc) last ran in the machine's first second. That is longer ago than
# AT_ONCE allows, however young this machine is; the default of a minute is not over just after boot.
BMC = "/sys/devices/platform/ipmi_bmc.0/firmware_revision"
AT_ONCE = Policy(thresholds={"processes.d_state_fail_s": 5})
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
        {"host.dev_shm": FAIL, "storage.mounts_expected": FAIL},  # its peers have it
        "nothing is mounted on /dev/shm",
    ),
    Fault(
        "a root volume that is full",
        lambda image: with_full_root(image, 93),
        {"host.root_volume": FAIL, "storage.space": CONCERN},  # another file system is on the same disk
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
        policy=AT_ONCE,
        marks=(needs_frozen,),
    ),
    Fault(
        "a process that hangs, of which the kernel does not say for how long",
        lambda image: with_frozen(image, "/stuck"),
        {"host.d_state": CONCERN},
        "does not say for how long: sh (pid ",
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
        "munge is inactive (proves who asks Slurm)",
    ),
    Fault(
        "a slurmd without a munged, neither of which systemd has started",
        lambda image: with_file(
            with_service(image, "munge", load="not-found", active="inactive", sub="dead", enabled=""),
            "/etc/slurm/slurm.conf",
            "ClusterName=training\n",
        ),
        {"host.services": FAIL},
        "munge does not run, but slurmd needs it by /etc/slurm/slurm.conf (proves who asks Slurm)",
    ),
    Fault(
        "a service that exits and waits to be restarted",
        lambda image: with_service(
            image, "slurmd", active="activating", sub="auto-restart", restarts=2, since_s=86_390
        ),
        {"host.services": FAIL},
        "slurmd ended and is waiting for its next start, after 2 restarts",
    ),
    Fault(
        "a service that is seen to run between one end and the next",
        lambda image: with_service(image, "nvidia-persistenced", enabled="static", restarts=40, since_s=86_380),
        {"host.services": FAIL},
        "nvidia-persistenced restarted 40 times, last 20 s ago (keeps the driver loaded); expected",
    ),
    Fault(
        "a service that the agent of a cloud needs",
        lambda image: with_service(image, "amazon-ssm-agent", active="failed", sub="failed"),
        {"host.services": FAIL},
        "amazon-ssm-agent is failed (lets Systems Manager in)",
    ),
    Fault(
        "units that failed and that no job needs",
        lambda image: with_service(
            with_service(image, "fwupd-refresh", active="failed"), "exporter", active="activating", sub="auto-restart"
        ),
        {"host.services": CONCERN},
        "fwupd-refresh.service failed, exporter.service failed; expected no failed unit",
    ),
    Fault(
        "a service that runs on the other nodes",
        lambda image: with_service(image, "docker", active="inactive", sub="dead", enabled="disabled"),
        {"host.services": CONCERN},
        "docker not running, docker not started at boot; expected running as on 3 of 4 nodes, started at boot as on 3",
    ),
    Fault(
        "a service that runs, and will not after a reboot",
        lambda image: with_service(image, "nvidia-fabricmanager", enabled="disabled"),
        {"host.services": CONCERN},
        "nvidia-fabricmanager not started at boot; expected started at boot as on 3 of 4 nodes",
    ),
    Fault(
        "a BIOS that an update has missed",
        lambda image: with_file(image, "/sys/devices/virtual/dmi/id/bios_version", "0.9\n"),
        {"host.firmware_uniform": CONCERN},
        "BIOS of Amazon EC2 Not Specified 0.9; expected 1.0 as on 3 of 4 nodes",
    ),
    Fault(
        "a BMC that an update has missed",
        lambda image: with_file(image, BMC, "6.9\n"),
        {"host.firmware_uniform": CONCERN},
        "BMC of NVIDIA Not Specified 6.9; expected 6.10 as on 3 of 4 nodes",
        base=lambda: with_file(dgx_h100(), BMC, "6.10\n"),
    ),
    Fault(
        "GPUs with another InfoROM than those of the other nodes",
        lambda image: replace(image, nvml=(image.nvml or "").replace("G520.0200.00.05", "G520.0200.00.04")),
        {"host.firmware_uniform": CONCERN},
        "InfoROM of NVIDIA H100 80GB HBM3 G520.0200.00.04; expected G520.0200.00.05 as on 3 of 4 nodes",
    ),
    Fault(
        "one disk with other firmware",
        lambda image: with_file(image, "/sys/class/nvme/nvme1/firmware_rev", "2\n"),
        {"host.firmware_uniform": CONCERN},
        "firmware of Amazon EC2 NVMe Instance Storage 2 on nvme1; expected 0, as on 7 others of the node",
    ),
    Fault(
        "one GPU with another InfoROM than the others of its node",
        lambda image: with_nvml(image, gpu=5, inforom="G520.0200.00.04"),
        {"host.firmware_uniform": CONCERN},
        "InfoROM of NVIDIA H100 80GB HBM3 G520.0200.00.04 on GPU 5; expected G520.0200.00.05, as on 7 others",
    ),
    Fault(
        "an NVMe controller whose start failed",
        lambda image: without_driver(image, "0000:00:04.0"),
        {"host.device_drivers": FAIL},
        "0000:00:04.0: no driver holds an NVMe controller (1d0f:8061); expected one",
    ),
    Fault(
        "a network adapter without a driver",
        lambda image: without_driver(image, "0000:00:05.0"),
        {"host.device_drivers": FAIL, "network.ena_allowance": NA},
        "0000:00:05.0: no driver holds a network adapter (1d0f:ec20)",
    ),
    Fault(
        "a port on the board that no driver holds",
        with_spare_port,
        {"host.device_drivers": CONCERN},
        "0000:00:1f.6: no driver holds a network adapter (8086:15bc); expected one, unless nobody uses it",
    ),
    Fault(
        "a GPU that no driver holds",
        lambda image: without_driver(image, "0000:53:00.0"),
        {"host.device_drivers": FAIL},
        "0000:53:00.0: no driver holds an NVIDIA GPU (10de:2330)",
    ),
)
