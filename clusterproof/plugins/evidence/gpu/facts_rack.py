"""A tray of an NVLink rack: its domain, and the status of IMEX on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, part
from clusterproof.plugins.evidence.fact import Absent, collected_as, collected_by
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    integer,
    number,
    object_as,
    optional,
    reading_of,
    readings,
    require,
    text,
    texts,
    values,
)
from clusterproof.plugins.evidence.gpu.facts import Fabric, Gpu
from clusterproof.plugins.evidence.group import Values
from clusterproof.plugins.evidence.host.facts import Command
from clusterproof.plugins.evidence.host.facts_node import service_state, services

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.gpu.parse_imex import ImexDomain, ImexNode
    from clusterproof.plugins.evidence.node import Node

FABRIC, CLUSTER = "NVLink fabric", "NVLink cluster"
NO_CLUSTER = "0" * 32
RACK_WIDE = ("GB200", "GB300")


def _whole_numbers(data: object) -> tuple[int, ...]:
    return tuple(integer(entry) for entry in values(data))


@record
class ImexDaemon(Reported):
    """The nvidia-imex process of the host, run by root."""

    config = Field(text)  # the file of its -c; empty where it has none
    active_s = Field(number)  # for how long it runs


@record
class Imex(Reported):
    """The files and the command service of nvidia-imex on one tray."""

    nodes = Field(texts, where="nodes_config.cfg")  # its addresses in their order; empty where there is no such file
    channels = Field(_whole_numbers)  # the numbers of those that jobs can open, 64 at most
    channel_count = Field(optional(integer))  # of the driver; None where it does not say
    answer = Field(optional(object_as(Command)), "domain", "nvidia-imex-ctl")
    daemon = Field(optional(object_as(ImexDaemon)))  # None where none is known to run


imex = collected_as("imex", Imex)


@collected_by()
def imex_domain(node: Node) -> ImexDomain:
    """The IMEX domain as this tray sees it. Raises Incomplete, with nvidia-imex-ctl's own words where it fails."""
    from clusterproof.plugins.evidence.gpu.parse_imex import read_domain  # a prolog reads none
    from clusterproof.plugins.evidence.parsing import CaptureError

    answer = node.imex.answer
    if answer is None:
        raise Absent("nvidia-imex-ctl is not found; expected it beside nvidia-imex")
    try:
        return read_domain(answer.output)
    except CaptureError as problem:
        output = " ".join(answer.output.split())[:120]
        raise Incomplete(
            f"nvidia-imex-ctl -N ended with {answer.exit} ({problem}): {output!r}; expected the nodes of its domain",
            cause="nvidia-imex-ctl does not show its domain",
        ) from None


@collected_by()
def imex_self(node: Node) -> ImexNode:
    """This tray's node in its domain: found by address, else by host name. Raises Incomplete."""
    nodes, own, name = node.imex_domain.nodes, addresses(node), host_name_of(node)
    by_name = [peer for peer in nodes if name and peer.host_name.partition(".")[0] == name]
    entries = [peer for peer in nodes if peer.host in own] or by_name
    if len(entries) != 1:
        raise Incomplete(
            f"{len(entries) or 'none'} of {len(nodes)} nodes of the IMEX domain have this tray's address; expected one",
            cause="which node of its IMEX domain a tray is, is unknown",
        )
    return entries[0]


def imex_daemon(node: Node) -> ImexDaemon | None:
    """The nvidia-imex that root runs on the host, if one is known to run."""
    daemon: ImexDaemon | None = reading_of(node, "imex.daemon")
    return daemon


def runs_imex(node: Node) -> bool:
    """Whether nvidia-imex runs on the host, by systemd or without. Raises Incomplete."""
    return bool(imex_daemon(node)) or service_state(node, "nvidia-imex") == "active"


def starts_imex(node: Node) -> bool:
    """Whether systemd starts nvidia-imex with the node, so that no prolog does for each job. Raises Incomplete."""
    service = services.of(node).get("nvidia-imex")
    return service is not None and service.enabled.startswith("enabled")


def is_address(host: str) -> bool:
    """Whether it is an IP address."""
    from ipaddress import ip_address  # a prolog needs none

    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def host_name_of(node: Node) -> str:
    """Its own name without its domain, else the inventory's."""
    return (reading_of(node, "boot.hostname") or node.name).partition(".")[0]


def addresses(node: Node) -> frozenset[str]:
    """Its IPv4 addresses, as far as they are known."""
    entries = reading_of(node, "naming.addresses", ())
    return frozenset(address for entry in entries if (address := reading_of(entry, "ipv4")))


def is_of_a_rack(node: Node) -> bool:
    """Whether its GPUs share memory over the NVLinks of a rack. Raises Incomplete if unknown."""
    names = models_of(node.gpus)
    if node.gpus and not names:
        node.gpus[0].name  # noqa: B018 - raises why
    return is_rack_wide(names)


def require_rack(node: Node, *, is_known: bool = False) -> None:
    """Raise NotApplicable unless it is in a rack; if its GPUs are unknown, that part of a check is incomplete.

    With `is_known` the whole check is incomplete, because it only applies to racks. Then raises Incomplete.
    """
    reading, unread = readings(node, "gpus")
    names = models_of(reading.get("gpus", ()))
    if is_rack_wide(names):
        return
    if names or any(isinstance(why, NotApplicable) for why in unread):
        raise NotApplicable("no GPU here shares its memory over a rack's NVLink")
    with nullcontext() if is_known else part:
        node.gpus[0].name  # noqa: B018 - raises why nobody knows what they are


def models_of(gpus: Iterable[Gpu]) -> list[str]:
    """The models of these GPUs, as far as they are known."""
    return [name for gpu in gpus if (name := reading_of(gpu, "name"))]


def is_rack_wide(names: Iterable[str]) -> bool:
    """Whether one of these is a model whose GPUs share memory over a rack's NVLinks."""
    return any(model in name for name in names for model in RACK_WIDE)


def clique(fabric: Fabric) -> str:
    """The clique that a GPU is in, in words: `clique 3 of cluster 0011…`."""
    return f"clique {fabric.clique} of {cluster(fabric)}"


def cluster(fabric: Fabric) -> str:
    """The cluster of the fabric, which is a rack's: `cluster 0011…`."""
    return f"cluster {fabric.cluster_uuid[:32]}"


def clique_of(node: Node) -> Values:
    """The clique of most of its GPUs that have one. A rack's partitions consist of trays."""
    return {FABRIC: _most(node, clique)}


def cluster_of(node: Node) -> Values:
    """The cluster that most of its GPUs are in; None where they are in none. Raises Incomplete."""
    domain = _most(node, cluster)
    return {CLUSTER: None if domain is None or domain.endswith(NO_CLUSTER) else domain}


def _most(node: Node, name_of: Callable[[Fabric], str]) -> str | None:
    """What most of the GPUs are in that are known to be in any. Raises Incomplete where nothing is known of any."""
    names, unread = [], []
    for gpu in node.gpus:
        try:
            names.append(name_of(gpu.fabric))
        except (Incomplete, NotApplicable) as why:
            unread.append(why)
    if not names:
        require(why for why in unread if isinstance(why, Incomplete))
    return most_common(names) if names else None


def most_common(places: Sequence[str]) -> str:
    """Where most GPUs are: those in no cluster count only if none is in any."""
    known = [place for place in places if not place.endswith(NO_CLUSTER)] or places
    return max(known, key=known.count)
