"""What the gate writes: conditions, taints, and events for changes; pure functions of a node as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes import OURS
from clusterproof.plugins.kubernetes.gate import CONDITION, DOMAIN, FALSE, Health
from clusterproof.plugins.kubernetes.nodes import ApiNode, Taint, node_of
from clusterproof.plugins.kubernetes.values import parts, tables, text

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"  # where events of nodes are stored, which have no namespace
TAINTS_CHANGED = "ClusterproofTaints"
Patch = dict[str, object]


@record
class GateNode:
    """A node's current state, with its uid and version, by which a write names exactly this one."""

    node: ApiNode
    uid: str
    version: str
    taints: tuple[Mapping[str, Any], ...] = ()  # as the server returned them, in order

    @property
    def path(self) -> str:
        """Its API path."""
        return f"{NODES}/{self.node.name}"


def seen_of(resource: Mapping[str, Any]) -> GateNode:
    """Extract what a gate needs from a node's JSON, which has 20 kB."""
    metadata, spec, status = parts(resource)
    named = {"name": metadata.get("name"), "creationTimestamp": metadata.get("creationTimestamp")}
    conditions = [condition for condition in tables(status.get("conditions")) if condition.get("type") == CONDITION]
    read = {"metadata": named, "spec": {"taints": spec.get("taints")}, "status": {"conditions": conditions}}
    uid, version = text(metadata.get("uid")), text(metadata.get("resourceVersion"))
    return GateNode(node_of(read), uid, version, tuple(tables(spec.get("taints"))))


def moment(at: float) -> str:
    """Seconds since 1970 in Kubernetes' format."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_patch(seen: GateNode, health: Health, at: float) -> dict[str, object]:
    """A strategic merge patch: `type` is the key of the list, so other conditions stay unchanged.

    The transition time only changes with the status; a node of that name with another uid refuses the patch.
    """
    before, now = seen.node.condition(CONDITION), moment(at)
    since = before.since if before and before.status == health.status and before.since else now
    condition = {
        "type": CONDITION,
        "status": health.status,
        "reason": health.reason,
        "message": health.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
    return {"metadata": {"uid": seen.uid}, "status": {"conditions": [condition]}}


def without_condition(seen: GateNode) -> dict[str, object]:
    """The strategic merge patch that removes our condition, and keeps the others."""
    return {"metadata": {"uid": seen.uid}, "status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}


def trial_patch(seen: GateNode) -> dict[str, object]:
    """A change that no gate ever makes, for a dry run that shows whether anything would prevent it."""
    return {"metadata": {"uid": seen.uid, "annotations": {f"{DOMAIN}/trial": "of confined.yaml"}}}


def taints_patch(seen: GateNode, taints: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """A merge patch that sets these taints; the server applies it to this version of the node only, else answers 409.

    A JSON patch would be tried before the version is compared, and be rejected as invalid (422).
    """
    return {"metadata": {"uid": seen.uid, "resourceVersion": seen.version}, "spec": {"taints": list(taints)}}


def with_taint(seen: GateNode, key: str, effect: str) -> dict[str, object]:
    """The patch that adds a taint to a node."""
    return taints_patch(seen, [*seen.taints, {"key": key, "effect": effect}])


def without_taints(seen: GateNode, taints: Sequence[Taint]) -> dict[str, object]:
    """The patch that removes these, and keeps the others."""
    kept = zip(seen.node.taints, seen.taints, strict=True)
    return taints_patch(seen, [resource for taint, resource in kept if taint not in taints])


def has_ours(seen: GateNode) -> bool:
    """Whether the node has a condition or a taint of ours."""
    return seen.node.condition(CONDITION) is not None or any(OURS in taint.key for taint in seen.node.taints)


def without_ours(seen: GateNode) -> Patch:
    """A patch that removes every taint of ours; empty if there is none."""
    own_taints = [taint for taint in seen.node.taints if OURS in taint.key]
    return without_taints(seen, own_taints) if own_taints else {}


def is_change(seen: GateNode, health: Health) -> bool:
    """Whether there is something new to report: another status, or another fault."""
    before = seen.node.condition(CONDITION)
    if before is None or before.status != health.status:
        return True
    return health.status == FALSE and before.reason != health.reason


def difference(before: GateNode, after: GateNode) -> str:
    """`got the taint clusterproof.dev/unfit:NoSchedule`: which of our own changed; empty if none did."""
    got, lost = (
        [
            f"{taint.key}:{taint.effect}"
            for taint in new.node.taints
            if OURS in taint.key and taint not in old.node.taints
        ]
        for new, old in ((after, before), (before, after))
    )
    changes = (f"got the taint {', '.join(got)}" if got else "", f"lost the taint {', '.join(lost)}" if lost else "")
    return "; ".join(filter(None, changes))


def verdict_event(seen: GateNode, health: Health, at: float) -> dict[str, object]:
    """The event for a change; its reason is the condition's."""
    return event(seen, health.status == FALSE, health.reason, change(seen, health), at)


def change(seen: GateNode, health: Health) -> str:
    """`ClusterproofHealthy is False, was True: gpu.gpu_count: …`."""
    before = seen.node.condition(CONDITION)
    return f"{CONDITION} is {health.status}, was {before.status if before else 'not there'}: {health.message}"


def event(seen: GateNode, is_warning: bool, reason: str, message: str, at: float) -> dict[str, object]:
    """An event of a node, shown by `kubectl describe node`."""
    now = moment(at)
    return {
        "metadata": {"generateName": f"{OURS}-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": seen.node.name, "uid": seen.uid},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": OURS},
        "reportingComponent": OURS,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
