"""Taints that the gate sets and removes.

Which nodes get and lose the taint is decided over all nodes together, within the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes import OURS
from clusterproof.plugins.kubernetes.collectors import k8s_pods
from clusterproof.plugins.kubernetes.gate import FALSE, NO_SCHEDULE, TRUE, UNFIT, GateSettings, Health
from clusterproof.plugins.kubernetes.gate.object_writer import MAX_NAMES, ObjectWriter, lines_by_message
from clusterproof.plugins.kubernetes.gate.objects import (
    TAINTS_CHANGED,
    GateNode,
    Patch,
    difference,
    event,
    with_taint,
    without_taints,
)
from clusterproof.plugins.kubernetes.nodes import ApiNode, Taint
from clusterproof.plugins.kubernetes.values import table

_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LIMIT = re.compile(r"([0-9]{1,6})(%?)")


class GateError(ClusterproofError):
    """An invalid setting of the gate; the one-line message says what was expected."""


def most_tainted(limit: str, nodes: int) -> int:
    """How many of so many nodes may be tainted by `5`, `10%` or `10%,10` (the smaller one); a share allows one.

    Raises GateError.
    """
    matches = [_LIMIT.fullmatch(part.strip()) for part in limit.split(",")]
    if not all(matches) or any(match and match[2] and int(match[1]) > 100 for match in matches):
        raise GateError(f"{limit[:40]!r} is not a number of nodes; expected a number, a share, or both: 10%,10")
    shares = ((int(match[1]), match[2]) for match in matches if match)
    return min(max(1, nodes * number // 100) if percent and number else number for number, percent in shares)


def own_key(key: str) -> str:
    """The key of a taint that the gate may remove. Raises GateError for one that is not this suite's own."""
    if not _KEY.fullmatch(key) or OURS not in key:
        raise GateError(
            f"{key[:80]!r} is not a taint of this suite; expected a key with {OURS} in it, as {OURS}.dev/unproven"
        )
    return key


def to_remove(node: ApiNode, health: Health, startup: str, is_tainting: bool) -> tuple[Taint, ...]:
    """The taints that a node loses by its verdict: our own, and its startup taint; only for a pass."""
    if health.status != TRUE:
        return ()
    return tuple(
        taint for taint in node.taints if (is_tainting and is_unfit(taint)) or (startup and taint.key == startup)
    )


def is_tainted(node: ApiNode) -> bool:
    """Whether it has our taint."""
    return any(map(is_unfit, node.taints))


def is_unfit(taint: Taint) -> bool:
    """Whether it is the taint that the gate sets."""
    return (taint.key, taint.effect) == (UNFIT, NO_SCHEDULE)


@record
class TaintPlan:
    """The nodes to taint, and why other failed nodes are not."""

    names: tuple[str, ...]
    why_not: str = ""


def to_taint(nodes: Iterable[ApiNode], healths: Mapping[str, Health], limit: str) -> TaintPlan:
    """The failed nodes without our taint, if the limit allows tainting all of them; else none.

    Failed nodes count together with those already tainted, also by other runs: if they exceed the limit, the cause is
    probably not that many broken nodes. Raises GateError.
    """
    nodes = list(nodes)
    failed = {node.name for node in nodes if node.name in healths and healths[node.name].status == FALSE}
    tainted = {node.name for node in nodes if is_tainted(node)}
    most = most_tainted(limit, len(healths))
    if len(failed | tainted) > most and failed - tainted:
        already = f" ({len(tainted)} already)" if tainted else ""
        return TaintPlan(
            (),
            f"no node is tainted: {len(failed | tainted)} of {len(healths)} nodes would be{already}; expected at most "
            f"{most}: see first whether one thing is wrong with all of them",
        )
    return TaintPlan(tuple(sorted(failed - tainted)))


def without_busy(plan: TaintPlan, busy: Collection[str]) -> TaintPlan:
    """The plan without nodes whose accelerators are in use by pods, whose replacement a taint would hinder."""
    left = [name for name in plan.names if name in busy]
    reason = f"not tainted while pods have their accelerators: {_names(left)}" if left else ""
    return TaintPlan(tuple(name for name in plan.names if name not in busy), reason)


def _names(names: Sequence[str]) -> str:
    folded = fold(names)
    return folded if len(folded) <= MAX_NAMES else f"{len(names)} nodes"


class TaintWriter:
    """A run's changes of taints. `seen` are all nodes of the cluster, kept up to date."""

    def __init__(self, writer: ObjectWriter, orders: GateSettings, seen: dict[str, GateNode], now: float) -> None:
        self.writer = writer
        self.orders = orders
        self.seen = seen
        self.now = now
        self.lines: list[str] = []
        self.is_pending = False  # whether a taint that is due remains to be set

    def write(self, healths: Mapping[str, Health]) -> None:
        """Remove taints from nodes that pass, and set them on those that failed, if requested."""
        self._remove(healths)
        if self.orders.is_tainting:
            self._add(healths)
        else:
            message = f"the taint {UNFIT} stays, as only --k8s-gate taint takes it away"
            tainted = [name for name, seen in self.seen.items() if is_tainted(seen.node)]
            self.lines += lines_by_message(dict.fromkeys(tainted, message))

    def _remove(self, healths: Mapping[str, Health]) -> None:
        def patch_of(seen: GateNode) -> Patch:
            health = healths[seen.node.name]
            taints = to_remove(seen.node, health, self.orders.startup, self.orders.is_tainting)
            return without_taints(seen, taints) if taints else {}

        self._change([name for name in sorted(healths) if patch_of(self.seen[name])], patch_of, healths)

    def _add(self, healths: Mapping[str, Health]) -> None:
        plan = to_taint((seen.node for seen in self.seen.values()), healths, self.orders.limit)
        if plan.names:
            pods = self.writer.tried("", lambda: table(k8s_pods.read(self.writer.api, frozenset(plan.names))))
            plan = _without_busy(plan, pods)
        self.lines.extend(filter(None, [plan.why_not]))
        self.is_pending |= bool(plan.why_not)

        def patch_of(seen: GateNode) -> Patch:
            return {} if is_tainted(seen.node) else with_taint(seen, UNFIT, NO_SCHEDULE)

        self._change(plan.names, patch_of, healths)

    def _change(
        self, names: Sequence[str], patch_of: Callable[[GateNode], Patch], healths: Mapping[str, Health]
    ) -> None:
        """Change the taints of these nodes, with an event and a log message for each."""

        def changed(name: str) -> str:
            before = self.seen[name]
            self.seen[name] = self.writer.changed(before, patch_of)
            change, health = difference(before, self.seen[name]), healths[name]
            if change:
                message = f"{change}: {health.message}"
                self.writer.create_event(event(before, health.status == FALSE, TAINTS_CHANGED, message, self.now))
            return change

        self.lines += lines_by_message(self.writer.each(changed, names))


def _without_busy(plan: TaintPlan, resource: Mapping[str, Any] | None) -> TaintPlan:
    """The plan without nodes whose accelerators are in use by pods; empty if that is unknown."""
    if resource is None or resource["is_cut"]:
        return TaintPlan((), "no node is tainted: it is not known whose accelerators pods have")
    return without_busy(plan, {pod["node"] for pod in resource["pods"] if pod["accelerators"] or pod["claims"]})
