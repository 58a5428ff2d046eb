"""Which FSx file system a mount is of: from its source as nodes report it, and from what DescribeFileSystems shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import record

SETTING = "mounts"  # of a cluster: one line for each source that its nodes mount
MAX_SOURCES = 1_000  # of a cluster
MAX_SOURCE = 500  # characters


@record
class Source:
    """Where a mount is from: `10.1.71.197@tcp:/oyuutbev` of type lustre, `fs-….fsx.REGION.amazonaws.com:/fsx` of nfs4.

    A Lustre mount shows the addresses of its servers, whatever it was mounted by; only its name identifies the file
    system.
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
        """What is mounted there: of Lustre the file system's name."""
        return self.text.partition(":/")[2].partition("/")[0]

    @property
    def is_of_fsx(self) -> bool:
        """Whether nothing else than FSx is to be expected there: Lustre, or a host of FSx's domain."""
        return self.is_lustre or self.names_a_file_system

    @property
    def names_a_file_system(self) -> bool:
        """Whether it was mounted by a DNS name of FSx's, and shows it."""
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
    """The source of a mount of this type, None where it can be none of FSx's."""
    is_type = kind == "lustre" or kind.startswith("nfs")
    is_server = ":/" in text and "\n" not in text and len(text) <= MAX_SOURCE
    return Source(kind, text) if is_type and is_server else None


def sources_of(evidence: NodeEvidence) -> Iterator[Source]:
    """What a node mounts that may be of FSx; nothing where it reported no mounts. It is not trusted."""
    collector = evidence.collectors.get("mounts")
    data = collector.value if collector else None
    mounts = data.get("mounts") if isinstance(data, dict) else None
    for mount in mounts if isinstance(mounts, list) else ():
        kind, text = (mount.get("type"), mount.get("source")) if isinstance(mount, dict) else (None, None)
        source = source_of(kind, text) if isinstance(kind, str) and isinstance(text, str) else None
        if source:
            yield source


def as_setting(sources: Iterable[Source]) -> str:
    """The sources as one text, for the cluster's settings."""
    return "\n".join(sorted(f"{source.type} {source.text}" for source in set(sources))[:MAX_SOURCES])


def _names(host: str, system: Mapping[str, Any]) -> bool:
    """Whether a host is the file system's own name, or one within it, as an ONTAP volume's."""
    return host == system.get("DNSName") or str(system.get("FileSystemId")) in host.split(".")


def _of(system: Mapping[str, Any], configuration: str) -> Mapping[str, Any]:
    data = system.get(configuration)
    return data if isinstance(data, Mapping) else {}
