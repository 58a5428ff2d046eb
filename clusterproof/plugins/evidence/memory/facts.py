"""The memory of a node, how the kernel deals it out, and the errors that memory controllers have counted."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, number, one, optional, text, whole
from clusterproof.plugins.evidence.processors.facts import cpu_list

KIB_PER_GIB = 2**20


@record
class HugePages(Reported):
    """Pages of one size that are reserved, and how many of them nobody uses."""

    size_kib = Field(whole)
    pages = Field(whole)
    free = Field(whole)


@record
class NumaNode(Reported):
    """A NUMA node: memory, and the CPUs that are near it."""

    node = Field(whole)
    memory_kib = Field(whole)
    cpus = Field(cpu_list)


@record
class Segments(Reported):
    """NCCL's files in /dev/shm."""

    count = Field(whole)
    kib = Field(whole)
    oldest_s = Field(number)
    left_out = Field(optional(whole))  # whose size and age were not looked at


@record
class MainMemory(Reported):
    """The memory of a node; `transparent` and `numa_balancing` are empty where the kernel has no such thing."""

    total_kib = Field(whole)
    available_kib = Field(whole)
    swap_total_kib = Field(whole)
    swap_free_kib = Field(whole)
    huge_pages = Field(every(HugePages))
    transparent = Field(text)
    numa_balancing = Field(text)
    numa = Field(every(NumaNode))
    nccl_shm = Field(one(Segments))

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
    corrected = Field(whole)
    uncorrected = Field(whole)


@record
class MemoryController(Reported):
    """A memory controller. Counts are of the last `counted_s` seconds, as a rule since its driver was loaded."""

    name = Field(text)
    corrected = Field(whole)
    uncorrected = Field(whole)
    counted_s = Field(whole)
    modules = Field(every(MemoryModule))

    @property
    def label(self) -> str:
        """`mc0: CPU_SrcID#0_MC#0_Chan#1_DIMM#0`: its name, and the modules that counted errors. Raises Incomplete."""
        modules = ", ".join(module.name for module in self.modules)
        return f"{self.name}: {modules}" if modules else self.name

    @property
    def corrected_per_day(self) -> float:
        """How many errors a day it corrects; in the first day, how many it has. Raises Incomplete."""
        return self.corrected / max(self.counted_s / DAY_S, 1.0)
