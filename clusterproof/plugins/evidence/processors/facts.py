"""The processors as the kernel reports them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import Field, Reported, every, flag, one, read, text, texts, values, whole

CPUS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
MAX_CPUS = 8192  # that a kernel can be built for
SETS_ITS_OWN_PACE = frozenset({"intel_pstate", "amd-pstate-epp"})  # where powersave is no fixed low frequency
TICKS = "cpus: times"
TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def cpu_list(data: object) -> frozenset[int]:
    """The CPUs of a list such as `0-47,96-143`. Raises TypeError."""
    words = text(data)
    cpus: set[int] = set()
    for part in words.split(",") if words else ():
        found = CPUS.fullmatch(part)
        last = int(found[2] or found[1]) if found else MAX_CPUS
        if not found or last >= MAX_CPUS:
            raise TypeError
        cpus.update(range(int(found[1]), last + 1))
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
    """How the kernel chooses the frequency of some CPUs; `count` policies are alike, `first` names one of them."""

    driver = Field(text)
    governor = Field(text)
    max_khz = Field(whole)
    limit_khz = Field(whole)
    first = Field(text)
    count = Field(whole)

    @property
    def is_at_full_speed(self) -> bool:
        """Whether the governor lets its CPUs run as fast as they can."""
        return self.governor == "performance" or (self.driver in SETS_ITS_OWN_PACE and self.governor == "powersave")


@record
class IdleState(Reported):
    """A state that an idle CPU may enter, and the time that it takes to wake from it."""

    name = Field(text)
    latency_us = Field(whole)
    disabled = Field(flag)


@record
class ProcessorInfo(Reported):
    """What /proc/cpuinfo says; empty and 0 where it does not name a thing."""

    model = Field(text)
    microcode = Field(texts)
    sockets = Field(whole)
    cores = Field(whole)


@record
class Processors(Reported):
    """The processors of a node."""

    machine = Field(text)
    online = Field(cpu_list)
    present = Field(cpu_list)
    smt = Field(text)
    info = Field(one(ProcessorInfo))
    policies = Field(every(FrequencyPolicy))
    idle_states = Field(every(IdleState))
    times = Field(values)

    @property
    def threads_per_core(self) -> int:
        """How many CPUs a core has that has all its own online; 0 where the kernel does not report it."""
        return ceil(len(self.online) / self.info.cores) if self.info.cores else 0

    @property
    def time_percent(self) -> Mapping[str, float]:
        """What all CPUs did between two looks, in % of their time. Raises Incomplete."""
        looks = [[read(tick, whole, TICKS) for tick in read(look, values, TICKS)] for look in self.times]
        if len(looks) != 2 or min(map(len, looks)) < len(TIMES):
            raise Incomplete(f"{TICKS} is not understood", cause="not understood")
        spent = [now - then for _, then, now in zip(TIMES, *looks)]  # noqa: B905
        if sum(spent) <= 0:
            raise Incomplete("/proc/stat did not move between two looks", cause="/proc/stat stands still")
        return {name: 100 * ticks / sum(spent) for name, ticks in zip(TIMES, spent)}  # noqa: B905
