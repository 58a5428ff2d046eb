"""Matches mounts to FSx file systems, from their source and DescribeFileSystems; lists those that nodes mount."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.facts_fsx import FileSystem
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node

SETTING = "mounts"  # of a cluster: a line for each source mounted by its nodes
MAX_SOURCES = 1_000  # of a cluster
MAX_SOURCE = 500  # characters


@record
class Source:
    """The source of a mount: `10.1.71.197@tcp:/oyuutbev` of type lustre, `fs-….fsx.REGION.amazonaws.com:/fsx` of nfs4.

    A Lustre mount shows the addresses of its servers, however it was mounted; only the name after them identifies the
    file system.
    """

    type: str
    text: str

    @property
    def is_lustre(self) -> bool:
        """Whether it is Lustre; else it is NFS."""
        return self.type == "lustre"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its servers, by name or address, without Lustre's networks."""
        servers = self.text.partition(":/")[0]
        return tuple(nid.partition("@")[0] for nid in servers.split(":")) if self.is_lustre else (servers,)

    @property
    def name(self) -> str:
        """The remote path: for Lustre the file system's name."""
        return self.text.partition(":/")[2].partition("/")[0]

    @property
    def is_of_fsx(self) -> bool:
        """Whether it must be FSx: Lustre, or a host in FSx's domain."""
        return self.is_lustre or self.names_a_file_system

    @property
    def names_a_file_system(self) -> bool:
        """Whether it was mounted by, and shows, an FSx DNS name."""
        return any(".fsx." in host for host in self.hosts)

    def is_of(self, system: Mapping[str, Any]) -> bool:
        """Whether it is of this file system, an entry of DescribeFileSystems."""
        if self.names_a_file_system:
            return any(_names(host, system) for host in self.hosts)
        if self.is_lustre:
            return bool(self.name) and _of(system, "LustreConfiguration").get("MountName") == self.name
        endpoints: tuple[object, ...] = (
            system.get("DNSName"),
            _of(system, "OpenZFSConfiguration").get("EndpointIpAddress"),
        )
        return self.hosts[0] in endpoints


def source_of(kind: str, text: str) -> Source | None:
    """The source of a mount of this type, None if it cannot be FSx's."""
    is_type = kind == "lustre" or kind.startswith("nfs")
    is_server = ":/" in text and "\n" not in text and len(text) <= MAX_SOURCE
    return Source(kind, text) if is_type and is_server else None


def sources_of(evidence: NodeEvidence) -> Iterator[Source]:
    """A node's mounts that may be FSx's; empty if it reported no mounts. The node is not trusted."""
    collector = evidence.collectors.get("mounts")
    value = collector.value if collector else None
    mounts = value.get("mounts") if isinstance(value, dict) else None
    for mount in mounts if isinstance(mounts, list) else ():
        kind, text = (mount.get("type"), mount.get("source")) if isinstance(mount, dict) else (None, None)
        source = source_of(kind, text) if isinstance(kind, str) and isinstance(text, str) else None
        if source:
            yield source


def as_setting(sources: Iterable[Source]) -> str:
    """The sources as one text, for the cluster's settings."""
    return "\n".join(sorted(f"{source.type} {source.text}" for source in set(sources))[:MAX_SOURCES])


def _names(host: str, system: Mapping[str, Any]) -> bool:
    """Whether a host is the file system's own name, or one below it, like an ONTAP volume's."""
    return host == system.get("DNSName") or str(system.get("FileSystemId")) in host.split(".")


def _of(system: Mapping[str, Any], configuration: str) -> Mapping[str, Any]:
    section = system.get(configuration)
    return section if isinstance(section, Mapping) else {}


Paths = Mapping[Source, set[str]]


def file_systems(cluster: ClusterFacts) -> tuple[FileSystem, ...]:
    """Each of them once, including those that FSx does not show. Raises Incomplete where no node reports its mounts."""
    paths = _paths(cluster.nodes.values())
    if not paths:
        return ()
    shown = cluster.fsx_systems
    by_name: dict[str, tuple[Mapping[str, Any], str, set[str]]] = {}
    for source, where in sorted(paths.items(), key=lambda entry: entry[0].text):
        candidates = [system for system in shown if source.is_of(system)]
        if not candidates and not source.is_of_fsx:
            continue  # another NFS server
        name, described, unknown = _one_of(candidates, source)
        by_name.setdefault(name, (described, unknown, set()))[2].update(where)
    return tuple(
        FileSystem(described, tuple(sorted(where)), unknown, lambda: cluster.fsx_metrics, cluster.catalog)
        for described, unknown, where in by_name.values()
    )


def _paths(nodes: Iterable[Node]) -> Paths:
    """The mount points of each source that may be FSx's."""
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


def _one_of(candidates: Sequence[Mapping[str, Any]], source: Source) -> tuple[str, Mapping[str, Any], str]:
    """A source's name, its file system, or why that is unknown."""
    if len(candidates) == 1:
        return str(candidates[0].get("FileSystemId")), candidates[0], ""
    name = source.name if source.is_lustre else source.text
    where = f"mounted from {source.text}"
    if not candidates:
        return (
            name,
            {},
            f"{where}; expected in fsx:DescribeFileSystems, which shows no such one in this account and region",
        )
    ids = ", ".join(sorted(str(system.get("FileSystemId")) for system in candidates)[:5])
    return name, {}, f"{where}; expected one file system of that name, there are {len(candidates)}: {ids}"
