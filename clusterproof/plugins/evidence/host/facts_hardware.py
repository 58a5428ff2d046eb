"""The processors and memory of a node as the kernel reports them, and the errors that memory controllers counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    object_as,
    objects_as,
    optional,
    output,
    read,
    text,
    texts,
    values,
)

CPUS = Pattern(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
MAX_CPUS = 8192  # that a kernel can be built for
SETS_ITS_OWN_PACE = frozenset({"intel_pstate", "amd-pstate-epp"})  # where powersave is no fixed low frequency
TICKS = "cpus: times"
TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def cpu_list(data: object) -> frozenset[int]:
    """The CPUs of a list such as `0-47,96-143`. Raises TypeError."""
    listed = text(data)
    cpus: set[int] = set()
    for part in listed.split(",") if listed else ():
        span = CPUS.fullmatch(part)
        last = int(span[2] or span[1]) if span else MAX_CPUS
        if not span or last >= MAX_CPUS:
            raise TypeError
        cpus.update(range(int(span[1]), last + 1))
    return frozenset(cpus)


def in_ranges(cpus: Iterable[int]) -> str:
    """The CPUs as a list such as `0-47,96-143`."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


@record
class FrequencyPolicy(Reported):
    """A cpufreq policy; `count` policies are alike, `first` names one of them."""

    driver = Field(text)
    governor = Field(text)
    max_khz = Field(integer)
    limit_khz = Field(integer)
    first = Field(text)
    count = Field(integer)

    @property
    def is_at_full_speed(self) -> bool:
        """Whether the governor lets its CPUs run as fast as they can."""
        return self.governor == "performance" or (self.driver in SETS_ITS_OWN_PACE and self.governor == "powersave")


@record
class IdleState(Reported):
    """A state that an idle CPU may enter, and the time that it takes to wake from it."""

    name = Field(text)
    latency_us = Field(integer)
    disabled = Field(boolean)


@record
class ProcessorInfo(Reported):
    """What /proc/cpuinfo says; empty and 0 where it does not name a thing."""

    model = Field(text)
    microcode = Field(texts)
    sockets = Field(integer)
    cores = Field(integer)


@record
class Processors(Reported):
    """The processors of a node."""

    machine = Field(text)
    online = Field(cpu_list)
    present = Field(cpu_list)
    smt = Field(text)
    info = Field(object_as(ProcessorInfo))
    policies = Field(objects_as(FrequencyPolicy))
    idle_states = Field(objects_as(IdleState))
    times = Field(values)

    @property
    def threads_per_core(self) -> int:
        """How many CPUs a core has that has all its own online; 0 where the kernel does not report it."""
        return ceil(len(self.online) / self.info.cores) if self.info.cores else 0

    @property
    def time_percent(self) -> Mapping[str, float]:
        """What all CPUs did between two looks, in % of their time. Raises Incomplete."""
        looks = [[read(tick, integer, TICKS) for tick in read(look, values, TICKS)] for look in self.times]
        if len(looks) != 2 or min(map(len, looks)) < len(TIMES):
            raise Incomplete(f"{TICKS} is not understood", cause="not understood")
        spent = [now - then for _, then, now in zip(TIMES, *looks)]  # noqa: B905
        if sum(spent) <= 0:
            raise Incomplete("/proc/stat did not move between two looks", cause="/proc/stat stands still")
        return {name: 100 * ticks / sum(spent) for name, ticks in zip(TIMES, spent)}  # noqa: B905


KIB_PER_GIB = 2**20
_ARC = Pattern(r"(?m)^(c_min|size)[ \t]{1,80}\d{1,2}[ \t]{1,20}(\d{1,18})$")


@record
class HugePages(Reported):
    """Reserved huge pages of one size, and how many are free."""

    size_kib = Field(integer)
    pages = Field(integer)
    free = Field(integer)


@record
class NumaNode(Reported):
    """A NUMA node: memory, and the CPUs that are near it."""

    node = Field(integer)
    memory_kib = Field(integer)
    cpus = Field(cpu_list)


@record
class Segments(Reported):
    """The files of NCCL in /dev/shm."""

    count = Field(integer)
    kib = Field(integer)
    oldest_s = Field(number)
    left_out = Field(optional(integer))  # whose size and age were not looked at


@record
class MainMemory(Reported):
    """A node's memory; `transparent` and `numa_balancing` are empty where the kernel lacks the feature."""

    total_kib = Field(integer)
    available_kib = Field(integer)
    arcstats = Field(optional(output))  # of ZFS; empty without it, None in older recordings
    swap_total_kib = Field(integer)
    swap_free_kib = Field(integer)
    corrupted_kib = Field(optional(integer))  # in pages taken out of use for their errors; None in older recordings
    huge_pages = Field(objects_as(HugePages))
    transparent = Field(text)
    numa_balancing = Field(text)
    numa = Field(objects_as(NumaNode))
    nccl_shm = Field(object_as(Segments))

    @property
    def arc_kib(self) -> int:
        """What ZFS's cache gives back where memory is short, which the kernel does not count as available."""
        counts = {row[0]: int(row[1]) for row in _ARC.findall(self.arcstats or "")}
        return max(0, counts["size"] - counts["c_min"]) // 1024 if len(counts) == 2 else 0

    @property
    def total_gib(self) -> float:
        """What the kernel has to deal out. Raises Incomplete."""
        return self.total_kib / KIB_PER_GIB

    @property
    def transparent_mode(self) -> str:
        """The chosen word of `always [madvise] never`; empty where the kernel has no transparent huge pages."""
        return self.transparent.partition("[")[2].partition("]")[0]

    @property
    def sockets(self) -> tuple[NumaNode, ...]:
        """The NUMA nodes that have CPUs: memory of GPUs and expanders is a node of its own."""
        return tuple(node for node in self.numa if node.cpus)


DAY_S = 86400


@record
class MemoryModule(Reported):
    """A memory module that has counted errors; `name` is its label where the firmware gives one."""

    name = Field(text)
    corrected = Field(integer)
    uncorrected = Field(integer)


@record
class MemoryController(Reported):
    """A memory controller. Its counts cover the last `counted_s` seconds, usually since its driver was loaded."""

    name = Field(text)
    corrected = Field(integer)
    uncorrected = Field(integer)
    counted_s = Field(integer)
    of_all_boots = Field(optional(boolean))  # of a database that a reboot does not clear
    modules = Field(objects_as(MemoryModule))

    @property
    def label(self) -> str:
        """`mc0: CPU_SrcID#0_MC#0_Chan#1_DIMM#0`: its name, and the modules that counted errors. Raises Incomplete."""
        modules = ", ".join(module.name for module in self.modules)
        return f"{self.name}: {modules}" if modules else self.name

    @property
    def corrected_per_day(self) -> float:
        """How many errors a day it corrects; in the first day, how many it has. Raises Incomplete."""
        if not self.corrected:
            return 0.0
        return self.corrected / max(self.counted_s / DAY_S, 1.0)
