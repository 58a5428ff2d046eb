"""The file systems of FSx that a cluster's nodes mount: mounts joined with what FSx shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fsx.facts import FileSystem
from clusterproof.plugins.evidence.fsx.mounted import Source, source_of
from clusterproof.plugins.evidence.node import Node

Paths = Mapping[Source, set[str]]


def file_systems(cluster: ClusterFacts) -> tuple[FileSystem, ...]:
    """Each of them once, including those that FSx does not show. Raises Incomplete where no node reports its mounts."""
    paths = _paths(cluster.nodes.values())
    if not paths:
        return ()
    shown = cluster.fsx_systems
    found: dict[str, tuple[Mapping[str, Any], str, set[str]]] = {}
    for source, where in sorted(paths.items(), key=lambda entry: entry[0].text):
        fitting = [system for system in shown if source.is_of(system)]
        if not fitting and not source.is_of_fsx:
            continue  # an NFS server of somebody else's
        name, data, unknown = _one_of(fitting, source)
        found.setdefault(name, (data, unknown, set()))[2].update(where)
    return tuple(
        FileSystem(data, tuple(sorted(where)), unknown, lambda: cluster.fsx_metrics, cluster.catalog)
        for data, unknown, where in found.values()
    )


def _paths(nodes: Iterable[Node]) -> Paths:
    """Where each source that may be of FSx is mounted."""
    paths: dict[Source, set[str]] = defaultdict(set)
    unread: list[Incomplete | NotApplicable] = []
    for node in nodes:
        try:
            mounts = [(source_of(mount.type, mount.source), mount.path) for mount in node.mounts]
        except (Incomplete, NotApplicable) as why:
            unread.append(why)
            continue
        for source, path in mounts:
            if source:
                paths[source].add(path)
    if unread and not paths:
        raise Incomplete(
            f"{number_of(len(unread), 'node')} did not report what is mounted: {unread[0]}",
            cause="mounts were not reported",
        )
    return paths


def _one_of(fitting: Sequence[Mapping[str, Any]], source: Source) -> tuple[str, Mapping[str, Any], str]:
    """What a source is called, the file system that it is of, or why that cannot be said."""
    if len(fitting) == 1:
        return str(fitting[0].get("FileSystemId")), fitting[0], ""
    name = source.name if source.is_lustre else source.text
    where = f"mounted from {source.text}"
    if not fitting:
        return (
            name,
            {},
            f"{where}; expected in fsx:DescribeFileSystems, which shows no such one in this account and region",
        )
    ids = ", ".join(sorted(str(system.get("FileSystemId")) for system in fitting)[:5])
    return name, {}, f"{where}; expected one file system of that name, there are {len(fitting)}: {ids}"
