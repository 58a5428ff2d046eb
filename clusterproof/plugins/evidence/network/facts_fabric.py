"""The fabric: RDMA ports, which are alike and which nobody uses; EFA as libfabric lists it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.network.facts import Port, RdmaDevice

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

WITHOUT_USE = ("is_disabled", "is_unaddressed", "is_silent")  # facts of a port
# NVIDIA's virtual functions (MLX5_PCI_DEV_IS_VF in Linux 6.12, drivers/net/ethernet/mellanox/mlx5/core/main.c).
VIRTUAL = frozenset({f"15b3:{device}" for device in ("1014", "1016", "1018", "101a", "101c", "101e", "a2d3")})

# Sub devices of type SMI, by the names of rdma-dev(8) and others: their ports are the planes of another's (ConnectX-8).
PLANES = "smi"

LONGEST_LINE = 300
DIFFERENT = 64  # outputs to keep parsed: nodes of one kind print the same

_RANK = Pattern(r"\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: ")  # prefix of mpirun, of srun --label
_KEY = Pattern(r"\s*(provider|domain|type):\s*(\S{1,100})\s*\Z")
_ERROR = Pattern(r"fi_getinfo(?:\(\))?:?.{0,200}|fi_info: .{0,200}")


@lru_cache(DIFFERENT)
def domains(output: str) -> tuple[str, ...]:
    """The EFA domains that offer FI_EP_RDM, each once, in the order and form printed (`rdmap79s0-rdm`).

    Newer libfabric lists a device twice, as fabric `efa` and `efa-direct`; old libfabric layered providers
    over it (`efa;ofi_rxr`, and `efa;ofi_rxd` over its datagram domain, `-dgrm`). All these are one domain.
    """
    offered = (entry.get("domain", "") for entry in _entries(output) if _is_efa(entry) and _is_rdm(entry))
    return tuple(dict.fromkeys(domain for domain in offered if domain and not domain.endswith("-dgrm")))


@lru_cache(DIFFERENT)
def error(output: str) -> str:
    """libfabric's own error line, as printed (`fi_getinfo: -61`: no provider answers), or empty."""
    for line in output.splitlines():
        match = _ERROR.match(_without_rank(line)[1].strip())
        if match:
            return str(match[0]).strip()
    return ""


def _entries(output: str) -> Iterator[Mapping[str, str]]:
    """One mapping per `provider:` and the indented lines after it, told apart by rank where ranks are mixed."""
    open_entries: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        rank, rest = _without_rank(line)
        match = _KEY.match(rest)
        if match and match[1] == "provider":
            if rank in open_entries:
                yield open_entries[rank]
            open_entries[rank] = {"provider": match[2]}
        elif match and rank in open_entries:
            open_entries[rank][match[1]] = match[2]
    yield from open_entries.values()


def _without_rank(line: str) -> tuple[str, str]:
    line = line[:LONGEST_LINE]
    rank = _RANK.match(line)
    return (rank[0], line[rank.end() :]) if rank else ("", line)


def _is_efa(entry: Mapping[str, str]) -> bool:
    return "efa" in entry["provider"].split(";")


def _is_rdm(entry: Mapping[str, str]) -> bool:
    """Whether this is a reliable datagram endpoint; if the type was not reported, the name of the domain tells."""
    if "type" in entry:
        return entry["type"] == "FI_EP_RDM"
    return entry.get("domain", "").endswith("-rdm")


def kind(device: RdmaDevice, port: Port) -> str:
    """The model and the link layer of a port, and whether it is a plane of one. Raises Incomplete."""
    is_plane = readings(device, "name")[0].get("name", "").startswith(PLANES)
    return f"{device.model} {port.link_layer}{' plane' if is_plane else ''}"


def is_without_use(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether a port is switched off, has no address, reports no state, or is a spare virtual function's."""
    return any(readings(port, *WITHOUT_USE)[0].values()) or _is_spare(node, device, port)


def _is_spare(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether it is down on the link of an active physical port, as until a virtual machine or a pod gets it."""
    reading = readings(port, "state", "is_linked")[0]
    is_off = reading.get("state", "").endswith("DOWN") and reading.get("is_linked")
    return bool(is_off and _is_virtual(device)) and any(map(_is_active, node.ib_devices))


def _is_virtual(device: RdmaDevice) -> bool:
    return readings(device, "model")[0].get("model") in VIRTUAL


def _is_active(device: RdmaDevice) -> bool:
    """Whether a physical device has an active port."""
    ports = readings(device, "ports")[0].get("ports", ())
    return not _is_virtual(device) and any(readings(port, "is_active")[0].get("is_active") for port in ports)
