"""Known names of Kubernetes objects: conditions, taints, daemon sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, table
from clusterproof.plugins.core.record import record

FILE = "kubernetes.toml"
VERDICTS = ("fail", "concern")
GOOD_NAMES = ("Ready", "Healthy", "Available")  # suffixes of conditions that are True while all is well


@record
class NodeCondition:
    """A condition written by something other than the kubelet, and the status that means a fault."""

    bad: str
    source: str


@record
class ExpectedTaint:
    """A taint that nodes with accelerators have by design."""

    key: str
    source: str


@record
class NodeHealth:
    """A value of HyperPod's label for a node's health."""

    takes_pods: bool
    source: str


@record
class SystemNamespace:
    """Namespaces in which only cluster operators create pods."""

    pattern: str
    source: str


@record
class NeededDaemonSet:
    """A daemon set, what depends on its pod, and what it means if that is unhealthy or missing."""

    pattern: str
    purpose: str
    verdict: str
    source: str


@record
class Request:
    """How much of a resource a pod requests, in Kubernetes notation."""

    amount: str
    source: str


def bad_status(kind: str) -> str:
    """The status of a node's condition that means a fault; for an unknown kind, inferred from its name."""
    row = _conditions().get(kind)
    return row.bad if row else "False" if kind.endswith(GOOD_NAMES) else "True"


def is_fault(kind: str, status: str) -> bool:
    """Whether this status means a fault, for a condition in the table."""
    row = _conditions().get(kind)
    return row is not None and row.bad == status


def is_expected_taint(key: str) -> bool:
    """Whether nodes with accelerators have a taint of this key by design."""
    return any(key == row.key for row in table(ExpectedTaint, FILE, "taint").values())


def health_of_hyperpod(word: str) -> NodeHealth | None:
    """The meaning of HyperPod's label for a node's health; None if unknown."""
    return _health().get(word)


def role_of(namespace: str, daemon_set: str) -> str:
    """The row of the daemon set with this name; empty if there is none, or if users may create any such name."""
    if not any(re.fullmatch(row.pattern, namespace) for row in _system_namespaces().values()):
        return ""
    return next((role for role, row in _daemon_sets().items() if re.fullmatch(row.pattern, daemon_set)), "")


def perf_requests() -> Mapping[str, str]:
    """The CPU and memory that a pod for load requests, by resource."""
    rows = table(Request, FILE, "perf_request")
    return {name: rows[name].amount for name in ("cpu", "memory")}


def perf_huge_pages() -> str:
    """The memory in huge pages that a pod for load requests on nodes with EFA."""
    return table(Request, FILE, "perf_request")["huge-pages"].amount


@cache
def needed_daemon_set(role: str) -> NeededDaemonSet | None:
    """The row of a daemon set. Raises CatalogError."""
    row = _daemon_sets().get(role)
    if row and row.verdict not in VERDICTS:
        raise CatalogError(f"{FILE}: daemon set {role}: expected a verdict of {VERDICTS}")
    return row


@cache
def _conditions() -> Mapping[str, NodeCondition]:
    return table(NodeCondition, FILE, "condition")


@cache
def _health() -> Mapping[str, NodeHealth]:
    return table(NodeHealth, FILE, "health")


@cache
def _system_namespaces() -> Mapping[str, SystemNamespace]:
    return table(SystemNamespace, FILE, "system_namespace")


@cache
def _daemon_sets() -> Mapping[str, NeededDaemonSet]:
    return table(NeededDaemonSet, FILE, "daemon_set")
