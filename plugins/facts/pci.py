"""Devices on the PCI bus as sysfs tells them, whatever their drivers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import Field, optional, read, table, text, whole

NVIDIA, AMAZON = "10de", "1d0f"


@dataclass(frozen=True, slots=True)
class PciErrors:
    """What PCIe's advanced error reporting counted since boot; None where the kernel does not report it."""

    told: Mapping[str, Any]

    correctable = Field(optional(whole))
    nonfatal = Field(optional(whole))
    fatal = Field(optional(whole))


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI device of those that matter here."""

    told: Mapping[str, Any]

    address = Field(text)
    vendor = Field(text)
    device = Field(text)
    pci_class = Field(text, "class")
    driver = Field(text)
    numa = Field(whole)  # -1: the firmware names none

    @property
    def label(self) -> str:
        """Its address: `0000:53:00.0`."""
        return self.address

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU: a 3D controller (0302) or a display controller (0300)."""
        return self.vendor == NVIDIA and self.pci_class[:4] in ("0302", "0300")

    @property
    def is_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.vendor == AMAZON and self.device.startswith("efa")

    @property
    def errors(self) -> PciErrors:
        """The errors of its PCIe link. Raises Incomplete."""
        return PciErrors(read(self.told.get("errors"), table, "errors"))
