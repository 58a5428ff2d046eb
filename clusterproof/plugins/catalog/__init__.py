"""What the suite knows in numbers and words, each row with its source. Files are read on first use."""

from __future__ import annotations

from clusterproof.plugins.catalog.catalog import PACKAGED, Catalog, Threshold, thresholds
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.catalog.nvidia import (
    ClocksEventReason,
    RecoveryAction,
    SXids,
    Xid,
    clocks_event_reasons,
    fabric_faults,
    fabric_state,
    fabric_statuses,
    fabric_summary,
    recovery_action,
    recovery_action_in_log,
    sxids,
    unknown_clocks_event_reasons,
    xid,
    xids,
)
from clusterproof.plugins.catalog.owners import Owner, owner, owners
from clusterproof.plugins.catalog.rows import CatalogError
from clusterproof.plugins.core.cluster import InstanceType

__all__ = [
    "PACKAGED",
    "Catalog",
    "CatalogError",
    "ClocksEventReason",
    "InstanceType",
    "Owner",
    "RecoveryAction",
    "SXids",
    "Threshold",
    "Xid",
    "clocks_event_reasons",
    "fabric_faults",
    "fabric_state",
    "fabric_statuses",
    "fabric_summary",
    "instance_types",
    "owner",
    "owners",
    "recovery_action",
    "recovery_action_in_log",
    "sxids",
    "thresholds",
    "unknown_clocks_event_reasons",
    "xid",
    "xids",
]
