"""Patterns over several runs: flapping, hardware that fails repeatedly, trends. Pure functions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FOUND, Entry, NodeIdentity, Past

_GPU = re.compile(r"GPU (\d{1,3})")
GPU, INSTANCE = "GPU", "instance"


@dataclass(frozen=True, slots=True)
class Flap:
    """A check and a node whose finding disappeared and came back."""

    check: str
    node: str
    came: int
    looked: int  # runs that measured it
    now: Verdict


@dataclass(frozen=True, slots=True)
class Offender:
    """Hardware found at fault in several runs, wherever it was.

    `nodes` and `instances` are its places at those times, the last one last; `now` the node that has it, else empty.
    """

    kind: str
    id: str
    serial: str
    runs: tuple[int, ...]
    nodes: tuple[str, ...]
    instances: tuple[str, ...]
    checks: tuple[str, ...]
    now: str

    @property
    def has_moved(self) -> bool:
        """Whether the fault moved with it to another node or instance."""
        return len(self.nodes) > 1 or len(self.instances) > 1


@dataclass(frozen=True, slots=True)
class PlaceFailures:
    """A node that one check finds at fault with different machines in it: then the machine is not the cause."""

    node: str
    check: str
    hardware: tuple[str, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trend:
    """One measurement of one node over the runs, oldest first."""

    name: str
    node: str
    unit: str
    values: tuple[float, ...]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.values[-1]

    @property
    def median_before(self) -> float:
        """The median of earlier values; the value itself if it is the first."""
        return median(self.values[:-1]) if len(self.values) > 1 else self.last

    @property
    def change(self) -> float:
        """By how much the newest differs from the usual: -0.1 is a tenth less."""
        return self.last / self.median_before - 1 if self.median_before else 0.0


def flaps(past: Past) -> list[Flap]:
    """Findings that came back after they were seen to be gone, the most frequent first."""
    rows = []
    for (check, node), track in past.tracks.items():
        measured = list(_measured(track))
        came = sum(
            now in FOUND and before not in FOUND
            for before, now in zip([Verdict.PASS, *measured], measured)  # noqa: B905
        )
        if came > 1:
            rows.append(Flap(check, node, came, len(measured), track[-1].stands))
    return sorted(rows, key=lambda flap: (-flap.came, flap.check, flap.node))


def _measured(track: Iterable[Entry]) -> Iterator[Verdict]:
    """The verdict of each run that measured it, or found something beside what it could not measure."""
    stood = Verdict.PASS
    for entry in track:
        if entry.verdict is not Verdict.INCOMPLETE:
            yield entry.verdict
        elif entry.stands in FOUND and stood not in FOUND:
            yield entry.stands
        stood = entry.stands


@dataclass(slots=True)
class _Record:
    serial: str = ""
    runs: set[int] = field(default_factory=set)
    nodes: dict[str, None] = field(default_factory=dict)
    instances: dict[str, None] = field(default_factory=dict)
    checks: set[str] = field(default_factory=set)


def offenders(past: Past) -> list[Offender]:
    """Hardware that failed in more than one run, the most frequent first."""
    records: dict[tuple[str, str], _Record] = defaultdict(_Record)
    failed = [
        (entry.run, check, node, entry)
        for (check, node), track in past.tracks.items()
        for entry in track
        if entry.verdict is Verdict.FAIL
    ]
    for run, check, node, entry in sorted(failed, key=lambda failure: failure[:3]):
        identity = past.identity(node, run)
        for kind, name, serial in _at_fault(entry, identity):
            record = records[kind, name]
            record.serial = serial or record.serial
            record.runs.add(run)
            _place_last(record.nodes, node)
            record.checks.add(check)
            if identity.instance_id:
                _place_last(record.instances, identity.instance_id)
    owners = _owners(past)
    repeated = [
        Offender(
            kind,
            name,
            record.serial,
            tuple(sorted(record.runs)),
            tuple(record.nodes),
            tuple(record.instances),
            tuple(sorted(record.checks)),
            owners.get((kind, name), ""),
        )
        for (kind, name), record in records.items()
        if len(record.runs) > 1
    ]
    return sorted(
        repeated,
        key=lambda offender: (-len(offender.runs), not offender.has_moved, offender.kind, offender.nodes, offender.id),
    )


def _place_last(places: dict[str, None], place: str) -> None:
    places.pop(place, None)
    places[place] = None


def _owners(past: Past) -> dict[tuple[str, str], str]:
    """The node that has each piece of hardware now: the last to get it, where others have not reported its loss."""
    arrivals: dict[tuple[str, str], tuple[int, str]] = {}
    for node, identities in past.identities.items():
        since: dict[tuple[str, str], int] = {}  # of what the node has, without interruption
        for run, identity in identities:
            since = {key: since.get(key, run) for key in _keys(identity)}
        for key, run in since.items():
            arrivals[key] = max(arrivals.get(key, (0, "")), (run, node))
    return {key: node for key, (_, node) in arrivals.items()}


def places(past: Past) -> list[PlaceFailures]:
    """Nodes where one check fails whatever hardware is in them."""
    stuck = []
    for (check, node), track in past.tracks.items():
        failed = [(entry, past.identity(node, entry.run)) for entry in track if entry.verdict is Verdict.FAIL]
        machines: list[tuple[NodeIdentity, set[str]]] = []  # in order, with what was at fault in each
        for entry, identity in failed:
            at_fault = {name for _, name, _ in _at_fault(entry, identity)}
            if at_fault and machines and identity.is_same_machine(machines[-1][0]):
                machines[-1][1].update(at_fault)
            elif at_fault:
                machines.append((identity, at_fault))
        if len(machines) > 1 and not set.intersection(*(at_fault for _, at_fault in machines)):
            names = dict.fromkeys(", ".join(sorted(at_fault)) for _, at_fault in machines)
            stuck.append(PlaceFailures(node, check, tuple(names), tuple(entry.run for entry, _ in failed)))
    return sorted(stuck, key=lambda place: (place.node, place.check))


def trends(past: Past) -> list[Trend]:
    """Every measurement of every node, the largest decrease first."""
    long_enough = [
        Trend(name, node, values[-1][1].unit, tuple(value.value for _, value in values))
        for (name, node), values in past.measured.items()
    ]
    return sorted(long_enough, key=lambda trend: (trend.name, trend.change, trend.node))


def _at_fault(entry: Entry, identity: NodeIdentity) -> Iterator[tuple[str, str, str]]:
    """The hardware that a failure is about: its GPUs if it names some, else the machine."""
    numbers = [int(match[1]) for device in entry.devices if (match := _GPU.fullmatch(device))]
    known = {gpu.index: gpu for gpu in identity.gpus}
    hit = [known[number] for number in numbers if number in known]
    if hit:
        yield from ((GPU, gpu.uuid, gpu.serial) for gpu in hit)
    elif not numbers and identity.instance_id:
        yield INSTANCE, identity.instance_id, identity.serial


def _keys(identity: NodeIdentity) -> Iterator[tuple[str, str]]:
    yield from ((GPU, gpu.uuid) for gpu in identity.gpus)
    if identity.instance_id:
        yield INSTANCE, identity.instance_id
