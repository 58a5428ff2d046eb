"""GPU copy and compute speed, parsed from the output of nvbandwidth and PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.robust import median
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
    table,
    text,
    values,
)
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document

HOST_TO_GPU, GPU_TO_HOST, GPU_TO_GPU = "host to GPU", "GPU to host", "GPU to GPU"
DIRECTIONS = {
    "host_to_device_memcpy_ce": HOST_TO_GPU,
    "device_to_host_memcpy_ce": GPU_TO_HOST,
    "device_to_device_memcpy_read_ce": GPU_TO_GPU,
}
LONGEST_LINE = 2000

Speeds = Mapping[str, float]  # by GPU

_INSTANCE = re.compile(r"\w[\w -]{1,60} MIG \d{1,2}[cg]\.[\w.+]{1,40}")  # the name of a part of a GPU
_RUNNING = re.compile(r"Running (\w{1,60})\.")
_CELL = re.compile(r"\d{1,9}(?:\.\d{1,6})?|N/A")


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
