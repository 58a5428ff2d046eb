"""What a site's policy puts in place of the catalogue's rows, for the length of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterproof.plugins.catalog.instance_types import InstanceType

own_thresholds: dict[str, float] = {}
own_instance_types: dict[str, InstanceType] = {}


def overrule(thresholds: Mapping[str, float], instance_types: Mapping[str, InstanceType]) -> None:
    """Let these rows stand before the catalogue's own, until the next call."""
    own_thresholds.clear()
    own_thresholds.update(thresholds)
    own_instance_types.clear()
    own_instance_types.update(instance_types)
