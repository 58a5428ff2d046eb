"""Defines facts: the collectors that a fact reads, and how their data is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized

from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any, Generic, Protocol, TypeVar, overload
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.field import NEVER_READ, Decode, objects, objects_as, read, table, value_of

T = TypeVar("T")
Devices = TypeVar("Devices", bound=Sized)

# Collectors that only captures have: the probe neither queries the scheduler nor runs jobs.
ONLY_CAPTURED = frozenset({"nccl_tests", "slurm_node"})
# Collectors for a node with a running job: they open device files and load libraries, only if -m names job.
IN_JOB = frozenset({"container"})
# Collectors that load the hardware: they run in a second pass.
LOAD_COLLECTORS = frozenset(
    {
        *("dcgm_diag", "efa_loopback", "fs_bandwidth", "gpu_bandwidth", "gpu_gemm", "nccom", "node_busbw"),
        *("cpu_exact", "exact_collective", "exact_step", "gpu_exact", "stress_ng"),
    }
)

_STATUS_TEXTS = {
    Status.DENIED: "may not be read",
    Status.BROKE: "could not be read",
    Status.TIMED_OUT: "did not answer in time",
    Status.STUCK: "hangs and cannot be killed",
    Status.CUT: "was cut",
    Status.UNCOLLECTED: "was not collected",
    Status.NOT_ASKED: "was not requested",
}
UNFINISHED = (Status.TIMED_OUT, Status.STUCK, Status.BROKE, Status.DENIED)  # what it had sent by then is known
EXPECTED = "; expected "
SAME_SELECTION = "; expected a run, or a recording of one, with the same -m and -k"
NOT_COLLECTED = "evidence was not collected"  # one cause for a whole capture, however many commands it lacks

GPUS = "GPUs"
PCI_DEVICES = "PCI devices"
SWITCHES = "PCIe switches"
NICS = "network devices"
INTERFACES = "network interfaces"
DISKS = "NVMe controllers"
MEMORY_CONTROLLERS = "memory controllers"
NEURON_DEVICES = "Neuron devices"
MAX_DEVICES: Mapping[str, int] = {
    GPUS: 64,  # NVIDIA's driver supports 32 in a machine (NV_MAX_DEVICES in its nvlimits.h)
    NEURON_DEVICES: 64,  # the largest machine has 16
    SWITCHES: 256,  # the number of buses in a segment
    NICS: 1024,  # a port has up to some hundreds of virtual functions
    INTERFACES: 1024,
    DISKS: 1024,
    MEMORY_CONTROLLERS: 1024,  # some dozens per socket
    PCI_DEVICES: 4096,  # including functions
}


def limited(devices: Devices, kind: str) -> Devices:
    """The devices of one kind in MAX_DEVICES. Raises Incomplete for more than any machine has."""
    if len(devices) > MAX_DEVICES[kind]:
        seen = f"{len(devices):,} {kind} were reported; expected at most {MAX_DEVICES[kind]:,}"
        raise Incomplete(seen, cause=f"more {kind} were reported than a machine has")
    return devices


def limited_list(kind: Callable[[dict[str, Any]], T], of: str) -> Callable[[object], tuple[T, ...]]:
    """A decoder for a list of JSON objects, of one kind in MAX_DEVICES."""
    decode = objects_as(kind)
    return lambda data: limited(decode(data), of)


@record
class CollectorData:
    """One collector's JSON object, whose values are decoded one by one."""

    value: Mapping[str, Any]
    collector: str = ""

    def get(self, key: str, decode: Decode[T]) -> T:
        """One value of it. Raises Incomplete, NotApplicable."""
        return value_of(self.value, key, decode, f"{self.collector}: {key}")


class Absent(Incomplete):
    """What a collector reads does not exist on the node: incomplete, unless the fact decides otherwise."""


class EvidenceSource(Protocol):
    """A node as facts need it: its collectors' data, and a cache of its facts."""

    @property
    def evidence(self) -> NodeEvidence:
        """All its evidence."""

    def collector(self, name: str) -> Collected:
        """One collector's answer. Raises Incomplete if the node was not reached."""

    @property
    def collectors(self) -> Mapping[str, Collected]:
        """The answers of all collectors. Raises Incomplete if the node was not reached."""

    @property
    def if_denied(self) -> str:
        """What to do if a collector was denied, as the end of a sentence; empty if its own message says it."""

    @property
    def facts(self) -> dict[Any, Any]:
        """Cached facts, including the exceptions of unreadable ones."""


class Fact(Generic[T]):
    """A cached property of a node; one that could not be read raises the same Incomplete every time."""

    def __init__(self, collectors: tuple[str, ...], decode: Callable[..., T], uncaptured: str = "") -> None:
        self.collectors = collectors
        self.decode = decode
        self.uncaptured = uncaptured  # why it is not applicable if the evidence lacks the collector
        self.__doc__ = decode.__doc__

        self.name = ", ".join(collectors)
        self.key: object = self  # its key in a node's cache

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.key = name

    def of(self, node: EvidenceSource) -> T:
        """The fact of a node, for a fact that is not a property. Raises Incomplete, NotApplicable."""
        return self.__get__(node, type(node))

    @overload
    def __get__(self, node: None, owner: type) -> Fact[T]: ...
    @overload
    def __get__(self, node: EvidenceSource, owner: type) -> T: ...
    def __get__(self, node: EvidenceSource | None, owner: type) -> Fact[T] | T:
        if node is None:
            return self
        try:
            fact = node.facts[self.key]
        except KeyError:
            fact = node.facts[self.key] = self._read(node)
        if isinstance(fact, (Incomplete, NotApplicable)):
            raise _copied(fact)
        return fact  # type: ignore[no-any-return]

    def _read(self, node: EvidenceSource) -> T | Incomplete | NotApplicable:
        try:
            if self.uncaptured and not all(_is_captured(node.collectors.get(name)) for name in self.collectors):
                return NotApplicable(self.uncaptured)
            return self.decode(
                node, *(answer_of(name, node.collector(name), node.if_denied) for name in self.collectors)
            )
        except (Incomplete, NotApplicable) as unread:
            return _copied(unread)  # without the traceback, and everything it references
        except Exception as broke:  # a node can send anything: what cannot be decoded is incomplete
            return Incomplete(*_not_understood(self.name, broke))


