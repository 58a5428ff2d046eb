"""What the kernel log can tell of the host: memory, hardware errors, PCIe, EFA, crashes, lockups, file servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class OomKill:
    """A process killed for want of memory; `group` is the control group whose limit it was, `?` where that is untold.

    Here and in all events `lines` is how many lines of the log it stands for: the probe leaves out some of many alike.
    """

    process: str
    pid: int
    group: str
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class AllocationFailure:
    """The kernel had no memory, or no process, to give; `order` is of a page allocation: 2^order pages together."""

    what: str
    order: int | None
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class HardwareError:
    """An error that memory, CPU or firmware reported; one error may be told by each `source` (edac, mce, apei)."""

    source: str
    is_corrected: bool
    count: int
    words: str
    is_of_previous_boot: bool
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class PcieError:
    """An error that PCIe's advanced error reporting told of `device`; `severity`: fatal, nonfatal, corrected.

    `layer` is empty where it is the port above that announces it.
    """

    device: str
    severity: str
    layer: str
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class EfaMessage:
    """A line of the EFA driver that tells of an error."""

    device: str
    words: str
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class Segfault:
    """A process that crashed, in `library` where the kernel names one."""

    process: str
    pid: int
    library: str
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class HungTask:
    """A process that the kernel saw blocked for more than `seconds`."""

    process: str
    pid: int
    seconds: int
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class Lockup:
    """A CPU that stood still; `kind`: hard, soft, rcu or workqueue."""

    kind: str
    words: str
    time: float | None
    lines: int = 1


@dataclass(frozen=True, slots=True)
class FileServer:
    """A file server that does not answer (`is_back` False) or answers again; a name that ends in `-` is a prefix."""

    server: str
    is_back: bool
    words: str
    time: float | None
    lines: int = 1

    def brings_back(self, server: str) -> bool:
        """Whether this says that a server is back, or no longer wanted."""
        is_prefix = self.server.endswith("-") and server.startswith(self.server)
        return self.is_back and (is_prefix or server == self.server)


HostEvent: TypeAlias = (
    OomKill | AllocationFailure | HardwareError | PcieError | EfaMessage | Segfault | HungTask | Lockup | FileServer
)
