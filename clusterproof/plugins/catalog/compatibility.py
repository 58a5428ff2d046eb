"""Which versions of driver, CUDA, EFA installer and aws-ofi-nccl work together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import table

FILE = "compatibility.toml"


@dataclass(frozen=True, slots=True)
class NeedsDriver:
    """A CUDA release, and the oldest driver for it."""

    driver: str
    source: str


@dataclass(frozen=True, slots=True)
class NeedsPlugin:
    """An EFA installer, and the oldest aws-ofi-nccl for it."""

    aws_ofi_nccl: str
    source: str


@dataclass(frozen=True, slots=True)
class NeedsModule:
    """A GPU model, and which kernel module it needs."""

    needs: str
    source: str


@cache
def oldest_driver(cuda: tuple[int, ...]) -> str:
    """The oldest driver that runs this CUDA at all; empty where the catalogue does not know. Raises CatalogError."""
    row = table(NeedsDriver, FILE, "cuda").get(str(cuda[0]))
    return row.driver if row else ""


@cache
def own_driver(cuda: tuple[int, ...]) -> str:
    """The driver that this toolkit came with; empty where the catalogue does not know. Raises CatalogError."""
    row = table(NeedsDriver, FILE, "toolkit").get(".".join(map(str, cuda[:2])))
    return row.driver if row else ""


@cache
def oldest_plugin(installer: tuple[int, ...]) -> str:
    """The oldest aws-ofi-nccl for this EFA installer; empty where the catalogue has none. Raises CatalogError."""
    rows = {tuple(map(int, name.split("."))): row for name, row in table(NeedsPlugin, FILE, "efa_installer").items()}
    reached = [first for first in rows if first <= installer]
    return rows[max(reached)].aws_ofi_nccl if reached else ""


@cache
def kernel_module_needed(gpu_model: str) -> str:
    """Which of NVIDIA's kernel modules a GPU needs, by words of its name; empty for either. Raises CatalogError."""
    rows = table(NeedsModule, FILE, "kernel_module")
    return next((row.needs for words, row in rows.items() if words in gpu_model), "")
