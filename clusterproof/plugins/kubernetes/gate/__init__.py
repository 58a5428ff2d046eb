"""The Kubernetes gate: writes verdicts as a condition of each node and, if asked, one taint.

Besides its own pods, this is all that the suite ever writes to a cluster, and only with `--k8s-gate`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.result import ACTIONS, UNREACHABLE, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict

CONDITION = "ClusterproofHealthy"
DOMAIN = "clusterproof.dev"
UNFIT = f"{DOMAIN}/unfit"  # the key of our taint
NO_SCHEDULE = "NoSchedule"  # its effect: running pods stay

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
PASSED, INCOMPLETE, NOT_REACHED, NOTHING = "ChecksPassed", "Incomplete", "NotReached", "NothingChecked"
BROKE = "RunBroke"
OF_API = (Unreached.API, Unreached.THROTTLED)
OF_KUBERNETES = "k8s_node"  # the subject of what Kubernetes itself reports about a node, and already knows
MAX_MESSAGE = 240  # characters; `kubectl describe node` shows them in one column
MAX_REASON = 128

OBSERVE, TAINT = "observe", "taint"
LIMIT = "10%,10"  # as for Slurm's health check
REFRESH_S = 300.0  # the interval at which kubelets write unchanged conditions
LATE = 3  # reports that may be missing


@record
class GateSettings:
    """The settings of a gate: `limit` as `10%,10`; `startup` is the key of the taint that new nodes start with."""

    mode: str = OBSERVE
    limit: str = LIMIT
    startup: str = ""
    refresh_s: float = 0.0  # an unchanged condition is rewritten after so long; 0: by each run
    patience_s: float = 0.0  # after so long without a report a node becomes Unknown; until then it is unchanged

    @property
    def is_resident(self) -> bool:
        """Whether the gate runs permanently in a cluster, with its own account."""
        return bool(self.refresh_s)

    @property
    def is_tainting(self) -> bool:
        """Whether to set and remove our taint on nodes."""
        return self.mode == TAINT


def resident(orders: GateSettings, every_s: float) -> GateSettings:
    """The same for a gate that looks again each `every_s`: few writes, and no change for one report that is late."""
    return replace(orders, refresh_s=REFRESH_S, patience_s=REFRESH_S + LATE * every_s)


@record
class Health:
    """A node's verdict: `status` is True, False or Unknown, `reason` one CamelCase word."""

    status: str
    reason: str
    message: str


def healths(results: Sequence[Result], is_whole: bool = True) -> Mapping[str, Health]:
    """The health of each node in these results, except those in `unvisited`.

    If the run is incomplete because some check broke, nothing in it proves a node healthy.
    """
    by_node: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.is_of_node and result.subject != OF_KUBERNETES:
            by_node[result.node].append(result)
    left_out = unvisited(results)
    health_by_node = {node: health_of(own) for node, own in by_node.items() if node not in left_out}
    return health_by_node if is_whole else {node: _unproven(health) for node, health in health_by_node.items()}


def unvisited(results: Sequence[Result]) -> Mapping[str, str]:
    """The nodes that were not asked because the API server refused, throttled or did not answer, and its message.

    That says nothing about them: such a node's earlier verdict stays, and ages. The same applies if the logs of most
    nodes cannot be read: then the connection from the control plane to kubelets has failed.
    """
    unread_by_api = [result for result in results if result.unreached in OF_API]
    unread_by_api.sort(key=lambda result: result.reports_unreachable)
    why = {result.node: bounded(result.message or result.cause.removeprefix(UNREACHABLE)) for result in unread_by_api}
    nodes = {result.node for result in results if result.is_of_node}
    unread = {result.node for result in results if result.unreached is Unreached.NO_LOG}
    if len(unread) > max(1, len(nodes) // 2):
        message = f"the control plane cannot read the logs of {len(unread)} of {len(nodes)} nodes"
        why.update(dict.fromkeys(unread, f"{message}; expected a way from it to port 10250 of each"))
    return why


def health_of(results: Sequence[Result]) -> Health:
    """The health of a node from all of its results.

    A failure makes it False; if it was not reached, or anything is incomplete, it is Unknown, and never False.
    """
    unreachable = [result for result in results if result.is_of_unreachable]
    if unreachable:
        chosen = next((result for result in unreachable if result.reports_unreachable), unreachable[0])
        message = chosen.message or chosen.cause.removeprefix(UNREACHABLE)
        return Health(UNKNOWN, NOT_REACHED, bounded(message))
    findings = (result for of_check in results for result in of_check.by_verdict if result.verdict.is_finding)
    gravest = sorted(findings, key=_gravity)
    if gravest and gravest[0].verdict is Verdict.FAIL:
        return Health(FALSE, reason_of(gravest[0].check), _message(gravest))
    if gravest and gravest[0].verdict is Verdict.INCOMPLETE:
        return Health(UNKNOWN, INCOMPLETE, _message(gravest))
    proven = [result for result in results if result.verdict in PROVEN]
    if not proven:
        return Health(UNKNOWN, NOTHING, "no check applies to it; expected at least one that passes")
    message = f"{len(proven)} checks found no fault"
    names = list(dict.fromkeys(result.check for result in gravest))
    return Health(TRUE, PASSED, message + _names_within(names, "; concerns: ", MAX_MESSAGE - len(message)))


def reason_of(check: str) -> str:
    """`gpu.no_xid` as `GpuNoXid`."""
    parts = "".join(char if char.isascii() and char.isalnum() else " " for char in check).split()
    camel = "".join(word[0].upper() + word[1:] for word in parts)
    return camel[:MAX_REASON] if camel[:1].isalpha() else f"Check{camel}"[:MAX_REASON]


def bounded(text: str) -> str:
    """At most 240 characters of a text, on one line that is safe on any terminal."""
    line = printable(" ".join(text[: 4 * MAX_MESSAGE].split()), 4 * MAX_MESSAGE)
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def _message(results: Sequence[Result]) -> str:
    """`gpu.gpu_count: NVML counts 7 GPUs; expected 8; also gpu.no_xid`: the other names always fit."""
    first, *others = results
    names = list(dict.fromkeys(other.check for other in others if other.check != first.check))
    more = _names_within(names, "; also ", MAX_MESSAGE // 3)
    evidence = bounded(f"{first.check}: {first.message}")
    most = MAX_MESSAGE - len(more)
    return (evidence if len(evidence) <= most else f"{evidence[: most - 1]}…") + more


def _names_within(names: Sequence[str], begin: str, most: int) -> str:
    """`; also gpu.no_xid and 3 more`: the first of these names in so many characters, and how many more there are."""
    words = ""
    for count in range(len(names), -1, -1):
        left = f" and {len(names) - count} more" if count < len(names) else ""
        words = f"{begin}{', '.join(names[:count])}{left}" if count else f";{left}" if left else ""
        if len(words) <= most:
            break
    return words


def _gravity(result: Result) -> tuple[int, int, str]:
    """A sort key: the worst first, then failures by severity of action; stable for equal findings."""
    action = ACTIONS.index(result.action) if result.action in ACTIONS else len(ACTIONS)
    return result.verdict.rank, action, result.check


def _unproven(health: Health) -> Health:
    if health.status != TRUE:
        return health
    return replace(
        health, status=UNKNOWN, reason=BROKE, message="a test of the run broke; expected a run that is whole"
    )
