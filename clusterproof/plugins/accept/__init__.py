"""`clusterproof accept X`: acceptance of a cluster in stages, made of the suite's own checks.

`population` judges measurements, `state` decides what runs next, `journal` records finished runs, `report` reports.

This module: what one run says of each node: verdicts, measurements, and hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.core.result import Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts_rack import CLUSTER, cluster_of
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.perf.facts import is_of_comparison
from clusterproof.plugins.evidence.perf.gpu_peers import by_model, topology_of
from clusterproof.plugins.evidence.perf.gpu_speed import Speeds
from clusterproof.plugins.evidence.recording import read_cluster
from clusterproof.plugins.transport.gather import replay
from clusterproof.reports.history import NOBODY, NodeIdentity, identities
from clusterproof.reports.measurements import speeds_of
from clusterproof.reports.results import read_results

RESULTS, RECORDING = "results.jsonl", "recording"
UNKNOWN = "unknown"  # kind of hardware
MAX_LEVEL = 60  # characters
OF_MODEL = ", PCI device "
LEAST_SPEED = 1e-9  # of anything that works: shares of the usual speed can be computed from here on


@record
class UnitSpeed:
    """The speed of a node or one of its GPUs, LEAST_SPEED or more. `model` and `path` distinguish GPUs, if needed."""

    measurement: str
    what: str  # name of the measurement
    device: str  # empty: the node itself
    speed: float
    model: str = ""
    path: str = ""  # to the other GPUs

    @property
    def of_model(self) -> str:
        """The measurement, including the GPU's model."""
        return f"{self.what}{OF_MODEL}{self.model}" if self.model else self.what

    @property
    def label(self) -> str:
        """Named as in its check: `GPU 3, host to GPU by nvbandwidth`."""
        return f"GPU {self.device}, {self.what}" if self.device else self.what


@record
class NodeRun:
    """One node in a run that reached it."""

    machine: NodeIdentity  # NOBODY if not reported
    kind: str
    speeds: Sequence[UnitSpeed] = ()
    type: str = ""  # empty if unknown
    levels: Mapping[str, str] = field(default_factory=dict)  # what it has in common with some nodes, by kind

    @property
    def identity(self) -> Mapping[str, object]:
        """Its serial numbers, as plain JSON."""
        return asdict(self.machine)

    def is_other_than(self, before: NodeRun) -> bool:
        """Whether it is another machine: by instance id, else by its serial and its GPUs."""
        mine, others = self.machine, before.machine
        is_by_serial = not (mine.instance_id and others.instance_id) and mine.serial and others.serial
        return not mine.is_same_machine(others) or bool(is_by_serial and mine.serial != others.serial)

    def besides_speed(self, result: Result, decides: Callable[[UnitSpeed], bool]) -> Result:
        """A check's findings other than this node's speed relative to others, which populations decide.

        If no population does, devices slower than others of their own node keep the check's verdict.
        """
        own = [speed for speed in self.speeds if acceptance.measures()[speed.measurement].check == result.check]

        def counts(finding: Finding) -> bool:
            if not (own and is_of_comparison(finding.cause, finding.message)):
                return True
            named_models = {speed.of_model for speed in own if speed.label in finding.message}
            compared = [speed for speed in own if not named_models or speed.of_model in named_models]
            return finding.verdict is not Verdict.INCOMPLETE and not all(map(decides, compared))

        others = tuple(filter(counts, result.findings))
        if others == result.findings:
            return result
        return with_findings(result, others) if others else Result(result.check, result.node, Verdict.PASS)

    def completed(self, before: NodeRun | None) -> NodeRun:
        """With values that only an earlier run of the same machine collected."""
        if before is None or before.machine == NOBODY:
            return self
        machine = before.machine if self.machine == NOBODY else self.machine.completed(before.machine)
        kind = self.kind if before.kind == UNKNOWN else before.kind
        levels = {**before.levels, **self.levels}
        return replace(self, machine=machine, kind=kind, type=before.type or self.type, levels=levels)

    def gpus_replaced(self, before: NodeRun) -> set[str]:
        """The devices that are GPUs which this machine did not have before; a lost GPU only renumbers others."""
        were = {gpu.index: gpu.uuid for gpu in before.machine.gpus}
        new = (gpu for gpu in self.machine.gpus if gpu.uuid not in were.values())
        return {str(gpu.index) for gpu in new if gpu.index in were}


