"""Which nodes get our taint and which lose it: decided over all nodes together, and never more than are allowed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes.gate import NO_SCHEDULE, OURS, UNFIT
from clusterproof.plugins.kubernetes.gate.health import FALSE, TRUE, Health
from clusterproof.plugins.kubernetes.nodes import KubernetesNode, Taint

MAX_NAMES = 200  # characters of names in a line
_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LIMIT = re.compile(r"([0-9]{1,6})(%?)")


class GateError(ClusterproofError):
    """What the gate is asked for is invalid; one line that says what was expected."""


def most_tainted(limit: str, nodes: int) -> int:
    """How many of so many nodes may be tainted by `5`, `10%` or `10%,10`, the least of them; a share allows for one.

    Raises GateError.
    """
    found = [_LIMIT.fullmatch(part.strip()) for part in limit.split(",")]
    if not all(found) or any(one and one[2] and int(one[1]) > 100 for one in found):
        raise GateError(f"{limit[:40]!r} is not a number of nodes; expected a number, a share, or both: 10%,10")
    shares = ((int(one[1]), one[2]) for one in found if one)
    return min(max(1, nodes * number // 100) if percent and number else number for number, percent in shares)


def own_key(key: str) -> str:
    """The key of a taint that the gate may take away. Raises GateError for one that is not this suite's own."""
    if not _KEY.fullmatch(key) or OURS not in key:
        raise GateError(
            f"{key[:80]!r} is not a taint of this suite; expected a key with {OURS} in it, as {OURS}.dev/unproven"
        )
    return key


def to_remove(node: KubernetesNode, health: Health, startup: str, is_tainting: bool) -> tuple[Taint, ...]:
    """The taints that a node loses by what was found: our own, and the one it began with; only a pass does it."""
    if health.status != TRUE:
        return ()
    return tuple(one for one in node.taints if (is_tainting and is_unfit(one)) or (startup and one.key == startup))


def is_tainted(node: KubernetesNode) -> bool:
    """Whether it has our taint."""
    return any(map(is_unfit, node.taints))


def is_unfit(taint: Taint) -> bool:
    """Whether it is the one that the gate gives."""
    return (taint.key, taint.effect) == (UNFIT, NO_SCHEDULE)


@record
class Plan:
    """The nodes to taint, and why others that failed are not."""

    names: tuple[str, ...]
    why_not: str = ""


def to_taint(nodes: Iterable[KubernetesNode], healths: Mapping[str, Health], limit: str) -> Plan:
    """The nodes that get our taint, as far as the limit goes: all that failed and have none yet, or none at all.

    Those that failed count together with those that have it already, also of other runs: where they are more than are
    allowed, the cause is something else than so many nodes. Raises GateError.
    """
    nodes = list(nodes)
    failed = {node.name for node in nodes if node.name in healths and healths[node.name].status == FALSE}
    tainted = {node.name for node in nodes if is_tainted(node)}
    most = most_tainted(limit, len(healths))
    if len(failed | tainted) > most and failed - tainted:
        already = f" ({len(tainted)} already)" if tainted else ""
        return Plan(
            (),
            f"no node is tainted: {len(failed | tainted)} of {len(healths)} nodes would be{already}; expected at most "
            f"{most}: see first whether one thing is wrong with all of them",
        )
    return Plan(tuple(sorted(failed - tainted)))


def spared(plan: Plan, busy: Collection[str]) -> Plan:
    """The same without nodes whose accelerators pods have: a taint there would hinder their replacement."""
    left = [name for name in plan.names if name in busy]
    words = f"not tainted while pods have their accelerators: {_names(left)}" if left else ""
    return Plan(tuple(name for name in plan.names if name not in busy), words)


def _names(names: Sequence[str]) -> str:
    folded = fold(names)
    return folded if len(folded) <= MAX_NAMES else f"{len(names)} nodes"
