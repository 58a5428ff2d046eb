"""Compatible versions of driver, CUDA, EFA installer and aws-ofi-nccl; and the port rates that EFA's driver reports."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "compatibility.toml"
EFA_DRIVER = "efa_driver.toml"


@record
class NeedsDriver:
    """A CUDA release, and the oldest driver for it."""

    driver: str
    source: str


@record
class NeedsPlugin:
    """An EFA installer, and the oldest aws-ofi-nccl for it."""

    aws_ofi_nccl: str
    source: str


@record
class NeedsModule:
    """A GPU model, and which kernel module it needs."""

    needs: str
    source: str


@cache
def oldest_driver(cuda: tuple[int, ...]) -> str:
    """The oldest driver that runs this CUDA at all; empty if unknown. Raises CatalogError."""
    row = table(NeedsDriver, FILE, "cuda").get(str(cuda[0]))
    return row.driver if row else ""


@cache
def own_driver(cuda: tuple[int, ...]) -> str:
    """The driver that is bundled with this toolkit; empty if unknown. Raises CatalogError."""
    row = table(NeedsDriver, FILE, "toolkit").get(".".join(map(str, cuda[:2])))
    return row.driver if row else ""


@cache
def oldest_plugin(installer: tuple[int, ...]) -> str:
    """The oldest aws-ofi-nccl for this EFA installer; empty if unknown. Raises CatalogError."""
    rows = {tuple(map(int, name.split("."))): row for name, row in table(NeedsPlugin, FILE, "efa_installer").items()}
    reached = [first for first in rows if first <= installer]
    return rows[max(reached)].aws_ofi_nccl if reached else ""


@cache
def kernel_module_needed(gpu_model: str) -> str:
    """The NVIDIA kernel module that a GPU needs, from words of its name; empty for either. Raises CatalogError."""
    rows = table(NeedsModule, FILE, "kernel_module")
    return next((row.needs for model, row in rows.items() if model in gpu_model), "")


@record
class PortRate:
    """The rates (Gb/s) that the driver can report, and what it reports for an unknown one."""

    since: str  # the first version that reports rates
    unknown_gbps: int
    known_gbps: tuple[int, ...]
    source: str

    def reported_gbps(self, gbps: float) -> int:
        """The rate that the driver reports for a device: 30 for 35 Gb/s."""
        return next((known for known in sorted(self.known_gbps, reverse=True) if known <= gbps), min(self.known_gbps))


@cache
def port_rate() -> PortRate:
    """The table of efa_driver.toml. Raises CatalogError."""
    parsed = document(EFA_DRIVER)
    return build(PortRate, parsed["port_rate"], EFA_DRIVER, parsed["sources"])
