"""The service quotas that a cluster is checked against: the account's, or else AWS's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.aws import Account
from clusterproof.plugins.aws.resources import described, instance_groups, types_of
from clusterproof.plugins.catalog.aws import PER_TYPE, SAGEMAKER, quotas
from clusterproof.plugins.core.cluster import Cluster, is_of_hyperpod

Description = Mapping[str, Any]


def read_quotas(account: Account, cluster: Cluster) -> object:
    """Each quota by its service and the part of its name in the catalogue."""
    return {
        "quotas": [
            {"service": service, "name": name, "value": data.get("Value")}
            for service, names in _wanted(account, cluster).items()
            for name, data in _quotas(account, service, names).items()
        ]
    }


def _wanted(account: Account, cluster: Cluster) -> Mapping[str, set[str]]:
    """The names of the relevant quotas, by service."""
    wanted: dict[str, set[str]] = {}
    for row in quotas():
        if row.service == SAGEMAKER and not is_of_hyperpod(cluster):
            continue
        names = {row.name}
        if row.needs == PER_TYPE:
            groups = instance_groups(described(account, cluster))
            names = {row.name.format(type=name) for group in groups for name in types_of(group)}
        wanted.setdefault(row.service, set()).update(names)
    return wanted


def _quotas(account: Account, service: str, names: set[str]) -> Mapping[str, Description]:
    """The quotas with these names; an exact match takes precedence over a partial one."""
    by_name: dict[str, Description] = {}
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        missing = names - by_name.keys()
        listed = account.listed("service-quotas", operation, "Quotas", ServiceCode=service) if missing else ()
        for description in listed:
            for name in missing:
                if name.lower() in _name(description) and len(_name(description)) < len(
                    _name(by_name.get(name, _LONG))
                ):
                    by_name[name] = description
    return by_name


def _name(description: Description) -> str:
    return str(description.get("QuotaName", "")).lower()


_LONG: Description = {"QuotaName": " " * 1000}
