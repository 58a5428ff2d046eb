"""Bandwidths that collectives reached elsewhere, by exact key; and bandwidths relative to the network's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.rows import CatalogError, build, document

FILE = "busbw.toml"
FLOOR = "busbw.floor_share"
SMALLEST_BYTES = 2**30  # smaller sizes measure latency: no row, no floor
RDMA_BYTES, OTHER_BYTES = 8 * 2**30, 2**30  # where busbw is flat; without RDMA, earlier
TWO_NODES = "with 2 nodes NCCL's tree and NVLS report more than the wire carries: this says nothing about larger jobs"
ABOVE = "no flat ring does that: in-network reduction, NVLink between the nodes, or a wrong number"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BusbwKey:
    """Everything that must match for two bandwidths to be compared. `efa` counts the devices attached to a node."""

    instance_type: str
    efa: int
    nodes: int
    ranks_per_node: int
    collective: str
    size_bytes: int

    def __str__(self) -> str:
        ranks = f"{self.nodes} x {self.ranks_per_node} ranks"
        return (
            f"{self.collective} of {self.size_bytes} bytes, {ranks}, {self.instance_type} with {self.efa} EFA devices"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBusbw:
    """A measured and published bandwidth, in 10^9 bytes a second."""

    instance_type: str
    efa: int
    nodes: int
    ranks_per_node: int
    collective: str
    size_bytes: int
    busbw_gb_per_s: float
    source: str

    @property
    def key(self) -> BusbwKey:
        """What it may be compared with."""
        return BusbwKey(
            instance_type=self.instance_type,
            efa=self.efa,
            nodes=self.nodes,
            ranks_per_node=self.ranks_per_node,
            collective=self.collective,
            size_bytes=self.size_bytes,
        )


@dataclass(frozen=True, slots=True)
class OfWire:
    """A bandwidth as a share of a node's network bandwidth, and how to interpret it."""

    share: float
    wire_gb_per_s: float
    note: str = ""


@cache
def measured_busbw() -> Mapping[BusbwKey, MeasuredBusbw]:
    """Every row of busbw.toml by key. Raises CatalogError."""
    return rows_of(document(FILE))


def rows_of(tables: Mapping[str, object]) -> Mapping[BusbwKey, MeasuredBusbw]:
    """The rows of such a document: unique keys, no small sizes. Raises CatalogError."""
    rows: dict[BusbwKey, MeasuredBusbw] = {}
    sources, measured = tables["sources"], tables.get("measured")
    if not isinstance(sources, dict) or not isinstance(measured, list):
        raise CatalogError(f"{FILE}: expected tables [[measured]]")
    for number, each in enumerate(measured, 1):
        where = f"{FILE}: measured {number}"
        row = build(MeasuredBusbw, each, where, sources)
        if row.key in rows:
            raise CatalogError(f"{where}: the key is there before: {row.key}; expected it once")
        if row.size_bytes < SMALLEST_BYTES or row.busbw_gb_per_s <= 0:
            raise CatalogError(
                f"{where}: {row.busbw_gb_per_s} GB/s of {row.size_bytes} bytes; "
                f"expected more than 0, of at least {SMALLEST_BYTES} bytes"
            )
        rows[row.key] = row
    return rows


def expected_busbw(key: BusbwKey) -> MeasuredBusbw | None:
    """The published figure for this exact key; None if there is none. Raises CatalogError."""
    return measured_busbw().get(key)


def size_bytes_for(name: str, efa: int, ranks_per_node: int, catalog: Catalog, collective: str = "all_reduce") -> int:
    """The size for measuring two nodes of an instance type, at least 1 GiB.

    The largest for which its rows have such a run, so that there is a floor, up to 8 GiB; without a row 8 GiB for GPUs
    with RDMA over EFA, whose curve only flattens there, else 1 GiB. Raises CatalogError.
    """
    name = name.removeprefix("ml.")
    run = (name, efa, 2, ranks_per_node, collective)
    sizes = [
        key.size_bytes
        for key in measured_busbw()
        if (key.instance_type, key.efa, key.nodes, key.ranks_per_node, key.collective) == run
        and key.size_bytes <= RDMA_BYTES
    ]
    row = catalog.instance_type(name)
    has_rdma = bool(row and row.rdma and row.gpus and efa)
    return max(sizes, default=RDMA_BYTES if has_rdma else OTHER_BYTES)


def of_wire(busbw_gb_per_s: float, key: BusbwKey, catalog: Catalog) -> OfWire | None:
    """A bandwidth as a share of the node's network; None if the network is unknown, or there is none."""
    row = catalog.instance_type(key.instance_type)
    if row is None or key.nodes < 2 or not row.network_gbps or row.efa is None:
        return None
    if 0 < key.efa < row.efa:
        if row.efa_gbps is None:
            return None
        gbps = min(row.network_gbps, key.efa * row.efa_gbps)
    elif key.efa == 0 and row.efa > 1:
        return None  # some cards are used for Ethernet, and the catalogue does not say which
    else:
        gbps = row.network_gbps
    wire = gbps / 8
    share = busbw_gb_per_s / wire
    return OfWire(share, wire, _note(share, key))


def _note(share: float, key: BusbwKey) -> str:
    if key.nodes == 2 and key.ranks_per_node > 1:
        return f"above the wire: {TWO_NODES}" if share > 1 else TWO_NODES
    return f"above the wire: {ABOVE}" if share > 1 else ""
