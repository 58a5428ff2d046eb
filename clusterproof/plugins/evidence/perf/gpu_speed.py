"""GPU copy and compute speed, parsed from the output of nvbandwidth and PyTorch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.robust import median
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import Incomplete, incomplete, part
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    each,
    integer,
    number,
    objects_as,
    optional,
    read,
    readings,
    table,
    text,
    values,
)
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

HOST_TO_GPU, GPU_TO_HOST, GPU_TO_GPU = "host to GPU", "GPU to host", "GPU to GPU"
DIRECTIONS = {
    "host_to_device_memcpy_ce": HOST_TO_GPU,
    "device_to_host_memcpy_ce": GPU_TO_HOST,
    "device_to_device_memcpy_read_ce": GPU_TO_GPU,
}
OTHERS = ", others "  # in a name, before the distances to the others
UNKNOWN_WAYS = "others at unknown distances"
LONGEST_LINE = 2000
VGA = "0300"  # PCI class

_INSTANCE = re.compile(r"\w[\w -]{1,60} MIG \d{1,2}[cg]\.[\w.+]{1,40}")  # the name of a part of a GPU
_RUNNING = re.compile(r"Running (\w{1,60})\.")
_CELL = re.compile(r"\d{1,9}(?:\.\d{1,6})?|N/A")

Speeds = Mapping[str, float]  # by GPU


def models_of(node: Node, number: int) -> tuple[str, ...]:
    """The models of this many of its GPUs by PCI device id, in the order of the bus; empty if one is unknown.

    They are only known if there are exactly this many, apart from those for a display; else it is unknown which they
    are.
    """
    computing = computing_of(node)
    return computing if len(computing) == number else tuple(model for model, _ in _on_bus(node))


def computing_of(node: Node) -> tuple[str, ...]:
    """The models of its GPUs by PCI class, without those for a display if there are others; empty if one is unknown."""
    on_bus = _on_bus(node)
    return tuple(model for model, kind in on_bus if not kind.startswith(VGA)) or tuple(model for model, _ in on_bus)


def _on_bus(node: Node) -> list[tuple[str, str]]:
    """The model and the PCI class of each GPU; empty if the address or the model of one is unknown."""
    on_bus = readings(node, "gpus_on_bus")[0].get("gpus_on_bus", ())
    gpus = [readings(gpu, "address", "device", "pci_class")[0] for gpu in on_bus]
    if not all({"address", "device"} <= gpu.keys() for gpu in gpus):
        return []
    return [(gpu["device"], gpu.get("pci_class", "")) for gpu in sorted(gpus, key=lambda gpu: gpu["address"])]


def by_model(node: Node, speeds: Speeds, measured: Collection[str] = ()) -> Mapping[str, Speeds]:
    """The `measured` GPUs by model; empty if it is unknown which GPU is of which model."""
    models = models_of(node, len(measured or speeds))
    is_one, are_all = len({*models}) == 1, {*(measured or speeds)} == {*map(str, range(len(models)))}
    speeds_of_models: dict[str, dict[str, float]] = {}
    for gpu, speed in speeds.items():
        model = models[0] if is_one else models[int(gpu)] if are_all else ""
        speeds_of_models.setdefault(model, {})[gpu] = speed
    return speeds_of_models


def of_models(node: Node, speeds: Speeds, models: Collection[str], measured: Collection[str] = ()) -> Speeds:
    """The GPUs that may be of one of these models; all GPUs if the node's models, or these, are unknown.

    If it is unknown which of its GPUs were measured, all may be, as soon as one that is not for a display is.
    """
    known = computing_of(node)
    if not (models and known):
        return speeds
    speeds_of_models = by_model(node, speeds, measured)
    unknown = {} if {*known}.isdisjoint(models) else speeds_of_models.get("", {})
    return {
        gpu: speed
        for of_model in (unknown, *map(speeds_of_models.get, models))
        for gpu, speed in (of_model or {}).items()
    }


def by_topology(node: Node, of_copies: Mapping[str, Speeds]) -> Mapping[str, Speeds]:
    """Copies between GPUs apart for GPUs that are as near to the others: `GPU to GPU by x, others 1 NODE, 1 SYS`.

    Speed has no part in this, so that nodes of the same build can be compared.
    """
    separate: dict[str, dict[str, float]] = {}
    for name, speeds in of_copies.items():
        topologies = topology_of(node, name, speeds)
        for gpu, speed in speeds.items():
            separate.setdefault(", ".join(filter(None, (name, topologies.get(gpu)))), {})[gpu] = speed
    return separate


def topology_of(node: Node, name: str, speeds: Speeds) -> Mapping[str, str]:
    """How near the other GPUs are to each: `others 1 PIX, 2 SYS`; nothing of a GPU that has NVLinks to them.

    A GPU whose distances are unknown is like no other.
    """
    if not name.startswith(GPU_TO_GPU):
        return {}
    paths, linked = _paths(node), _linked(node, len(speeds))
    if len(linked) >= len(speeds) and all(linked):
        return {}
    topologies = {gpu: f"{UNKNOWN_WAYS} from GPU {gpu}" for gpu in speeds}
    if speeds.keys() == {*map(str, range(len(paths)))}:
        topologies |= {str(gpu): path for gpu, path in enumerate(paths)}
    if speeds.keys() == {*map(str, range(len(linked)))}:
        topologies |= {str(gpu): "" for gpu, is_linked in enumerate(linked) if is_linked}
    return topologies


def _paths(node: Node) -> list[str]:
    """The distances of each GPU to the others, in the order of the bus; empty if those of one are unknown."""
    paths = readings(node, "gpu_paths")[0].get("gpu_paths", {}).values()
    counted = [Counter(map(str, readings(of_gpu, "gpus")[0].get("gpus", {}).values())) for of_gpu in paths]
    if any(sum(counts.values()) < len(counted) - 1 for counts in counted):
        return []
    return [
        f"others {', '.join(f'{counts[distance]} {distance}' for distance in sorted(counts))}" for counts in counted
    ]


def _linked(node: Node, measured: int) -> list[bool]:
    """Whether each GPU is known to have NVLinks to all others, or any NVLink if it is unknown to which GPU.

    Only GPUs that answer count, if these are not as many as were measured: CUDA does not count a lost GPU.
    """
    read = [readings(gpu, "nvlink_states", "nvlinks_to")[0] for gpu in readings(node, "gpus")[0].get("gpus", ())]
    answering = [of for of in read if "nvlink_states" in of]
    if len(read) != measured:
        read = answering
    return [
        any(of.get("nvlink_states", ())) and (not (to := of.get("nvlinks_to")) or _leads_to(to, len(answering) - 1))
        for of in read
    ]


def _leads_to(links: Mapping[str, int], others: int) -> bool:
    return sum(map(bool, links.values())) >= others


@record
class GpuBandwidth(Reported):
    """The copies of every GPU; `by` is the program that made them, as each has its own method."""

    by = Field(text)
    given = Field(optional(integer), "gpus")  # GPUs, to the process that measured
    runs = Field(objects_as(ProgramRun), where="gpu_bandwidth: runs")

    @property
    def speeds(self) -> Mapping[str, Speeds]:
        """GB/s by copy and program, and by GPU: `{"host to GPU by nvbandwidth": {"0": 55.3}}`. Raises Incomplete."""
        return {f"{direction} by {self.by}": speeds for direction, speeds in self.gb_per_s.items()}

    @property
    def is_waived(self) -> bool:
        """Whether nvbandwidth left copies out: CUDA gives no GPU access to another. Raises Incomplete."""
        return self.by != "PyTorch" and any(each(self.runs, lambda run: _is_waived(run.output)))

    @property
    def gb_per_s(self) -> Mapping[str, Speeds]:
        """By direction and GPU; between GPUs the median of all copies in which a GPU takes part. Raises Incomplete.

        A run that cannot be read, or did not end well, makes that part of a check incomplete.
        """
        measured = each(self.runs, _of_torch if self.by == "PyTorch" else _of_nvbandwidth)
        return {direction: speeds for by_direction in measured for direction, speeds in by_direction.items()}


@record
class GpuGemm(Reported):
    """Matrix products of all GPUs at once."""

    given = Field(optional(integer), "gpus")  # GPUs, to the process that measured

    @property
    def speeds(self) -> Mapping[str, Speeds]:
        """TFLOP/s by kind of product and by GPU, the median of all rounds. Raises Incomplete."""
        report = document(ran := ProgramRun(self.data))
        require_whole(ran)
        kind = read(report.get("type"), text, "gpu_gemm: type").removeprefix("torch.")
        size = read(report.get("size"), number, "gpu_gemm: size")
        gpus = at_least_one(read(report.get("tflops"), values, "gpu_gemm: tflops"), "GPU")
        by_gpu = {str(gpu): _middle(rounds, f"gpu_gemm: GPU {gpu}") for gpu, rounds in enumerate(gpus)}
        return {f"{kind} products of {size:.0f} × {size:.0f}": by_gpu}


def require_whole(ran: ProgramRun) -> None:
    """Raise Incomplete if a part of a GPU was measured, which is slower than a whole one."""
    if instance := _INSTANCE.search(ran.output):
        incomplete(f"{instance[0]} was measured, a part of a GPU; expected whole ones, without MIG")


def _of_torch(ran: ProgramRun) -> Mapping[str, Speeds]:
    by_direction = read(document(ran).get("gb_per_s"), table, "gpu_bandwidth: gb_per_s")
    require_whole(ran)
    speeds: dict[str, Speeds] = {}
    for direction in DIRECTIONS.values():
        rounds = read(by_direction.get(direction), table, f"gpu_bandwidth: {direction}")
        copies = {name: _middle(each, f"gpu_bandwidth: {direction} {name}") for name, each in rounds.items()}
        if copies:
            speeds[direction] = _by_gpu([(name.split(), speed) for name, speed in copies.items()])
    return speeds


def _middle(rounds: object, where: str) -> float:
    """The median of the rounds. Raises Incomplete."""
    speeds = [read(speed, number, where) for speed in read(rounds, values, where)]
    if not speeds:
        raise Incomplete(f"{where} has no round; expected several")
    return median(speeds)


def _of_nvbandwidth(ran: ProgramRun) -> Mapping[str, Speeds]:
    """The matrices of a run: one row of GPUs, or GPUs by GPUs. Raises Incomplete."""
    require_whole(ran)
    speeds = {DIRECTIONS[test]: _by_gpu(copies) for test, copies in _matrices(ran.output) if copies}
    with part:
        if ran.exit != 0 or not (speeds or _is_waived(ran.output)):
            incomplete(f"{ran.ended}; expected a matrix of bandwidths")
    return speeds


def _is_waived(output: str) -> bool:
    return any(line.startswith("Waived") for line in output.splitlines())


def _matrices(output: str) -> Iterator[tuple[str, list[tuple[list[str], float]]]]:
    """Each test with its copies: the GPUs that take part, and GB/s."""
    test = ""
    columns: list[str] = []
    copies: list[tuple[list[str], float]] = []
    for line in (line[:LONGEST_LINE] for line in [*output.splitlines(), "Running end."]):
        cells = line.split()
        if begins := _RUNNING.match(line):
            if test in DIRECTIONS:
                yield test, copies
            test, columns, copies = begins[1], [], []
        elif cells and all(cell.isdecimal() for cell in cells) and not columns:
            columns = cells
        elif len(cells) == len(columns) + 1 and cells[0].isdecimal() and all(map(_CELL.fullmatch, cells[1:])):
            row_gpus = [cells[0]] if DIRECTIONS.get(test) == GPU_TO_GPU else []
            row = [(column, cell) for column, cell in zip(columns, cells[1:], strict=True) if cell != "N/A"]
            copies += [([*row_gpus, column], float(cell)) for column, cell in row]


def _by_gpu(copies: list[tuple[list[str], float]]) -> Speeds:
    """For each GPU the median of the copies in which it takes part."""
    by_gpu: dict[str, list[float]] = {}
    for gpus, speed in copies:
        for gpu in gpus:
            by_gpu.setdefault(gpu, []).append(speed)
    return {gpu: median(speeds) for gpu, speeds in by_gpu.items()}
