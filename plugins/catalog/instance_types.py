"""The instance types that are packaged: the numbers that counts are held against."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.instance_type import InstanceType


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every row of instance_types.toml by EC2's name. Raises CatalogError."""
    return table(InstanceType, "instance_types.toml", "instance_type", key="name")
