"""A healthy node's processors, memory and kernel as seen from inside."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import program
from tests.testbed.image import Content, File, Folder
from tests.testbed.memlock import CLOCK_PATH

LIMITS = {"nofile": "1048576", "nproc": "unlimited", "stack": "8388608"}
TICKS_PATH = "/usr/lib/testbed/ticks"
TIMES_PATH = "/usr/lib/testbed/times"
CPU = "devices/system/cpu"
NUMA = "devices/system/node"
CLOCK = "devices/system/clocksource/clocksource0"
EPYC = "AMD EPYC 7R13 Processor"
XEON = "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"

INSTALLED = (  # kernel modules, with DKMS's own spelling of some
    *(f"updates/dkms/{name}" for name in ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-peermem", "gdrdrv", "efa")),
    *(f"kernel/drivers/{name}" for name in ("infiniband/ib_core", "infiniband/ib_uverbs", "net/ena", "gpu/nouveau")),
    "updates/kernel/fs/lustre/lustre",
)
BUSY = (30, 0, 10, 9_950, 5, 0, 5, 0, 0, 0)  # user, nice, system, idle, iowait, irq, softirq, steal, guest, nice guest


def processors_sys(cpus: int, sockets: int) -> dict[str, Content]:
    """/sys: the CPUs of a virtual machine, their sockets, and the clock source."""
    states = {"state0": ("POLL", 0), "state1": ("C1", 1)}
    tree: dict[str, Content] = {
        f"{CPU}/present": f"0-{cpus - 1}\n",
        f"{CPU}/smt/control": "on\n",
        f"{CPU}/isolated": "\n",
        f"{CPU}/cpuidle/current_driver": "acpi_idle\n",
        f"{CLOCK}/current_clocksource": "kvm-clock\n",
        f"{CLOCK}/available_clocksource": "kvm-clock tsc acpi_pm \n",
    }
    for state, (name, latency_us) in states.items():
        tree |= {
            f"{CPU}/cpu0/cpuidle/{state}/name": f"{name}\n",
            f"{CPU}/cpu0/cpuidle/{state}/latency": f"{latency_us}\n",
            f"{CPU}/cpu0/cpuidle/{state}/disable": "0\n",
        }
    cores = cpus // 2 // sockets  # of one socket: first the first threads of all sockets, then the second ones
    for node in range(sockets):
        first = node * cores
        second = cpus // 2 + first
        tree[f"{NUMA}/node{node}/cpulist"] = f"{first}-{first + cores - 1},{second}-{second + cores - 1}\n"
    return tree


def memory_sys(memory_kib: int, nodes: int, reserved_pages: int = 0) -> dict[str, Content]:
    """/sys: the memory of each NUMA node, with 2 MiB huge pages, all unused."""
    tree: dict[str, Content] = {
        f"{NUMA}/node{node}/meminfo": f"Node {node} MemTotal:       {memory_kib // nodes} kB\n" for node in range(nodes)
    }
    return tree | huge_pages(reserved_pages) | huge_pages(0, size_kib=1048576)


def huge_pages(pages: int, size_kib: int = 2048) -> dict[str, Content]:
    """/sys: this many huge pages are reserved, and all are unused."""
    at = f"kernel/mm/hugepages/hugepages-{size_kib}kB"
    return {f"{at}/{name}": f"{pages}\n" for name in ("nr_hugepages", "free_hugepages")}


REGISTERED = "Character devices:\n  1 nvidia\n\nBlock devices:\n259 blkext\n"  # open device files have null's number


def cpuinfo(cpus: int, sockets: int, model: str, microcode: str = "0xa0011d5", threads: int = 2) -> str:
    """/proc/cpuinfo, as far as it matters here."""
    cores = cpus // threads // sockets
    blocks = []
    for cpu in range(cpus):
        core = cpu % (cpus // threads)
        rows = {
            "processor": cpu,
            "model name": model,
            "microcode": microcode,
            "physical id": core // cores,
            "siblings": cores * threads,
            "core id": core % cores,
            "cpu cores": cores,
            "flags": "fpu vme de pse tsc msr hypervisor",
        }
        blocks.append("".join(f"{key}\t: {value}\n" for key, value in rows.items()))
    return "\n".join(blocks) + "\n"


def processors_proc(cpus: int, sockets: int, model: str) -> dict[str, Content]:
    """/proc: the CPUs, the passing time, and kernel settings."""
    over = {
        "cpuinfo": cpuinfo(cpus, sockets, model),
        "devices": REGISTERED,
        "stat": "cpu " + " ".join(["0" * 14] * len(BUSY)) + "\nbtime 1763583600\n",
        "sys/kernel/numa_balancing": "1\n",
        "sys/kernel/pid_max": "4194304\n",
        "sys/kernel/tainted": "12288\n",  # an unsigned out-of-tree module
        "sys/vm/overcommit_memory": "0\n",
        "sys/net/core/somaxconn": "4096\n",
        "sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        "sys/user/max_user_namespaces": "8255000\n",
    }
    return {path: text for path, text in over.items() if Path("/proc", path).exists()}  # only those of this kernel


def host_files(kernel: str) -> dict[str, Content]:
    """The running kernel's files, and a synchronised clock."""
    return {
        f"/lib/modules/{kernel}/modules.order": "",
        f"/lib/modules/{kernel}/modules.dep": "".join(f"{path}.ko.zst:\n" for path in INSTALLED),
        f"/boot/vmlinuz-{kernel}": "",
        "/usr/share/update-notifier": Folder(),
        "/usr/share/update-notifier/notify-reboot-required": File("#!/bin/sh\n", 0o755),
        CLOCK_PATH: clock(max_error_s=0.03),
        TICKS_PATH: ticks,
        TIMES_PATH: times(BUSY),
    }


def clock(*, max_error_s: float, is_synchronised: bool = True) -> str:
    """adjtimex's answer: status (PLL on, unsynchronised) and maximum error."""
    status = 0x2001 if is_synchronised else 0x40
    return f"{status} {int(max_error_s * 1e6)}\n"


def ticks() -> File:
    """The program that makes time pass: compiled, as it runs on every node."""
    return File(program(Path(__file__).with_name("ticks.c")), 0o755)


def times(each: tuple[int, ...]) -> str:
    """What each twentieth of a second adds to the first line of /proc/stat."""
    return f"{' '.join(map(str, each))}\n"
