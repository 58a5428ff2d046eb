"""The AWS actions in use, with permissions, and what a cluster needs: quotas, endpoints, FSx limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "aws_actions.toml"
QUOTAS = "quotas.toml"
SAGEMAKER = "sagemaker"
NODES, VOLUME, PER_TYPE, INTERFACES = "nodes", "volume", "nodes of type", "network interfaces"
VPC_ENDPOINTS = "vpc_endpoints.toml"
ALWAYS = "always"


@record
class AwsAction:
    """One action: IAM's name, boto3's service and method, its purpose, and the resources.

    `opt_in` is the option without which it is never called; `only_where` an IAM condition key and its value.
    """

    action: str
    service: str
    operation: str
    needed_for: str
    source: str
    on: tuple[str, ...] = ("*",)
    opt_in: str = ""
    only_where: tuple[str, ...] = ()


@cache
def aws_actions() -> Mapping[tuple[str, str], AwsAction]:
    """Every action by service and operation. Raises CatalogError."""
    whole = document(FILE)
    rows = []
    for name, row in whole["action"].items():
        fields = {"action": name, **{key: value for key, value in row.items() if key != "for"}}
        rows.append(build(AwsAction, {**fields, "needed_for": row.get("for")}, f"{FILE}: {name}", whole["sources"]))
    return {(row.service, row.operation): row for row in rows}


@record
class QuotaRow:
    """One quota: its service, a part of its name, and what counts against it (explained in quotas.toml)."""

    service: str
    name: str
    needs: str
    source: str


@record
class _Interfaces:
    count: int
    source: str


@cache
def quotas() -> tuple[QuotaRow, ...]:
    """Every row of quotas.toml. Raises CatalogError."""
    return tuple(table(QuotaRow, QUOTAS, "quota").values())


def interfaces(instance_type: str, catalog: Catalog) -> int | None:
    """The network interfaces of an instance: one for each EFA device and those without; None if unknown."""
    without: Mapping[str, _Interfaces] = table(_Interfaces, QUOTAS, "interfaces_without_efa")
    devices = catalog.efa_devices(instance_type)
    if devices is None:
        return 1 if catalog.accelerators(instance_type) == 0 else None
    return max(1, devices + (without[instance_type].count if instance_type in without else 0))


@record
class EndpointRow:
    """One service's endpoint: when it is needed (`always`, `without internet`), and why."""

    service: str
    needed: str
    needed_for: str
    source: str


@cache
def vpc_endpoint_rows() -> tuple[EndpointRow, ...]:
    """Every row of vpc_endpoints.toml. Raises CatalogError."""
    whole = document(VPC_ENDPOINTS)
    rows = []
    for service, row in whole["endpoint"].items():
        fields = {"service": service, **{key: value for key, value in row.items() if key != "for"}}
        rows.append(
            build(
                EndpointRow, {**fields, "needed_for": row.get("for")}, f"{VPC_ENDPOINTS}: {service}", whole["sources"]
            )
        )
    return tuple(rows)


@record
class FsxMetric:
    """One metric with its statistics; `words` are empty if it is no percentage of a limit."""

    metric: str
    statistics: tuple[str, ...]
    source: str
    words: str = ""
    must_be_of: tuple[str, ...] = ()


@cache
def fsx_metrics() -> Mapping[str, FsxMetric]:
    """Every row of fsx_metrics.toml by metric name. Raises CatalogError."""
    return table(FsxMetric, "fsx_metrics.toml", "metric", key="metric")


@cache
def fsx_limits(kind: str) -> tuple[str, ...]:
    """The percentages that a type of file system (`LUSTRE`) must have, by their CloudWatch names."""
    return tuple(name for name, row in fsx_metrics().items() if kind in row.must_be_of)
