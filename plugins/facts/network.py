"""RDMA devices as sysfs tells them: EFA, InfiniBand, RoCE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import Field, objects, read, text, whole

AMAZON = "1d0f"


@dataclass(frozen=True, slots=True)
class Port:
    """One port of an RDMA device; `state` and `physical_state` as sysfs words them: `4: ACTIVE`."""

    told: Mapping[str, Any]

    number = Field(whole, "port")
    state = Field(text)
    physical_state = Field(text)
    rate = Field(text)
    link_layer = Field(text)


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """One entry of /sys/class/infiniband; not every one is an EFA device."""

    told: Mapping[str, Any]

    name = Field(text)
    vendor = Field(text)
    device = Field(text)

    @property
    def label(self) -> str:
        """Its kernel name."""
        return self.name

    @property
    def is_efa(self) -> bool:
        """Whether it is an EFA device, by PCI vendor and device id (reference: EKS node monitoring agent)."""
        return self.vendor == AMAZON and self.device.startswith("efa")

    @property
    def ports(self) -> tuple[Port, ...]:
        """Its ports. Raises Incomplete."""
        return tuple(Port(entry) for entry in read(self.told.get("ports"), objects, "ports"))


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI device of those that matter here."""

    told: Mapping[str, Any]

    address = Field(text)
    vendor = Field(text)
    device = Field(text)
    pci_class = Field(text, "class")
    driver = Field(text)

    @property
    def label(self) -> str:
        """Its address: `0000:53:00.0`."""
        return self.address

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU: a 3D controller (0302) or a display controller (0300)."""
        return self.vendor == "10de" and self.pci_class[:4] in ("0302", "0300")

    @property
    def is_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.vendor == AMAZON and self.device.startswith("efa")
