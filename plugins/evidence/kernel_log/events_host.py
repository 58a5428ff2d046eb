"""What the kernel log can show of the host: memory, hardware, crashes, lockups, disks, networks, file servers."""

from __future__ import annotations

from typing import TypeAlias

from clusterproof.plugins.core.record import record

BOUND = "the NUMA nodes that it is bound to"


@record
class OomKill:
    """A process killed for want of memory; `group` is whose limit it was, `?` where that is unknown.

    That is a control group, or BOUND: the process may use some NUMA nodes only, and they are full.
    Empty: it was the whole node's memory.

    Here and in all events `lines` is how many lines of the log it stands for: the probe leaves out some of many alike.
    """

    process: str
    pid: int
    group: str
    time: float | None
    lines: int = 1


@record
class AllocationFailure:
    """The kernel had no memory to give, or a control group has no process left.

    `order` is of a page allocation: 2^order pages together; None where it is the limit of a control group.
    """

    what: str
    order: int | None
    time: float | None
    lines: int = 1


@record
class HardwareError:
    """An error that memory, CPU or firmware reported; each `source` (edac, mce, apei) may log the same one."""

    source: str
    is_corrected: bool
    count: int
    words: str
    is_of_previous_boot: bool
    time: float | None
    lines: int = 1


@record
class PcieError:
    """An error that PCIe's advanced error reporting logged for `device`; `severity`: fatal, nonfatal, corrected.

    `layer` is empty where the port above reports it.
    """

    device: str
    severity: str
    layer: str
    time: float | None
    lines: int = 1


@record
class EfaMessage:
    """A line of the EFA driver about an error of `device`, by its name where it has one.

    `address` is the device's on the PCI bus; empty where the line does not have it.
    """

    device: str
    words: str
    time: float | None
    lines: int = 1
    address: str = ""


@record
class EfaStarted:
    """The EFA driver has started the device at `address`: what it said of it before is over."""

    address: str
    time: float | None
    lines: int = 1


@record
class Segfault:
    """A process that crashed, in `library` where the kernel names one."""

    process: str
    pid: int
    library: str
    time: float | None
    lines: int = 1


@record
class HungTask:
    """A process that the kernel saw blocked for more than `seconds`."""

    process: str
    pid: int
    seconds: int
    time: float | None
    lines: int = 1


@record
class Lockup:
    """A CPU that stood still; `kind`: hard, soft, rcu or workqueue."""

    kind: str
    words: str
    time: float | None
    lines: int = 1


@record
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


@record
class Oops:
    """An error in the kernel itself, which killed what ran."""

    words: str
    time: float | None
    lines: int = 1


@record
class Throttled:
    """A processor that was too hot and was slowed down."""

    time: float | None
    lines: int = 1


@record
class DiskEvent:
    """What became of a local disk or of the file system on it: `kind` is error, read_only, shut_down, late or fresh.

    `fresh`: it was mounted or unmounted, so that what stopped its file system before does not hold any more.
    """

    device: str
    kind: str
    words: str
    time: float | None
    lines: int = 1

    @property
    def stops_writes(self) -> bool:
        """Whether nothing more can be written to the file system."""
        return self.kind in ("read_only", "shut_down")


@record
class EnaMessage:
    """A line of the ENA driver about an error."""

    device: str
    words: str
    time: float | None
    lines: int = 1


@record
class TableFull:
    """A table of the kernel's network that had no room: `arp_cache`, `ndisc_cache`, `conntrack`."""

    table: str
    time: float | None
    lines: int = 1


@record
class LinkDown:
    """A network device that lost its link or its cable."""

    device: str
    words: str
    time: float | None
    lines: int = 1


HostEvent: TypeAlias = (
    OomKill
    | AllocationFailure
    | HardwareError
    | PcieError
    | EfaMessage
    | EfaStarted
    | Segfault
    | HungTask
    | Lockup
    | FileServer
    | Oops
    | Throttled
    | DiskEvent
    | EnaMessage
    | TableFull
    | LinkDown
)
