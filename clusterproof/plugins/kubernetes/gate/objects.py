"""What the gate writes: conditions, and events for changes; with many concurrent requests.

Each refusal is reported in the server's words, and only once for all nodes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes import CONFLICT, NOT_FOUND, OURS, TOO_MANY
from clusterproof.plugins.kubernetes.api import MERGE, Api, KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.gate import CONDITION, DOMAIN, FALSE, Health
from clusterproof.plugins.kubernetes.nodes import NODES_AT_ONCE, ApiNode, Taint, node_of
from clusterproof.plugins.kubernetes.values import parts, tables, text

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"  # where events of nodes are stored, which have no namespace
TAINTS_CHANGED = "ClusterproofTaints"


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


def every_node(api: Api) -> list[GateNode]:
    """Every node of the cluster. Raises KubernetesError."""
    return list(map(seen_of, api.listed(NODES, limit=NODES_AT_ONCE)))


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


AT_ONCE = 16  # requests
TRIES = 5  # to change a node that others change concurrently
DEADLINE_S = 300.0  # for everything: limits the delay by an unavailable API server
MAX_NAMES = 200  # characters of names in a line
MAX_PROBLEMS = 5  # lines
SLOW = (0, TOO_MANY)  # what is tried for half a minute
RIGHTS = (
    "expected the rights of gate.yaml in integrations/kubernetes, for taints taints.yaml too (docs/kubernetes-gate.md)"
)
Patch = dict[str, object]
T = TypeVar("T")


def of_nodes(names: Iterable[str], message: str) -> str:
    """`gpu[001-016]: words`."""
    return f"{printable(within(fold(set(names)), MAX_NAMES))}: {message}"


def lines_by_message(message_by_node: Mapping[str, str]) -> list[str]:
    """A line for each of these messages, with its nodes; none for an empty one."""
    nodes_by_message: dict[str, list[str]] = defaultdict(list)
    for name, message in message_by_node.items():
        nodes_by_message[message].append(name)
    return [of_nodes(names, message) for message, names in nodes_by_message.items() if message]


@dataclass
class ObjectWriter:
    """Writes to an API server; collects errors with the nodes concerned."""

    api: Api
    problems: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gone: set[str] = field(default_factory=set)  # nodes that no longer exist
    is_denied: bool = False  # whether a refusal applies to every node, unlike a site's policy for some
    is_silent: bool = False  # whether events are refused
    until: float = field(default_factory=lambda: time.monotonic() + DEADLINE_S)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def each(self, act: Callable[[str], T | None], names: Sequence[str]) -> dict[str, T]:
        """The results for these nodes, without those that failed."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gate") as pool:
            outcomes = zip(names, pool.map(lambda name: self.tried(name, lambda: act(name)), names), strict=True)
            return {name: outcome for name, outcome in outcomes if outcome is not None}

    def tried(self, name: str, ask: Callable[[], T | None]) -> T | None:
        """The result of a request; None if it failed, with the error recorded. An empty `name` means all nodes."""
        try:
            if time.monotonic() > self.until:
                raise KubernetesError(f"not tried, as {DEADLINE_S:.0f} s have passed; expected a faster API server")
            return ask()
        except KubernetesError as problem:
            with self.lock:
                self._keep(name, problem)
            return None

    def _keep(self, name: str, problem: KubernetesError) -> None:
        if name and problem.status == NOT_FOUND:
            self.gone.add(name)
            return
        self.is_denied |= isinstance(problem, KubernetesDenied) or not problem.status
        message = problem.with_rights(RIGHTS) if isinstance(problem, KubernetesDenied) else str(problem)
        self.problems[message.replace(f'"{name}"', "NODE") if name else message].add(name)

    def changed(self, seen: GateNode, patch_of: Callable[[GateNode], Patch]) -> GateNode:
        """A node after a patch that applies to one version only; it is rebuilt for a later version.

        Raises KubernetesError.
        """
        for _ in range(TRIES):
            patch = patch_of(seen)
            if not patch:
                return seen
            try:
                return seen_of(self.api.patch(seen.path, patch, MERGE))
            except KubernetesError as problem:
                if problem.status != CONFLICT:
                    raise
            now = list(map(seen_of, self.api.listed(NODES, fieldSelector=f"metadata.name={seen.node.name}")))
            if [node.uid for node in now] != [seen.uid]:
                raise KubernetesError(
                    "another node has this name by now; expected the one that was evaluated", NOT_FOUND
                )
            seen = now[0]
        raise KubernetesError(f"others changed it {TRIES} times meanwhile; expected to write it in the next run")

    def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an event; if that is forbidden or takes too long, no other is tried."""
        if not self.is_silent:
            self.tried(str(event["involvedObject"]["name"]), lambda: self._created(event))

    def _created(self, event: Mapping[str, Any]) -> bool:
        try:
            self.api.create(EVENTS, event)
        except KubernetesError as problem:
            self.is_silent |= isinstance(problem, (KubernetesDenied, KubernetesRefused)) or problem.status in SLOW
            if isinstance(problem, KubernetesDenied) or not problem.status:
                raise
            raise KubernetesError(f"an event was refused: {problem}", problem.status) from None
        return True

    def lines(self) -> list[str]:
        """A line for each kind of error."""
        problems = [of_nodes(names, why) if any(names) else why for why, names in self.problems.items()]
        more = [f"and {len(problems) - MAX_PROBLEMS} more reasons"] if len(problems) > MAX_PROBLEMS else []
        return [*problems[:MAX_PROBLEMS], *more]
