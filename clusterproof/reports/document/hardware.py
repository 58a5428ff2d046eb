"""What nodes reported: versions, with the most common and exceptions; and GPU readings for the heat map.

These are no verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.field import number
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document import Section, table
from clusterproof.reports.run import Run

MAX_VERSIONS = 12  # of a component, the most common ones
MAX_NODES = 400  # characters of a nodeset
MAX_VERSION = 80  # characters


def versions_section(run: Run) -> Section | None:
    """A row for each component of each group."""
    rows = [(row, nodes) for group, nodes in _groups(run).items() for row in _rows(group, nodes)]
    if not rows:
        return None
    odd, same = ([row for row in rows if bool(row[0][-1]) is is_odd] for is_odd in (True, False))
    are = "components are" if len(same) > 1 else "component is"
    summary = f"{len(same)} {are} the same on all nodes of a group that report it"
    parts = (
        _table((*_HEAD, "the odd ones out"), odd) if odd else "",
        f"<details><summary>{summary}</summary>{_table(_HEAD, [(row[:-1], nodes) for row, nodes in same])}</details>"
        if same
        else "",
    )
    return Section("versions", "Versions", "".join(parts))


def _table(head: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[Node]]]) -> str:
    return table(head, (row for row, _ in rows), nodes=([node.name for node in nodes] for _, nodes in rows))


_HEAD = ("component", "group", "version", "nodes")


def versions_of(node: Node) -> Mapping[str, str]:
    """The versions that a node reports, by component; empty if it reports none."""
    versions: dict[str, str] = {}
    try:
        for component in node.software.components:
            versions[printable(component, MAX_VERSION)] = _version(node, component)
    except (Incomplete, NotApplicable):
        return {}
    return {component: version for component, version in versions.items() if version}


def _version(node: Node, component: str) -> str:
    try:
        return printable(node.software.version(component) or "", MAX_VERSION)
    except (Incomplete, NotApplicable):
        return ""


def _groups(run: Run) -> Mapping[str, Sequence[Node]]:
    """The nodes that should be alike, by the name of their group."""
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in run.nodes.values():
        groups[" ".join(filter(None, (node.target.group, node.type_name)))].append(node)
    return groups


def _rows(group: str, nodes: Sequence[Node]) -> Iterator[tuple[str, str, str, str, str]]:
    by_component: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        for component, version in versions_of(node).items():
            by_component[component][version].append(node.name)
    for component, versions in sorted(by_component.items()):
        (most_common, most), *odd = sorted(versions.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        others = [f"{version}: {within(fold(names), MAX_NODES)}" for version, names in odd[:MAX_VERSIONS]]
        if len(odd) > MAX_VERSIONS:
            others.append(f"… and {len(odd) - MAX_VERSIONS} more versions")
        total = sum(map(len, versions.values()))
        yield component, group, most_common, f"{len(most)} of {total}", "; ".join(others)


MAX_GPUS = 16  # of a node
MIB_OF_GIB = 1024

Number = float | int | None


@dataclass(frozen=True, slots=True)
class HardwareMeasure:
    """A number that a GPU reports.

    `span` is the minimum difference between the two ends of the colour scale; 0 for counts, of which anything but zero
    is highlighted.
    """

    title: str
    unit: str
    span: float
    read: Callable[[Mapping[str, Any]], Number]


def _of(key: str, digits: int = 0, divisor: float = 1) -> Callable[[Mapping[str, Any]], Number]:
    def read(gpu: Mapping[str, Any]) -> Number:
        try:
            value = number(gpu.get(key)) / divisor
        except TypeError:
            return None
        return round(value, digits) if digits else round(value)

    return read


def _nvlink_errors(gpu: Mapping[str, Any]) -> Number:
    """The sum of the reported counters over kinds and links; None if there were none."""
    kinds = gpu.get("nvlink_errors")
    dicts = [links for links in kinds.values() if isinstance(links, dict)] if isinstance(kinds, dict) else []
    counted = [links for links in dicts if "error" not in links]
    if not counted:
        return None
    return sum(_whole(count) for links in counted for count in links.values())


def _whole(value: object) -> int:
    try:
        return int(number(value))
    except TypeError:  # for a link whose counter could not be read
        return 0


MEASURES = (
    HardwareMeasure("temperature", "°C", 25, _of("temperature_c")),
    HardwareMeasure("power", "W", 250, _of("power_w")),
    HardwareMeasure("graphics clock", "MHz", 500, _of("clock_mhz")),
    HardwareMeasure("memory in use", "GiB", 10, _of("memory_used_mib", 1, MIB_OF_GIB)),
    HardwareMeasure("uncorrected ECC errors", "", 0, _of("ecc_uncorrected_total")),
    HardwareMeasure("corrected ECC errors", "", 0, _of("ecc_corrected_total")),
    HardwareMeasure("NVLink errors", "", 0, _nvlink_errors),
)
_HEAT = """<p class="tools" hidden><label>Show <select id="measure"></select></label></p>
<p id="gpu-legend" class="heat-legend"></p>
<div id="gpu-bands"></div>
<p id="gpu-detail" class="detail" aria-live="polite"></p>
<div id="gpu-most"></div>"""


def gpus_section(run: Run) -> Section | None:
    """The heat map, which the page's script draws; None if no GPU reported anything."""
    return Section("gpus", "GPUs × nodes", _HEAT) if any(map(_reports_any, run.nodes.values())) else None


def _reports_any(node: Node) -> bool:
    return any(measure.read(gpu) is not None for gpu in _gpus(node).values() for measure in MEASURES)


def measured(run: Run, pooled: Callable[[object], int]) -> list[list[Any]]:
    """`[title, unit, span, pool number of each node's values]` for each reading that any GPU reports."""
    records = [_gpus(node) for node in run.nodes.values()]
    rows = []
    for measure in MEASURES:
        values = [_values_by_gpu(measure, gpus) for gpus in records]
        if any(value is not None for row in values for value in row):
            rows.append([measure.title, measure.unit, measure.span, [pooled(row) for row in values]])
    return rows


def _values_by_gpu(measure: HardwareMeasure, gpus: Mapping[int, Mapping[str, Any]]) -> Sequence[Number]:
    return [measure.read(gpus[index]) if index in gpus else None for index in range(max(gpus, default=-1) + 1)]


def _gpus(node: Node) -> dict[int, Mapping[str, Any]]:
    return dict(_by_index(node))


def _by_index(node: Node) -> Iterator[tuple[int, Mapping[str, Any]]]:
    collected = node.evidence.collectors.get("nvml")
    value = collected.value if collected else None
    gpus = value.get("gpus") if isinstance(value, dict) else None
    for gpu in gpus if isinstance(gpus, list) else ():
        index = gpu.get("index") if isinstance(gpu, dict) else None
        if type(index) is int and 0 <= index < MAX_GPUS:
            yield index, gpu
