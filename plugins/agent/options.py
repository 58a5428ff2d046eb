"""What the user may choose of the probe, and how patient each collector is."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.record import record

PATIENCE = {"nvml": 3.0}  # times `collector_s`: without persistence mode, NVML's first call starts every GPU
END_S = 1.0  # for ending what does not answer
SEND_S = 10.0  # for sending the answer


@record
class ProbeOptions:
    """How the probe runs on each node."""

    host_root: str = "/"  # everything is read under it
    collector_s: float = 5.0  # for one collector; PATIENCE multiplies it
    mount_s: float = 2.0  # for one mounted file system, within its collector
    sudo: bool = False  # run as root through `sudo -n` where that is permitted
    checkpoints: tuple[str, ...] = ()  # folders that jobs save to: the probe tells how their files are striped
    mounts: tuple[str, ...] = ()  # mount points that the policy expects: they are looked at before others
    room: int = 0  # characters of an answer that its connection carries; 0: all
    log_cursor: tuple[str, int, float] = NO_CURSOR  # boot id, sequence, seconds: the kernel log is read from there on

    def deadline_s(self, collector: str) -> float:
        """Seconds for one collector."""
        return self.collector_s * PATIENCE.get(collector, 1.0)

    def whole_s(self, collectors: Iterable[str]) -> float:
        """Seconds on the node for everything, sending included."""
        return max((self.deadline_s(collector) for collector in collectors), default=0.0) + END_S + SEND_S
