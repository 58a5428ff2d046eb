"""What is written: a condition, and an event for each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes.gate import CONDITION, DOMAIN, OURS
from clusterproof.plugins.kubernetes.gate.health import FALSE, Health
from clusterproof.plugins.kubernetes.nodes import KubernetesNode, Taint, node_of
from clusterproof.plugins.kubernetes.values import parts, tables, text

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"  # where those of nodes lie, which are of no namespace
COMPONENT = "clusterproof"
STRATEGIC = "application/strategic-merge-patch+json"  # a list's entries by their key: others' are left as they are
MERGE = "application/merge-patch+json"
TAINTS_CHANGED = "ClusterproofTaints"


@record
class Seen:
    """A node as it stood, with the two words by which a write names exactly this one."""

    node: KubernetesNode
    uid: str
    version: str
    taints: tuple[Mapping[str, Any], ...] = ()  # as the server has them, in the order of the node's

    @property
    def path(self) -> str:
        """Its path."""
        return f"{NODES}/{self.node.name}"


def seen_of(data: Mapping[str, Any]) -> Seen:
    """A node out of the API's JSON."""
    metadata, spec, _ = parts(data)
    uid, version = text(metadata.get("uid")), text(metadata.get("resourceVersion"))
    return Seen(node_of(data, with_images=False), uid, version, tuple(tables(spec.get("taints"))))


def moment(at: float) -> str:
    """Seconds since 1970 as Kubernetes writes a time."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_patch(seen: Seen, health: Health, at: float) -> dict[str, object]:
    """A strategic merge patch: `type` is the key of the list, so every other condition is left as it is.

    The time of transition stays while the status does; a node of the same name with another uid refuses it.
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


def without_condition(seen: Seen) -> dict[str, object]:
    """The strategic merge patch that takes our condition away, and leaves the others as they are."""
    return {"metadata": {"uid": seen.uid}, "status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}


def trial_patch(seen: Seen) -> dict[str, object]:
    """A change that no gate ever makes: to see, without making it, whether anything would hinder it."""
    return {"metadata": {"uid": seen.uid, "annotations": {f"{DOMAIN}/trial": "of confined.yaml"}}}


def taints_patch(seen: Seen, taints: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """A merge patch to these taints, which the server takes for this version of the node alone, and else answers 409.

    A JSON patch would have its operations tried before the version is compared, and be rejected as invalid (422).
    """
    return {"metadata": {"uid": seen.uid, "resourceVersion": seen.version}, "spec": {"taints": list(taints)}}


def with_taint(seen: Seen, key: str, effect: str) -> dict[str, object]:
    """The patch that gives a node a taint beside those that it has."""
    return taints_patch(seen, [*seen.taints, {"key": key, "effect": effect}])


def without_taints(seen: Seen, taints: Sequence[Taint]) -> dict[str, object]:
    """The patch that takes these away, and leaves the others as they are."""
    kept = zip(seen.node.taints, seen.taints, strict=True)
    return taints_patch(seen, [data for one, data in kept if one not in taints])


def is_change(seen: Seen, health: Health) -> bool:
    """Whether there is something new to report: another status, or another fault."""
    before = seen.node.condition(CONDITION)
    if before is None or before.status != health.status:
        return True
    return health.status == FALSE and before.reason != health.reason


def difference(before: Seen, after: Seen) -> str:
    """`got the taint clusterproof.dev/unfit:NoSchedule`: which of our own were changed; empty where none was."""
    got, lost = (
        [f"{one.key}:{one.effect}" for one in new.node.taints if OURS in one.key and one not in old.node.taints]
        for new, old in ((after, before), (before, after))
    )
    changes = (f"got the taint {', '.join(got)}" if got else "", f"lost the taint {', '.join(lost)}" if lost else "")
    return "; ".join(filter(None, changes))


def verdict_event(seen: Seen, health: Health, at: float) -> dict[str, object]:
    """The event of a change; its reason is the condition's."""
    return event(seen, health.status == FALSE, health.reason, change(seen, health), at)


def change(seen: Seen, health: Health) -> str:
    """`ClusterproofHealthy is False, was True: gpu.gpu_count: …`."""
    before = seen.node.condition(CONDITION)
    return f"{CONDITION} is {health.status}, was {before.status if before else 'not there'}: {health.message}"


def event(seen: Seen, is_warning: bool, reason: str, message: str, at: float) -> dict[str, object]:
    """An event of a node, as `kubectl describe node` shows it."""
    now = moment(at)
    return {
        "metadata": {"generateName": f"{COMPONENT}-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": seen.node.name, "uid": seen.uid},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
