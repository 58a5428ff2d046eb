"""What the user may choose of the probe, and how long each collector may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.plugins.agent.run import Request

DEADLINE_FACTORS = {"nvml": 3.0}  # times `collector_s`: without persistence mode, NVML's first call starts every GPU
END_S = 1.0  # for ending what does not answer
SEND_S = 10.0  # for sending the answer


@record
class ProbeOptions:
    """How the probe runs on each node."""

    host_root: str = "/"  # everything is read under it
    collector_s: float = 5.0  # for one collector; DEADLINE_FACTORS multiplies it
    mount_s: float = 2.0  # for one mounted file system, within its collector
    sudo: bool = False  # run as root through `sudo -n` where that is permitted
    checkpoints: tuple[str, ...] = ()  # folders that jobs save to: the probe reports how their files are striped
    mounts: tuple[str, ...] = ()  # mount points that the policy expects: they are looked at before others
    room: int = 0  # characters of an answer that its connection carries; 0: all
    log_cursor: tuple[str, int, float] = NO_CURSOR  # boot id, sequence, seconds: the kernel log is read from there on

    def deadline_s(self, collector: str) -> float:
        """Seconds for one collector."""
        return self.collector_s * DEADLINE_FACTORS.get(collector, 1.0)

    def whole_s(self, collectors: Iterable[str]) -> float:
        """Seconds on the node for everything, sending included."""
        return max((self.deadline_s(collector) for collector in collectors), default=0.0) + END_S + SEND_S

    def request(self, modules: Mapping[str, str]) -> Request:
        """What the runner is asked: to read these collectors, each by its module, the slowest first."""
        slowest_first = sorted(modules, key=lambda collector: (-self.deadline_s(collector), collector))
        return {
            "collectors": {collector: (modules[collector], self.deadline_s(collector)) for collector in slowest_first},
            "root": self.host_root,
            "mount_s": self.mount_s,
            "whole_s": self.whole_s(modules),
            "checkpoints": self.checkpoints,
            "mounts": self.mounts,
            "log_cursor": self.log_cursor,
            "room": self.room,
        }