def _copied(unread: T) -> T:
    """A copy of the exception; importing `copy` would take a prolog longer than all of these."""
    reduced: Any = unread.__reduce__()
    kind, values, *state = reduced
    made = kind(*values)
    vars(made).update(*state)
    return made  # type: ignore[no-any-return]


def _not_understood(name: str, broke: Exception) -> tuple[str, str]:
    """Message and cause for a fact that could not be decoded."""
    cause = f"{name.replace('_', ' ')} could not be understood: {type(broke).__name__}"
    return f"{cause}: {str(broke)[:200]} ({raised_at(broke)})", cause


def _is_captured(collector: Collected | None) -> bool:
    return collector is not None and collector.status is not Status.UNCOLLECTED


def collected_by(*collectors: str, uncaptured: str = "") -> Callable[[Callable[..., T]], Fact[T]]:
    """Make a fact from a method that takes these collectors' values, in this order; `uncaptured` as in Fact."""

    def fact(decode: Callable[..., T]) -> Fact[T]:
        return Fact(collectors, decode, uncaptured)

    return fact


def collected_as(collector: str, kind: Callable[[Mapping[str, Any]], T]) -> Fact[T]:
    """Make a fact from a collector's whole value, as a class that reads it."""

    def decode(_node: EvidenceSource, answer: CollectorData) -> T:
        return kind(answer.value)

    decode.__doc__ = kind.__doc__
    return Fact((collector,), decode)


def captured_as(collector: str, kind: Callable[[Mapping[str, Any]], T], what: str) -> Fact[T]:
    """Make a fact from one of ONLY_CAPTURED; not applicable if no `what` (`log of dcgmi diag`) was captured.

    Raises ValueError.
    """
    if collector not in ONLY_CAPTURED:
        raise ValueError(f"{collector} is collected by the probe; expected one of {', '.join(sorted(ONLY_CAPTURED))}")
    return Fact((collector,), collected_as(collector, kind).decode, f"no {what} was captured")


def list_collected_as(
    collector: str, key: str, kind: Callable[[Mapping[str, Any]], T], of: str = ""
) -> Fact[tuple[T, ...]]:
    """Make a fact from a list returned by a collector, as a class that reads each entry.

    `of` is their kind in MAX_DEVICES, if a machine's number is limited.
    """

    def decode(_node: EvidenceSource, answer: CollectorData) -> tuple[T, ...]:
        entries = answer.get(key, objects)
        return tuple(kind(entry) for entry in (limited(entries, of) if of else entries))

    decode.__doc__ = kind.__doc__
    return Fact((collector,), decode)


def _with_unread(value: Mapping[str, Any], why: str) -> dict[str, Any]:
    """What a collector returned before it ended: in each list, its results are followed by the names of the rest."""
    lists = {key: (value[key], value[f"all_{key}"]) for key in value if f"all_{key}" in value}
    unread = {key: [{**name, NEVER_READ: why} for name in names[len(read) :]] for key, (read, names) in lists.items()}
    return {**value, **{key: [*value[key], *rest] for key, rest in unread.items()}, NEVER_READ: why}


def _has_data(collector: Collected) -> bool:
    """Whether what a collector sent before its end is worth reading: one that was denied each device says so itself."""
    if collector.status is not Status.DENIED:
        return bool(collector.value)
    value = collector.value if isinstance(collector.value, dict) else {}
    return any(NEVER_READ not in entry for key in value if f"all_{key}" in value for entry in value[key])


def answer_of(name: str, collector: Collected, if_denied: str = "") -> CollectorData:
    """What a collector returned, possibly before it hung; `if_denied` ends the message if access was denied.

    Raises Absent, Incomplete.
    """
    if collector.status is Status.READ:
        return CollectorData(read(collector.value, table, name), name)
    if collector.status in UNFINISHED and _has_data(collector):
        why = collector.detail or _STATUS_TEXTS[collector.status]
        return CollectorData(_with_unread(read(collector.value, table, name), why), name)
    detail = f" ({collector.detail[:300]})" if collector.detail else ""
    if collector.status is Status.ABSENT:
        raise Absent(f"{name}: not on this node{detail}", cause=f"{name} is not on the node")
    why = _STATUS_TEXTS[collector.status]
    says_it = EXPECTED in collector.detail  # the collector's own message says what would help
    to_do = {Status.DENIED: "" if says_it else if_denied, Status.NOT_ASKED: SAME_SELECTION}.get(collector.status, "")
    cause = NOT_COLLECTED if collector.status is Status.UNCOLLECTED else f"{name} {why}"
    raise Incomplete(f"{name}: {why}{detail}{to_do}", cause=cause)
