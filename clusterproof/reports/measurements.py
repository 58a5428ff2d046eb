"""What nodes measured under load: the range of speeds, and how much arithmetic was verified to the last bit."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.verdict import Recording, part
from clusterproof.plugins.evidence.exact.facts import TypeProducts
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.gpu_speed import Speeds
from clusterproof.reports.pairs import lines_of_pairs

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun

MAX_LABEL = 80  # characters of what a node says that it measured
MAX_TYPES = 16  # of data, in a line
MAX_LINES = 24  # of all measurements

T = TypeVar("T")
Verified = Mapping[str, int]  # how many results of each type


def measurements(nodes: Mapping[str, Node]) -> list[str]:
    """A line for each kind of measurement: `gpu_gemm: bfloat16 products …: 705 to 731 TFLOP/s, median 725 (…)`.

    Nodes on which it was not measured, or cannot be read, are not counted: their checks say so.
    """
    lines = [*_speed_lines(nodes), *_exact_lines(nodes)]
    return lines if len(lines) <= MAX_LINES else [*lines[:MAX_LINES], f"… and {len(lines) - MAX_LINES} more"]


def lines_of_measurements(nodes: Mapping[str, Node], between: PairwiseRun | None, width: int) -> Iterator[str]:
    """The measurements of nodes, and those between them, in lines of at most `width` columns where possible."""
    for line in measurements(nodes):
        yield from textwrap.wrap(line, max(width, 60), subsequent_indent="  ", break_long_words=False)
    yield from lines_of_pairs(between, width) if between is not None else ()


def speeds_of(node: Node, name: str) -> Mapping[str, Speeds]:
    """A node's speeds in this measurement, by what was done and by device. Raises Incomplete, NotApplicable."""
    return _SPEEDS[name][0](node)


def _speed_lines(nodes: Mapping[str, Node]) -> Iterator[str]:
    for name, (read, unit) in _SPEEDS.items():
        by_kind: dict[str, list[tuple[str, float]]] = {}
        for node, of_node in _of_each(nodes, name, read):
            for kind, speeds in of_node.items():
                by_kind.setdefault(printable(kind, MAX_LABEL), []).extend((node, speed) for speed in speeds.values())
        yield from (f"{name}: {kind}: {_range(measured, unit)}" for kind, measured in by_kind.items() if measured)


def _range(measured: list[tuple[str, float]], unit: str) -> str:
    """`705 to 731 TFLOP/s, median 725 (64 on 8 nodes, the least on gpu003)`."""
    speeds = [speed for _, speed in measured]
    number_of_nodes = len({node for node, _ in measured})
    where = f"{len(speeds)} on {number_of(number_of_nodes, 'node')}"
    if min(speeds) == max(speeds):
        return f"{speeds[0]:.4g} {unit} ({where})"
    least, node = min((speed, node) for node, speed in measured)
    slowest = f", the least on {node}" if number_of_nodes > 1 else ""
    return f"{least:.4g} to {max(speeds):.4g} {unit}, median {median(speeds):.4g} ({where}{slowest})"


def _exact_lines(nodes: Mapping[str, Node]) -> Iterator[str]:
    """How much of each type was verified to the last bit, at least, on each device."""
    for name, (read, device, what) in _EXACT.items():
        of_nodes = list(_of_each(nodes, name, read))
        devices = [verified for _, of_node in of_nodes for verified in of_node]
        kinds = dict.fromkeys(kind for verified in devices for kind in verified)
        least = [f"{printable(kind, 20)} {min(verified.get(kind, 0) for verified in devices):,}" for kind in kinds]
        where = number_of(len(of_nodes), "node") if device == "node" else _on(len(devices), device, len(of_nodes))
        more = f", and {len(least) - MAX_TYPES} more" if len(least) > MAX_TYPES else ""
        if least:
            yield f"{name}: {what} on each of {where}, at least: {', '.join(least[:MAX_TYPES])}{more}"


def _on(devices: int, device: str, nodes: int) -> str:
    return f"{number_of(devices, device)} on {number_of(nodes, 'node')}"


def _of_each(nodes: Mapping[str, Node], name: str, read: Callable[[Node], T]) -> Iterator[tuple[str, T]]:
    for node in nodes.values():
        measured: list[T] = []
        if name in node.evidence.collectors:
            with Recording(), part:
                measured.append(read(node))
        yield from ((node.name, of_node) for of_node in measured)


def _busbw(node: Node) -> Mapping[str, Speeds]:
    """The bus bandwidth of the largest message, if it was measured and all values were correct."""
    rows = node.node_busbw.rows
    if not rows or any(row.wrong for row in rows):
        return {}
    row = max(rows, key=lambda row: row.size_bytes)
    speed = row.out_of_place.busbw_gb_per_s
    return {} if speed is None else {f"all-reduce of {row.gib}": {"": speed}}


def _files(node: Node) -> Mapping[str, Speeds]:
    bandwidth = node.fs_bandwidth
    return {f"{direction} in {bandwidth.folder}": {"": speed} for direction, speed in bandwidth.gb_per_s.items()}


def _products(types: Iterable[TypeProducts]) -> Verified:
    return {kind.type: kind.products or 0 for kind in types if not _is_wrong(kind) and kind.products}


def _is_wrong(kind: TypeProducts) -> bool:
    return any(readings(kind, "wrong_products", "wrong_cores")[0].values())


_SPEEDS: Mapping[str, tuple[Callable[[Node], Mapping[str, Speeds]], str]] = {
    "gpu_gemm": (lambda node: node.gpu_gemm.speeds, "TFLOP/s"),
    "gpu_bandwidth": (lambda node: node.gpu_bandwidth.speeds, "GB/s"),
    "node_busbw": (_busbw, "GB/s"),
    "fs_bandwidth": (_files, "GB/s"),
}
_EXACT: Mapping[str, tuple[Callable[[Node], Sequence[Verified]], str, str]] = {
    "gpu_exact": (lambda node: [_products(gpu.types) for gpu in node.gpu_exact.gpus], "GPU", "right products"),
    "cpu_exact": (lambda node: [_products(node.cpu_exact.found.types)], "node", "right results"),
}