@record
class StageRun:
    """The results that one run left, and where."""

    results: Sequence[Result]
    seen: Mapping[str, NodeRun]


def read_run(folder: Path) -> StageRun:
    """Read the folder of a run. Raises OSError, ValueError."""
    recording = folder / RECORDING
    try:
        cluster = read_cluster(recording)
    except InventoryError as problem:
        raise ValueError(str(problem)) from None
    of_run = nodes(cluster, replay(recording, cluster), "perf")
    who = identities(of_run)
    seen = {}
    for name, node in of_run.items():
        if node.evidence.unreached is None:
            machine = who.get(name, NOBODY)
            seen[name] = NodeRun(machine, _kind(node), tuple(_speeds(node)), node.type_name, _levels(node))
    return StageRun(read_results(folder / RESULTS), seen)


def _kind(node: Node) -> str:
    """The hardware within which nodes are compared: the type, and the model of its GPUs."""
    try:
        models = {gpu.name for gpu in node.gpus}
    except (Incomplete, NotApplicable):
        models = set()
    return ", ".join(filter(None, (node.type_name, *sorted(models)))) or UNKNOWN


def _levels(node: Node) -> Mapping[str, str]:
    """The NVLink domain, and the firmware versions, of which nodes may have come in batches."""
    read, gpus = readings(node, "platform")[0], readings(node, "gpus")[0].get("gpus", ())
    vbios = [reading["vbios"] for gpu in gpus if (reading := readings(gpu, "vbios")[0])]
    bios = readings(read["platform"], "bios")[0].get("bios") if read else None
    try:
        domain = cluster_of(node)[CLUSTER]
    except (Incomplete, NotApplicable):
        domain = None
    levels = {"NVLink": domain, "VBIOS": " and ".join(sorted({*vbios})), "BIOS": bios}
    return {name: printable(" ".join(value.split()), MAX_LEVEL) for name, value in levels.items() if value}


def _speeds(node: Node) -> Iterator[UnitSpeed]:
    """The measurements that a population judges. A device that did next to nothing is left to the check."""
    for name in acceptance.measures():
        try:
            of_measure = speeds_of(node, name)
        except (Incomplete, NotApplicable):
            continue
        if all(speed >= LEAST_SPEED for by_device in of_measure.values() for speed in by_device.values()):
            for what, by_device in of_measure.items():
                yield from _of_each(node, name, what, by_device)


def _of_each(node: Node, name: str, what: str, by_device: Speeds) -> Iterator[UnitSpeed]:
    models, ways = by_model(node, by_device), topology_of(node, what, by_device)
    for model, speeds in models.items():
        for device, speed in speeds.items():
            yield UnitSpeed(name, what, device, speed, model if len(models) > 1 else "", ways.get(device, ""))


@record
class Failure:
    """Why a node was excluded."""

    stage: str
    check: str
    words: str
    action: str
    folder: str


@record
class OwnResult:
    """A check's result on a node in one run, with its folder; in the stage `speed`, with the measured values."""

    result: Result
    folder: str
    seen: NodeRun | None


@record
class OtherResult:
    """A finding about a pair or the cluster: the nodes of its run, and the folder of its evidence."""

    stage: str
    nodes: frozenset[str]
    folder: str
    result: Result

    def speaks_of(self, node: str) -> bool:
        """Whether it is about a pair with this node."""
        return self.result.is_of_pair and node in self.result.node.split("~")
