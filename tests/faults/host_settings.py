"""The host's memory and its kernel: sizes, settings, versions, clock, limits."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed.healthy import KERNEL
from tests.testbed.host_faults import with_clock, with_daemon_limit, with_huge_pages, with_limit, with_meminfo
from tests.testbed.image import Folder
from tests.testbed.needs import needs_numa_balancing
from tests.testbed.node import with_file, with_line, with_service, without_file
from tests.testbed.pci import GPU_BUSES

GIB = 2**20  # KiB
TOTAL_KIB = 2048 * GIB * 984 // 1000
LEFTOVERS = """
for name in a1B2c3 d4E5f6 g7H8i9; do head -c 4194304 /dev/zero >/dev/shm/nccl-$name; done
touch -d '3 hours ago' /dev/shm/nccl-a1B2c3
echo ready
sleep 60
"""
LEFT_RUNNING = """
setpriv --reuid=1234 --clear-groups env SLURM_JOB_ID=41 SLURMD_NODENAME=node001 sleep 60 &
while [ "$(cat /proc/$!/comm)" != sleep ]; do sleep 0.01; done
echo ready
wait
"""
LEFT_IN_SHM = """
head -c 4194304 /dev/zero >/dev/shm/torch_77
chown 1234 /dev/shm/torch_77
touch -d '3 hours ago' /dev/shm/torch_77
echo ready
sleep 60
"""

FAULTS = (
    Fault(
        "no huge pages beside EFA",
        lambda image: with_huge_pages(image, pages=0, free=0),
        {"host.efa_huge_pages": CONCERN},
        "0 huge pages of 2 MiB; expected at least 1",
    ),
    Fault(
        "no huge pages beside EFA, as was chosen",
        lambda image: with_line(with_huge_pages(image, pages=0, free=0), "/etc/environment", "FI_EFA_USE_HUGE_PAGE=0"),
        {"host.efa_huge_pages": NA, "network.transport_plan": CONCERN},
        "not use huge pages here",
    ),
    Fault(
        "no huge pages beside EFA, whose software is told to use them",
        lambda image: with_line(with_huge_pages(image, pages=0, free=0), "/etc/environment", "FI_EFA_USE_HUGE_PAGE=1"),
        {"host.efa_huge_pages": CONCERN, "network.transport_plan": CONCERN},
        "0 huge pages of 2 MiB; expected at least 1",
    ),
    Fault(
        "a slurmd that may use little memory",
        lambda image: with_daemon_limit(image, "slurmd", str(64 * 2**30), "/system.slice/slurmd.service"),
        {"host.daemon_memory": CONCERN},
        "slurmd may use 64 GiB of 2015 GiB; expected at least 90 %",
    ),
    Fault(
        "services that may use half of the memory together",
        lambda image: with_daemon_limit(image, "slurmd", str(1024 * 2**30)),
        {"host.daemon_memory": CONCERN},
        "slurmd may use 1024 GiB",
    ),
    Fault(
        "a limit of slurmd's memory that cannot be read",
        lambda image: with_file(
            with_daemon_limit(image, "slurmd", "max"),
            "/sys/fs/cgroup/system.slice/slurmd.service/memory.max",
            Folder(),
        ),
        {"host.daemon_memory": INCOMPLETE},
        "limits: memory could not be read",
    ),
    Fault(
        "a memory module that is missing",
        lambda image: with_meminfo(image, MemTotal=TOTAL_KIB * 15 // 16, MemAvailable=TOTAL_KIB * 14 // 16),
        {"host.memory_size": FAIL, "host.memory_uniform": CONCERN},
        "1889 GiB; expected at least 1946 of the 2048 GiB that p5.48xlarge has",
    ),
    Fault(
        "a little less memory than on the other nodes",
        lambda image: with_meminfo(image, MemTotal=TOTAL_KIB * 98 // 100),
        {"host.memory_uniform": CONCERN},
        "1975 GiB; expected 2015 GiB, as on 3 of 4 nodes",
    ),
    Fault(
        "pages of memory that the kernel took out of use",
        lambda image: with_meminfo(image, HardwareCorrupted=8),
        {"host.mce_edac": CONCERN},
        "8 kB of memory taken offline because of errors; expected none",
    ),
    Fault(
        "memory that something holds",
        lambda image: with_meminfo(image, MemAvailable=TOTAL_KIB // 8),
        {"host.memory_available": CONCERN},
        "12 % of 2015 GiB available; expected at least 20 %",
    ),
    Fault(
        "hardly any memory left",
        lambda image: with_meminfo(image, MemAvailable=TOTAL_KIB // 50),
        {"host.memory_available": FAIL},
        "2 % of 2015 GiB available; expected at least 5 %",
    ),
    Fault(
        "swap in use",
        lambda image: with_meminfo(image, SwapTotal=8 * GIB, SwapFree=5 * GIB),
        {"host.swap": CONCERN},
        "8 GiB of swap, 3 GiB in use; expected none",
    ),
    Fault(
        "huge pages that nobody uses",
        lambda image: with_huge_pages(image, 250_000, free=200_000),
        {"host.hugepages": CONCERN},
        "391 GiB reserved and unused; expected at most 202 GiB",
    ),
    Fault(
        "NCCL segments that a killed job has left",
        lambda image: image,
        {"host.shm_leftovers": CONCERN},
        "3 NCCL segments of 12 MiB, the oldest 180 minutes old, but no process uses a GPU; expected none",
        beside=LEFTOVERS,
    ),
    Fault(
        "a process that an ended job has left",
        lambda image: image,
        {"host.job_leftovers": CONCERN},
        "sleep (pid ",
        beside=LEFT_RUNNING,
    ),
    Fault(
        "a process that an ended job has left after another",
        lambda image: image,
        {"host.job_leftovers": FAIL},
        ", by its environment of job 41; expected none",
        beside=LEFT_RUNNING,
        occasion="epilog",
    ),
    Fault(
        "files in /dev/shm of a user who has gone",
        lambda image: image,
        {"host.shm_leaked": CONCERN},
        "4 MiB, 0.0 % of the memory, owned by users who run no process: 1 file of user 1234",
        beside=LEFT_IN_SHM,
    ),
    Fault(
        "much of the memory in /dev/shm, of a user who has gone",
        lambda image: with_meminfo(image, MemTotal=32 * 1024),
        {
            "host.shm_leaked": FAIL,
            **dict.fromkeys(("host.memory_uniform", "host.hugepages"), CONCERN),
            "host.memory_size": FAIL,
        },
        "4 MiB, 12.5 % of the memory",
        beside=LEFT_IN_SHM,
        occasion="prolog",
    ),
    Fault(
        "a socket with half of its memory",
        lambda image: with_file(
            image, "/sys/devices/system/node/node1/meminfo", f"Node 1 MemTotal: {TOTAL_KIB // 4} kB\n"
        ),
        {"host.numa": CONCERN},
        "node 1 has 504 GiB; expected 1008 GiB like the largest node",
    ),
    Fault(
        "a GPU whose socket the firmware does not name",
        lambda image: with_file(image, f"/sys/bus/pci/devices/0000:{GPU_BUSES[3]:02x}:00.0/numa_node", "-1\n"),
        {"host.numa": CONCERN},
        ":00.0 has no NUMA node; expected one for every GPU and EFA device",
    ),
    Fault(
        "NUMA balancing off where the other nodes have it on",
        lambda image: with_file(image, "/proc/sys/kernel/numa_balancing", "0\n"),
        {"host.numa_balancing": CONCERN},
        "NUMA balancing off; expected on as on 3 of 4 nodes",
        marks=(needs_numa_balancing,),
    ),
    Fault(
        "transparent huge pages off where the other nodes have them",
        lambda image: with_file(image, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        {"host.thp": CONCERN},
        "transparent huge pages never; expected madvise as on 3 of 4 nodes",
    ),
    Fault(
        "a newer kernel that waits for a reboot",
        lambda image: with_file(image, "/boot/vmlinuz-6.8.0-1024-aws", ""),
        {"host.kernel_running_is_installed": CONCERN},
        f"{KERNEL} is running, but 6.8.0-1024-aws is installed",
    ),
    Fault(
        "a kernel whose modules were removed while it runs",
        lambda image: with_file(
            without_file(image, f"/lib/modules/{KERNEL}"), "/lib/modules/6.8.0-1019-aws/modules.order", ""
        ),
        {"host.kernel_running_is_installed": CONCERN},
        f"{KERNEL} is running, but its modules are gone",
    ),
    Fault(
        "an update that waits for a reboot",
        lambda image: with_file(
            with_file(image, "/run/reboot-required", "*** System restart required ***\n"),
            "/run/reboot-required.pkgs",
            "linux-image-6.8.0-1024-aws\nlibc6\nlibc6\n",
        ),
        {"host.reboot_required": CONCERN},
        "a reboot is pending for libc6, linux-image-6.8.0-1024-aws",
    ),
    Fault(
        "a system that does not mark that a reboot is due",
        lambda image: without_file(image, "/usr/share/update-notifier/notify-reboot-required"),
        {"host.reboot_required": NA},
        "this distribution does not mark pending reboots",
    ),
    Fault(
        "a clock that nothing corrects",
        lambda image: with_clock(image, 16.0, is_synchronised=False),
        {"host.clock_sync": CONCERN},
        "the clock may be off by 16 s or more, and nobody corrects it; expected at most 3 s",
    ),
    Fault(
        "a clock whose server has not answered for hours",
        lambda image: with_clock(image, 7.25, is_synchronised=True),
        {"host.clock_sync": CONCERN},
        "the clock may be off by 7.25 s; expected",
    ),
    Fault(
        "a clock source that the kernel fell back to",
        lambda image: with_file(image, "/sys/devices/system/clocksource/clocksource0/current_clocksource", "acpi_pm\n"),
        {"host.clocksource": CONCERN},
        "clock source acpi_pm; expected tsc or kvm-clock (there: kvm-clock tsc acpi_pm)",
    ),
    Fault(
        "a stack too small for NCCL",
        lambda image: with_limit(image, "stack", "1048576"),
        {"host.ulimits": FAIL},
        "stack is 1024 KiB for a login, 1024 KiB for slurmd, 1024 KiB for containerd; expected at least 4096 KiB",
    ),
    Fault(
        "too few files for a large job",
        lambda image: with_limit(image, "nofile", "1024"),
        {"host.ulimits": CONCERN, "host.kernel_settings": CONCERN},
        "nofile 1024 for a login, nofile 1024 for slurmd, nofile 1024 for containerd; expected at least nofile 65536",
    ),
    Fault(
        "too few processes for a job",
        lambda image: with_limit(image, "nproc", "4096"),
        {"host.ulimits": CONCERN},
        "nproc 4096 for a login",
    ),
    Fault(
        "DCGM that is installed and does not run",
        lambda image: with_service(image, "nvidia-dcgm", active="inactive", sub="dead", enabled="disabled"),
        {"host.services": CONCERN},
        "nvidia-dcgm is inactive; expected DCGM to watch the GPUs",
    ),
)
