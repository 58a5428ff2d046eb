"""Kubernetes objects known by name: node conditions, taints, daemon sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, table
from clusterproof.plugins.core.record import record

FILE = "kubernetes.toml"
VERDICTS = ("fail", "concern")
GOOD_NAMES = ("Ready", "Healthy", "Available")  # how conditions end that are True while all is well


@record
class NodeCondition:
    """A node condition that is not the kubelet's, and the status that means a fault."""

    bad: str
    source: str


@record
class UsualTaint:
    """A taint that nodes with accelerators have by design."""

    key: str
    source: str


@record
class NodeHealth:
    """A health status that HyperPod gives a node by a label."""

    takes_pods: bool
    source: str


@record
class SystemNamespace:
    """Namespaces in which only cluster administrators create pods."""

    pattern: str
    source: str


@record
class NeededDaemonSet:
    """A daemon set, what fails without its pod on a node, and what it means that the pod is ill or missing."""

    pattern: str
    purpose: str
    verdict: str
    source: str


@record
class Request:
    """How much of a resource a pod requests, as a Kubernetes quantity."""

    amount: str
    source: str


def bad_status(kind: str) -> str:
    """The status of a node's condition that means a fault; of an unknown kind, its name decides."""
    row = _conditions().get(kind)
    return row.bad if row else "False" if kind.endswith(GOOD_NAMES) else "True"


def is_usual_taint(key: str) -> bool:
    """Whether nodes with accelerators have a taint of this key by design."""
    return any(key == row.key for row in table(UsualTaint, FILE, "taint").values())


def health_of_hyperpod(word: str) -> NodeHealth | None:
    """What HyperPod's word for a node's health means; None where nobody knows it."""
    return _health().get(word)


def role_of(namespace: str, daemon_set: str) -> str:
    """The row of a daemon set of that name; empty where none is, or where users may make one of any name."""
    if not any(re.fullmatch(row.pattern, namespace) for row in _system_namespaces().values()):
        return ""
    return next((role for role, row in _daemon_sets().items() if re.fullmatch(row.pattern, daemon_set)), "")


def perf_requests() -> Mapping[str, str]:
    """What a pod that loads its node asks for of its processors and memory, by resource."""
    rows = table(Request, FILE, "perf_request")
    return {name: rows[name].amount for name in ("cpu", "memory")}


def perf_huge_pages() -> str:
    """How much memory in huge pages a pod that loads its node asks for, where there is EFA."""
    return table(Request, FILE, "perf_request")["huge-pages"].amount


@cache
def needed_daemon_set(role: str) -> NeededDaemonSet | None:
    """What is known of a daemon set by its row. Raises CatalogError."""
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
