"""Writes a run's verdicts to Kubernetes, or removes them: conditions, events and taints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.kubernetes.api import MERGE, STRATEGIC, Api, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.gate import CONDITION, FALSE, NOT_REACHED, TRUE, UNKNOWN, GateSettings, Health
from clusterproof.plugins.kubernetes.gate.object_writer import ObjectWriter, every_node, lines_by_message
from clusterproof.plugins.kubernetes.gate.objects import (
    GateNode,
    change,
    condition_patch,
    difference,
    has_ours,
    is_change,
    moment,
    seen_of,
    trial_patch,
    verdict_event,
    without_condition,
    without_ours,
)
from clusterproof.plugins.kubernetes.gate.taints import TaintWriter
from clusterproof.plugins.kubernetes.nodes import Condition

UNCONFINED = (
    "the API server lets this account change more of nodes than its condition; expected confined.yaml of "
    "integrations/kubernetes, and Kubernetes 1.30 or newer"
)
UNTRIED = "whether the API server lets this account change more of nodes than its condition could not be told"

FEW = 3  # nodes: if the account is denied these, it is denied all


@record
class WriteOutcome:
    """What was done, what was left, and what failed, one line each."""

    lines: tuple[str, ...]
    problems: tuple[str, ...]
    changes: Mapping[str, str] = field(default_factory=dict)  # by node: what happened to its condition
    is_open: bool = False  # whether a node was left for the next evaluation
    is_pending: bool = False  # whether a finding remains to be written


def write(
    api: Api,
    orders: GateSettings,
    healths: Mapping[str, Health],
    began: float,
    now: float,
    earlier: Mapping[str, float] = MappingProxyType({}),
) -> WriteOutcome:
    """Write the health of nodes that a run found, which began then; all in seconds since 1970.

    `earlier`: for nodes with a valid verdict of an earlier run, when that evaluation began.
    """
    gate = Gate(ObjectWriter(api), orders, moment(began), now, {name: moment(at) for name, at in earlier.items()})
    gate.write(healths)
    lines, problems = tuple(gate.lines), tuple(gate.writer.lines())
    return WriteOutcome(lines, problems, gate.changes, gate.is_open, gate.is_pending)


class Gate:
    """The writes of one run. `seen` are all nodes of the cluster."""

    def __init__(
        self,
        writer: ObjectWriter,
        orders: GateSettings,
        began: str,
        now: float,
        earlier: Mapping[str, str],
    ) -> None:
        self.writer = writer
        self.orders = orders
        self.began = began
        self.earlier = earlier
        self.now = now
        self.seen: dict[str, GateNode] = {}
        self.lines: list[str] = []
        self.changes: dict[str, str] = {}
        self.is_open = self.is_pending = False

    def write(self, healths: Mapping[str, Health]) -> None:
        """Write everything; if conditions are refused, nothing more."""
        every = self.writer.tried("", lambda: every_node(self.writer.api))
        if every is None:
            return
        self.seen = {seen.node.name: seen for seen in every}
        current = {
            name: health for name, health in healths.items() if name in self.seen and not self._is_recreated(name)
        }
        recreated = healths.keys() & self.seen.keys() - current.keys()
        self.is_open = bool(recreated)
        created_anew = "created anew since the run began: the next run evaluates it"
        self.lines += lines_by_message(dict.fromkeys(recreated, created_anew))
        if current and self.orders.is_resident:
            self.lines.extend(self._unconfined(self.seen[min(current)]))
        if current and self._write_conditions(current):
            taints = TaintWriter(self.writer, self.orders, self.seen, self.now)
            taints.write(current)
            self.lines.extend(taints.lines)
            self.is_pending |= taints.is_pending
        gone = healths.keys() - self.seen.keys() | self.writer.gone
        self.lines += lines_by_message(dict.fromkeys(gone, "not in Kubernetes any more"))

    def _unconfined(self, seen: GateNode) -> Iterator[str]:
        """Report if the server would let this account change more than its condition, or if that is unknown."""
        try:
            self.writer.api.patch(f"{seen.path}/status", trial_patch(seen), MERGE, dryRun="All")
        except KubernetesRefused:
            return
        except KubernetesError as problem:
            yield f"{UNTRIED}: {problem}"
        else:
            yield UNCONFINED

    def _is_recreated(self, name: str) -> bool:
        """Whether a node was created after the run began: then a different one was evaluated."""
        return self.seen[name].node.created > self.earlier.get(name, self.began)

    def _write_conditions(self, healths: Mapping[str, Health]) -> bool:
        """Write the conditions; returns whether to continue. A few go first: a missing permission affects all."""
        names = sorted(name for name in healths if not self._is_left(self.seen[name], healths[name]))
        changed: dict[str, bool] = {}
        for group in (names[:FEW], names[FEW:]):
            changed |= self.writer.each(lambda name: self._write_condition(name, healths[name]), group)
            if self.writer.is_denied and not changed:
                return False
        left = len(healths) - len(names)
        as_before = f"; {left} as before" if left else ""
        counts = Counter(healths[name].status for name in changed)
        counted = ", ".join(f"{counts[status]} {status}" for status in (TRUE, FALSE, UNKNOWN) if counts[status])
        self.lines.append(
            f"{CONDITION} of {len(changed)} of {len(names)} nodes: {counted or 'none'}; {sum(changed.values())} changed"
            + as_before
        )
        return True

    def _is_left(self, seen: GateNode, health: Health) -> bool:
        """Whether a condition stays: it is unchanged and recent, or its node may still report."""
        before = seen.node.condition(CONDITION)
        if before is None:
            return False
        if health.reason == NOT_REACHED:
            is_young = self._is_young(before, self.orders.patience_s)
            self.is_pending |= is_young and before.reason != NOT_REACHED
            return is_young
        is_same = (before.status, before.reason, before.message) == (health.status, health.reason, health.message)
        return is_same and self._is_young(before, self.orders.refresh_s)

    def _is_young(self, condition: Condition, seconds: float) -> bool:
        return moment(self.now - seconds) < condition.heard <= moment(self.now)

    def _write_condition(self, name: str, health: Health) -> bool:
        """Write a condition; returns whether it reports something new. Raises KubernetesError."""
        before = self.seen[name]
        path, patch = f"{before.path}/status", condition_patch(before, health, self.now)
        if not is_change(before, health):
            self.writer.api.patch_unread(path, patch, STRATEGIC)
            return False
        self.seen[name] = seen_of(self.writer.api.patch(path, patch, STRATEGIC))
        self.changes[name] = change(before, health)
        self.writer.create_event(verdict_event(before, health, self.now))
        return True


def remove(api: Api) -> WriteOutcome:
    """Remove them from every node of the cluster, whoever had it written and whenever; others' stay as they are."""
    writer = ObjectWriter(api)
    every = writer.tried("", lambda: {seen.node.name: seen for seen in every_node(api)})
    nodes = every or {}

    def clean(name: str) -> str:
        seen = nodes[name]
        removed = []
        if seen.node.condition(CONDITION):
            seen = seen_of(api.patch(f"{seen.path}/status", without_condition(seen), STRATEGIC))
            removed.append(f"lost the condition {CONDITION}")
        after = writer.changed(seen, without_ours)
        return "; ".join(filter(None, [*removed, difference(seen, after)]))

    lines = lines_by_message(writer.each(clean, [name for name, seen in nodes.items() if has_ours(seen)]))
    if every is not None and not (lines or writer.problems):
        lines.append(f"none of {len(nodes)} nodes has the condition {CONDITION} or a taint of clusterproof")
    return WriteOutcome(tuple(lines), tuple(writer.lines()))
