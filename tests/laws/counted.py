"""Findings that need every entry of a list, because they count or compare the entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counted:
    """The checks whose findings need all entries of a list."""

    checks: tuple[str, ...]
    entries: str


LUSTRE = ("lustre_client_cache", "lustre_clients", "lustre_mdt_inodes", "lustre_ost_fill", "lustre_tuning")

ROWS: Mapping[str, Counted] = {
    "an EFA device that is not there has no device file and no domain": Counted(
        ("network.efa_modules", "network.libfabric_efa"), "rdma.devices"
    ),
    "with one NUMA node nothing is compared or balanced": Counted(("host.numa", "host.numa_balancing"), "memory.numa"),
    "too few devices of a model are left for most of them to have a link": Counted(
        ("network.nic_link",), "pci.devices"
    ),
    "the device at the other end of a link reports it": Counted(("neuron.connected",), "neuron.devices"),
    "a job has the devices whose files it has": Counted(("software.container_devices",), "container.devices"),
    "Lustre is there where it is mounted": Counted(tuple(f"storage.{name}" for name in LUSTRE), "mounts.mounts"),
}


def counted(check: str, entries: str) -> str:
    """Why a finding of a check needs all entries of that list, or empty."""
    return next((why for why, row in ROWS.items() if check in row.checks and entries == row.entries), "")
