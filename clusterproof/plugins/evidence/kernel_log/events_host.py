"""What the kernel log can show of the host: lines of one meaning, and those that are read closer or counted."""

from __future__ import annotations

from typing import TypeAlias

from clusterproof.plugins.core.record import record

BOUND = "the NUMA nodes that it is bound to"


@record
class Logged:
    """A line that means what its `form` of the catalogue says; `device` is empty where it is about the whole node.

    `names` are all by which it calls what it is about: a line that ends another has one of them, or neither has any.
    Here and in all events `lines` is how many lines of the log it stands for: the probe leaves out some of many alike.
    """

    form: str
    device: str
    words: str
    names: tuple[str, ...]
    time: float | None
    lines: int = 1


@record
class NotKnown:
    """An error of a device of ours of which no form knows what it means; lines alike have their `kind` in common."""

    kind: str
    words: str
    time: float | None
    lines: int = 1


@record
class OomKill:
    """A process killed for want of memory; `group` is whose limit it was, `?` where that is unknown.

    That is a control group, or BOUND: the process may use some NUMA nodes only, and they are full.
    Empty: it was the whole node's memory.
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
class Segfault:
    """A process that crashed, in `library` where the kernel names one."""

    process: str
    pid: int
    library: str
    time: float | None
    lines: int = 1


HostEvent: TypeAlias = Logged | NotKnown | OomKill | AllocationFailure | HardwareError | PcieError | Segfault
