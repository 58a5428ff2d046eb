"""`--history FILE`: the findings of every run, by check, node and hardware, in one SQLite file.

This module: its data types for a run, and the hardware identities in nodes' evidence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from clusterproof.plugins.core.cluster import INSTANCE_ID
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import Measured
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.gpu.facts_node import MAX_UUIDS
from clusterproof.plugins.evidence.node import MAX_NAME, Node

FINE = (Verdict.PASS, Verdict.NOT_APPLICABLE)
FOUND = (Verdict.FAIL, Verdict.CONCERN)  # lasts until it is seen to be gone
FILE = "history.sqlite"

Pair = tuple[str, str]  # check and node


class HistoryError(ClusterproofError):
    """A history that cannot be read or written; the one-line message says what to do."""

    def __init__(self, message: str, *, is_of_full_disk: bool = False) -> None:
        super().__init__(message)
        self.is_of_full_disk = is_of_full_disk


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run. Times are seconds since 1970, UTC; `number` counts up in the file, 0 if not yet written."""

    cluster: str
    began: float
    ended: float
    occasion: str = "preflight"
    exit_code: int = 0
    version: str = ""
    is_green: bool = False  # nothing failed, and nothing was incomplete
    nodes: int = 0  # that some check applies to
    unevaluated: int = 0  # selected checks that had not ended when the run did
    number: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its place in the node, and its permanent identity."""

    index: int
    uuid: str
    serial: str = ""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node's hardware; unreported values are empty."""

    instance_id: str = ""
    serial: str = ""  # of the chassis
    gpus: tuple[Gpu, ...] = ()

    def is_same_machine(self, other: NodeIdentity) -> bool:
        """Whether it may be the same: the instance is equal or, if unknown, a GPU is, or else the serial number."""
        if self.instance_id and other.instance_id:
            return self.instance_id == other.instance_id
        mine, others = ({gpu.uuid for gpu in identity.gpus} for identity in (self, other))
        if mine and others:
            return bool(mine & others)
        return self.serial == other.serial or not (self.serial and other.serial)

    def completed(self, before: NodeIdentity) -> NodeIdentity:
        """This identity plus, for the same machine, what only an earlier run reported, such as a lost GPU."""
        if not self.is_same_machine(before):
            return self
        known, reported = ({gpu.uuid for gpu in identity.gpus} for identity in (before, self))
        replaced = {gpu.index for gpu in self.gpus if gpu.uuid not in known}
        lost = (gpu for gpu in before.gpus if gpu.uuid not in reported and gpu.index not in replaced)
        return NodeIdentity(
            self.instance_id or before.instance_id,
            self.serial or before.serial,
            # Those behind a lost GPU are numbered anew after a reboot; the last of an index is the one there now.
            tuple(sorted((*lost, *self.gpus), key=lambda gpu: gpu.index)),
        )


NOBODY = NodeIdentity()


Devices = Mapping[Verdict, tuple[str, ...]]  # that a finding names, by its verdict


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a check and a node, and the devices that what was found is about."""

    verdict: Verdict
    devices: Devices = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One verdict of the past. `stands` is the state after it: a run that measured nothing clears no finding.

    `standing_devices` are those of the state.
    """

    run: int
    verdict: Verdict
    stands: Verdict
    devices: tuple[str, ...] = ()
    message: str = ""
    standing_devices: Devices = field(default_factory=dict)

    @property
    def is_of_interruption(self) -> bool:
        """Whether the run ended before it evaluated this, and nothing was found before: that compares with nothing."""
        return self.verdict is Verdict.INCOMPLETE and self.stands in FINE


@dataclass(frozen=True, slots=True)
class Past:
    """The history of a cluster, oldest first; `earlier` is how many runs there were before these.

    `tracks` has every pair of check and node with a finding in these runs or before them: its verdict in each, after
    the last one before them; `identities` by node, with the first run; `measured` by name and node, with the run's
    number.
    """

    runs: tuple[PastRun, ...] = ()
    tracks: Mapping[Pair, tuple[Entry, ...]] = field(default_factory=dict)
    identities: Mapping[str, tuple[tuple[int, NodeIdentity], ...]] = field(default_factory=dict)
    measured: Mapping[Pair, tuple[tuple[int, Measured], ...]] = field(default_factory=dict)
    earlier: int = 0

    def identity(self, node: str, run: int) -> NodeIdentity:
        """A node's hardware in a run."""
        known = [identity for since, identity in self.identities.get(node, ()) if since <= run]
        return known[-1] if known else NOBODY


_INSTANCE = re.compile(rf"\b{INSTANCE_ID}$")  # of an address in Systems Manager


def identities(nodes: Mapping[str, Node]) -> dict[str, NodeIdentity]:
    """The identities that nodes report. Hardware that two nodes claim counts for neither."""
    identities = {
        name: NodeIdentity(_instance_id(node), _serial(node), tuple(_gpus(node))) for name, node in nodes.items()
    }
    instances = _claimed_twice(identity.instance_id for identity in identities.values())
    serials = _claimed_twice(identity.serial for identity in identities.values())
    uuids = _claimed_twice(gpu.uuid for identity in identities.values() for gpu in identity.gpus)
    believed = {
        name: replace(
            identity,
            instance_id="" if identity.instance_id in instances else identity.instance_id,
            serial="" if identity.serial in serials else identity.serial,
            gpus=tuple(gpu for gpu in identity.gpus if gpu.uuid not in uuids),
        )
        for name, identity in identities.items()
    }
    return {name: identity for name, identity in believed.items() if identity != NOBODY}


def _claimed_twice(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _instance_id(node: Node) -> str:
    try:
        return printable(node.instance_id, MAX_NAME)
    except (Incomplete, NotApplicable):
        address = _INSTANCE.search(node.target.address)
        return address[0] if address else ""


def _serial(node: Node) -> str:
    platform = node.evidence.collectors.get("platform")
    serial = platform.value.get("serial") if platform and isinstance(platform.value, dict) else None
    return printable(serial, MAX_NAME) if isinstance(serial, str) else ""


def _gpus(node: Node) -> Iterable[Gpu]:
    try:
        gpus = node.gpus[:MAX_UUIDS]
    except (Incomplete, NotApplicable):
        return
    for gpu in gpus:
        uuid, serial = (gpu.record.get(key) for key in ("uuid", "serial"))
        if isinstance(uuid, str) and uuid:
            known = printable(serial, MAX_NAME) if isinstance(serial, str) else ""
            yield Gpu(gpu.index, printable(uuid, MAX_NAME), known)
