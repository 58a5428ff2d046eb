"""Samples the host while a job runs: /proc/stat, /proc/pressure, /proc/meminfo."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Node

COLUMNS = ("cpu", "iowait", "psi_cpu", "psi_io", "psi_memory", "mem_free", "blocked")
PRESSURES = (("cpu", "some"), ("io", "full"), ("memory", "full"))
IDLE, IO_WAIT = 3, 4  # of the numbers of the line `cpu`
OWN = 8  # those of guests are included in the first ones


class Sampler:
    """Keeps the counters of the previous sample."""

    def __init__(self, node: Node) -> None:
        self._ticks: list[int] = []
        self._stalled: dict[str, tuple[float, int]] = {}
        node.read("/proc/stat")

    def fixed(self) -> object:
        """There are none."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The values in COLUMNS."""
        stat = node.read("/proc/stat")
        pressures = [self._pressure(node, resource, kind) for resource, kind in PRESSURES]
        free = _after(str(node.text("/proc/meminfo", absent="")), "MemAvailable:")
        blocked = _after(stat, "procs_blocked ")
        return {"values": [*self._cpus(stat), *pressures, None if free is None else free // 1024, blocked]}

    def _cpus(self, stat: str) -> list[float | None]:
        """Busy time and time waiting for I/O, in percent over all CPUs."""
        ticks = [int(word) for word in stat.partition("\n")[0].split()[1 : OWN + 1]]
        before, self._ticks = self._ticks, ticks
        spent = [now - then for now, then in zip(ticks, before)]
        total = sum(spent)
        if len(spent) <= IO_WAIT or total <= 0 or min(spent[IDLE], spent[IO_WAIT]) < 0:
            return [None, None]
        busy = total - spent[IDLE] - spent[IO_WAIT]
        return [round(100 * max(0, busy) / total, 1), round(100 * spent[IO_WAIT] / total, 1)]

    def _pressure(self, node: Node, resource: str, kind: str) -> float | None:
        """Percent of the time since the previous sample; None if the kernel does not count it."""
        text = node.text(f"/proc/pressure/{resource}", absent="")
        line = next((line for line in str(text).splitlines() if line.startswith(kind)), "")
        stalled_us, now = _after(line, "total="), time.monotonic()
        if stalled_us is None:
            return None
        before, self._stalled[resource] = self._stalled.get(resource), (now, stalled_us)
        if before is None or now <= before[0] or stalled_us < before[1]:
            return None
        return round(min(100.0, (stalled_us - before[1]) / 1e4 / (now - before[0])), 1)


def _after(text: str, word: str) -> int | None:
    """The whole number behind a word."""
    rest = text.partition(word)[2].split(None, 1)
    return int(rest[0]) if rest and rest[0].isdecimal() else None
