"""PCIe settings between GPUs and network devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.fact import GPUS, NICS, PCI_DEVICES, collected_as, limited, limited_list
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    each,
    integer,
    object_as,
    optional,
    readings,
    text,
    texts,
)

ACS_BITS = {0: "SrcValid", 2: "ReqRedir", 3: "CmpltRedir", 4: "UpstreamFwd"}  # settings that keep peers from each other
SHARED_SWITCH = 3  # ports on two paths at least: the host bridge, a root port, and the upstream port of a switch


@record
class PciSettings(Reported):
    """A function's values in configuration space; None if it has no such register."""

    max_payload = Field(optional(integer))  # bytes
    max_read_request = Field(optional(integer))  # bytes
    relaxed_ordering = Field(optional(boolean))
    acs = Field(optional(integer))  # the control word of access control services

    @property
    def redirects(self) -> tuple[str, ...]:
        """How its access control redirects traffic between devices below, in lspci's words. Raises Incomplete."""
        word = self.acs or 0
        return tuple(name for bit, name in ACS_BITS.items() if word >> bit & 1)


@record
class PciFunction(Reported):
    """A GPU, a network device, or a bridge above one."""

    address = Field(text)
    kind = Field(text)  # gpu, nic or port
    model = Field(text)  # PCI vendor and device id: 15b3:1021
    path = Field(optional(texts))  # its host bridge, and the bridges from there down; None in captures
    iommu = Field(text)  # identity, DMA or DMA-FQ; empty where it is in no group: without an IOMMU
    settings = Field(optional(object_as(PciSettings)), where="PCIe settings")  # None while it is suspended

    @property
    def is_end(self) -> bool:
        """Whether it is a GPU or a network device. Raises Incomplete."""
        return self.kind != "port"


@record
class PciPaths(Reported):
    """PCIe settings between GPUs and network devices."""

    machine = Field(text)  # its architecture: x86_64
    is_virtual = Field(boolean)  # whether it is a virtual machine of x86, whose bridges are emulated
    rows = Field(limited_list(PciFunction, PCI_DEVICES), "functions")

    @property
    def functions(self) -> Mapping[str, PciFunction]:
        """All functions by address; one without an address makes that part of a check incomplete."""
        return dict(each(self.rows, lambda row: (row.address, row)))

    @property
    def endpoints(self) -> tuple[PciFunction, ...]:
        """The GPUs and network devices; a function of unknown kind makes that part of a check incomplete."""
        return tuple(row for row, is_end in each(self.rows, lambda row: (row, row.is_end)) if is_end)

    @property
    def ports(self) -> tuple[PciFunction, ...]:
        """The bridges; a function of unknown kind makes that part of a check incomplete."""
        return tuple(row for row, is_end in each(self.rows, lambda row: (row, row.is_end)) if not is_end)

    @property
    def are_unplaced(self) -> bool:
        """Whether there are a GPU and a network device, one of them below unknown bridges, as in captures."""
        endpoints = [readings(row, "kind", "path")[0] for row in self.rows]
        unplaced = {endpoint.get("kind") for endpoint in endpoints if endpoint.get("path") is None} - {"port"}
        return bool(unplaced) and {"gpu", "nic"} <= {endpoint.get("kind") for endpoint in endpoints}

    def between(self) -> Iterator[tuple[str, str, str]]:
        """The ports between a GPU and a network device below one switch, with the addresses of the two.

        Only ports below their common switch count: access control there decides whether they reach each other.
        """
        placed = list(each(self.endpoints, lambda row: (row.address, row.kind, row.path or ())))
        gpus = limited([(address, path) for address, kind, path in placed if kind == "gpu"], GPUS)
        nics = limited([(address, path) for address, kind, path in placed if kind == "nic"], NICS)
        for gpu, above in gpus:
            for nic, other in nics:
                shared = sum(1 for own, its in zip(above, other, strict=False) if own == its)
                if shared >= SHARED_SWITCH:
                    yield from ((port, gpu, nic) for port in (*above[shared:], *other[shared:]))


pci_settings = collected_as("pci_config", PciPaths)
