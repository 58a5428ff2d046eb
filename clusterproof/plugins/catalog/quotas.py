"""The service quotas that a cluster is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.catalog import Catalog
from clusterproof.plugins.catalog.rows import table

FILE = "quotas.toml"
SAGEMAKER = "sagemaker"
NODES, VOLUME, PER_TYPE, INTERFACES, ONE = "nodes", "volume", "nodes of type", "network interfaces", "one"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """One quota: its service, a part of its name, and what is reckoned against it (explained in quotas.toml)."""

    service: str
    name: str
    needs: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interfaces:
    count: int
    source: str


@cache
def quotas() -> tuple[QuotaRow, ...]:
    """Every row of quotas.toml. Raises CatalogError."""
    return tuple(table(QuotaRow, FILE, "quota").values())


def interfaces(instance_type: str, catalog: Catalog) -> int | None:
    """The network interfaces of an instance: one for each EFA device and those without; None where nobody knows."""
    without: Mapping[str, _Interfaces] = table(_Interfaces, FILE, "interfaces_without_efa")
    devices = catalog.efa_devices(instance_type)
    if devices is None:
        return 1 if catalog.accelerators(instance_type) == 0 else None
    return max(1, devices + (without[instance_type].count if instance_type in without else 0))
