"""Puts one fault of the host, or one other difference, into a node image."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed import host
from tests.testbed.archive import cgroup_file
from tests.testbed.faults import with_file
from tests.testbed.image import NodeImage
from tests.testbed.memlock import CLOCK_PATH

CPU = "/sys/devices/system/cpu"
POLICIES = 4


def with_frequency_policies(image: NodeImage, driver: str = "acpi-cpufreq") -> NodeImage:
    """The kernel controls the CPUs' frequency, as on bare metal."""
    for policy in range(POLICIES):
        files = {"driver": driver, "governor": "performance", "max_freq": "3500000"}
        for name, text in files.items():
            image = with_file(image, f"{CPU}/cpufreq/policy{policy}/scaling_{name}", f"{text}\n")
        image = with_file(image, f"{CPU}/cpufreq/policy{policy}/cpuinfo_max_freq", "3500000\n")
    return image


def with_policy(image: NodeImage, policy: int, **scaling: str) -> NodeImage:
    """One frequency policy has another governor or another max_freq."""
    for name, text in scaling.items():
        image = with_file(image, f"{CPU}/cpufreq/policy{policy}/scaling_{name}", f"{text}\n")
    return image


def with_cpus(image: NodeImage, online: int, present: int = 0, threads: int = 2) -> NodeImage:
    """This many CPUs of an EPYC are online; the others, up to `present`, are not."""
    image = with_file(image, f"{CPU}/online", f"0-{online - 1}\n")
    image = with_file(image, f"{CPU}/present", f"0-{(present or online) - 1}\n")
    return with_file(image, "/proc/cpuinfo", host.cpuinfo(online, 2, host.EPYC, threads=threads))


def with_idle_state(image: NodeImage, number: int, name: str, latency_us: int, disable: int = 0) -> NodeImage:
    """CPUs have one more idle state."""
    for file, text in (("name", name), ("latency", latency_us), ("disable", disable)):
        image = with_file(image, f"{CPU}/cpu0/cpuidle/state{number}/{file}", f"{text}\n")
    return image


def with_time(image: NodeImage, **times: int) -> NodeImage:
    """How the CPUs spend their time, in parts: `idle=50, iowait=50`."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return with_file(image, host.TIMES_PATH, host.times((*(times.get(name, 0) for name in names), 0, 0)))


def with_meminfo(image: NodeImage, **values_kib: int) -> NodeImage:
    """Set fields of /proc/meminfo (`MemTotal=…`)."""
    text = image.proc["meminfo"]
    assert isinstance(text, str)
    rows = dict(line.split(":", 1) for line in text.splitlines())
    rows |= {name: f" {value} kB" for name, value in values_kib.items()}
    return with_file(image, "/proc/meminfo", "".join(f"{name}:{value}\n" for name, value in rows.items()))


def with_huge_pages(image: NodeImage, pages: int, free: int) -> NodeImage:
    """This many 2 MiB pages are reserved, and this many of them unused."""
    folder = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    image = with_file(image, f"{folder}/nr_hugepages", f"{pages}\n")
    return with_file(image, f"{folder}/free_hugepages", f"{free}\n")


def with_clock(image: NodeImage, max_error_s: float, *, is_synchronised: bool) -> NodeImage:
    """Set what the kernel reports of its clock."""
    return with_file(image, CLOCK_PATH, host.clock(max_error_s=max_error_s, is_synchronised=is_synchronised))


def with_limit(image: NodeImage, name: str, limit: str) -> NodeImage:
    """Set a limit (nofile, nproc, stack) for everybody."""
    return replace(image, limits=image.limits | {name: limit})


def with_daemon_limit(image: NodeImage, daemon: str, limit: str, group: str = "/system.slice") -> NodeImage:
    """Systemd runs the daemon in its own control group, below one with that memory limit."""
    unit = f"/system.slice/{daemon}.service"
    image = with_file(image, cgroup_file(daemon), f"0::{unit}\n")
    image = with_file(image, f"/sys/fs/cgroup{unit}/memory.max", "max\n")
    return with_file(image, f"/sys/fs/cgroup{group}/memory.max", f"{limit}\n")


def with_pids(image: NodeImage, daemon: str, pids: int, most: int) -> NodeImage:
    """Systemd allows the daemon and its children this many processes and threads (TasksMax)."""
    unit = f"/system.slice/{daemon}.service"
    image = with_file(image, cgroup_file(daemon), f"0::{unit}\n")
    image = with_file(image, f"/sys/fs/cgroup{unit}/pids.current", f"{pids}\n")
    return with_file(image, f"/sys/fs/cgroup{unit}/pids.max", f"{most}\n")
