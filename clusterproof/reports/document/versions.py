"""Versions: what most nodes run, and who differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.section import Section, table
from clusterproof.reports.run import Run

MAX_VERSIONS = 12  # of a component, the rarest left out
MAX_NODES = 400  # characters of a nodeset
MAX_VERSION = 80  # characters


def versions_section(run: Run) -> Section | None:
    """A row for each component of each group."""
    rows = [(row, nodes) for group, nodes in _groups(run).items() for row in _rows(group, nodes)]
    if not rows:
        return None
    odd, same = ([row for row in rows if bool(row[0][-1]) is is_odd] for is_odd in (True, False))
    words = f"{len(same)} components are the same on all nodes of a group that report them"
    parts = (
        _table((*_HEAD, "the odd ones out"), odd) if odd else "",
        f"<details><summary>{words}</summary>{_table(_HEAD, [(row[:-1], nodes) for row, nodes in same])}</details>"
        if same
        else "",
    )
    return Section("versions", "Versions", "".join(parts))


def _table(head: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[Node]]]) -> str:
    return table(head, (row for row, _ in rows), nodes=([node.name for node in nodes] for _, nodes in rows))


_HEAD = ("component", "group", "version", "nodes")


def versions_of(node: Node) -> Mapping[str, str]:
    """The versions that a node reports, by component; empty where it cannot."""
    data: dict[str, str] = {}
    try:
        for component in node.software.components:
            data[printable(component, MAX_VERSION)] = _version(node, component)
    except (Incomplete, NotApplicable):
        return {}
    return {component: version for component, version in data.items() if version}


def _version(node: Node, component: str) -> str:
    try:
        return printable(node.software.version(component) or "", MAX_VERSION)
    except (Incomplete, NotApplicable):
        return ""


def _groups(run: Run) -> Mapping[str, Sequence[Node]]:
    """The nodes that are meant to be alike, by what their group is called."""
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in run.nodes.values():
        groups[" ".join(filter(None, (node.target.group, node.type_name)))].append(node)
    return groups


def _rows(group: str, nodes: Sequence[Node]) -> Iterator[tuple[str, str, str, str, str]]:
    data: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        for component, version in versions_of(node).items():
            data[component][version].append(node.name)
    for component, versions in sorted(data.items()):
        (usual, most), *odd = sorted(versions.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        words = [f"{version}: {within(fold(names), MAX_NODES)}" for version, names in odd[:MAX_VERSIONS]]
        if len(odd) > MAX_VERSIONS:
            words.append(f"… and {len(odd) - MAX_VERSIONS} more versions")
        total = sum(map(len, versions.values()))
        yield component, group, usual, f"{len(most)} of {total}", "; ".join(words)
