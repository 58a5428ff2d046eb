"""Lets a pod wait, before its own program starts, for a recent passing verdict on its node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import EXIT_FAILED, EXIT_INCOMPLETE
from clusterproof.plugins.kubernetes import FORBIDDEN
from clusterproof.plugins.kubernetes.api import READ_S, Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.gate import CONDITION, FALSE, TRUE, UNKNOWN, Health, bounded
from clusterproof.plugins.kubernetes.gate.objects import NODES, moment
from clusterproof.plugins.kubernetes.nodes import ApiNode, node_of

FRESH_S = 600.0  # two heartbeats of an idle gate
AHEAD_S = 3600.0  # maximum by which the gate's clock may be ahead
PATIENCE_S = 600.0
LAST_S = 5.0  # for an answer at least, even when patience ends
LOOK_S = 10.0  # between two requests of a waiting pod; a gate runs once a minute
STAT = Path("/proc/stat")  # of the host, even in a container
BOOTED = "btime "
NO_VERDICT, OLD_VERDICT, LATER_VERDICT, NO_ANSWER = "NoVerdict", "OldVerdict", "LaterVerdict", "NoAnswer"
EXITS = {TRUE: 0, FALSE: EXIT_FAILED, UNKNOWN: EXIT_INCOMPLETE}
RIGHT = "expected the right to get nodes (wait.namespaces of the chart)"


@record
class Wait:
    """What a pod waits for: a verdict on `node` from the last `fresh_s`, for at most so long."""

    node: str
    fresh_s: float = FRESH_S
    patience_s: float = PATIENCE_S


def booted_at(stat: str) -> float:
    """When the kernel started, in seconds since 1970, from /proc/stat; 0 if unknown."""
    says = next((line for line in stat.splitlines() if line.startswith(BOOTED)), "")
    digits = says.removeprefix(BOOTED).strip()
    return float(digits) if digits.isascii() and digits.isdecimal() else 0.0


def verdict_since(node: ApiNode, oldest: float, now: float) -> Health:
    """The node's condition; Unknown if it was last confirmed before `oldest` or long after `now`.

    Both in seconds since 1970.
    """
    condition = node.condition(CONDITION)
    if condition is None:
        return Health(UNKNOWN, NO_VERDICT, f"it has no condition {CONDITION}; expected a gate that evaluates it")
    if condition.heard < moment(oldest):
        message = (
            f"{CONDITION} is {condition.status} as of {condition.heard}; expected a verdict since {moment(oldest)}"
        )
        return Health(UNKNOWN, OLD_VERDICT, message)
    if condition.heard > moment(now + AHEAD_S):
        message = f"{CONDITION} is {condition.status} as of {condition.heard}, and it is {moment(now)} here"
        return Health(UNKNOWN, LATER_VERDICT, f"{message}; expected clocks that agree within {AHEAD_S:.0f} s")
    status = condition.status if condition.status in EXITS else UNKNOWN
    return Health(status, bounded(condition.reason), bounded(condition.message))


def waited(api: Api, order: Wait, say: Callable[[str], None], is_over: threading.Event) -> Health:
    """The verdict once it is True or False, or at the end of patience; prints what it waits for when that changes.

    Retries if the API server does not answer, or refuses the token, as it does while its authenticator is away.
    Raises KubernetesDenied if the permission is missing.
    """
    booted, until, reported = _booted(), time.monotonic() + order.patience_s, ""
    while True:
        within_s = max(LAST_S, min(READ_S, until - time.monotonic()))
        health = _looked(api, order.node, max(booted, time.time() - order.fresh_s), within_s)
        left_s = until - time.monotonic()
        if health.status in (TRUE, FALSE) or left_s <= 0 or is_over.is_set():
            return health
        if health.reason != reported:
            say(f"{order.node} is not proven yet: {health.message}")
            reported = health.reason
        is_over.wait(min(LOOK_S, left_s))


def _booted() -> float:
    try:
        return booted_at(STAT.read_text())
    except OSError:  # not Linux: a developer's machine, not the node
        return 0.0


def _looked(api: Api, name: str, oldest: float, within_s: float) -> Health:
    try:
        node = api.get_once(f"{NODES}/{name}", within_s, resourceVersion="0")
        return verdict_since(node_of(node, with_images=False), oldest, time.time())
    except KubernetesError as problem:
        if isinstance(problem, KubernetesDenied) and problem.status == FORBIDDEN:
            raise KubernetesDenied(f"{problem}; {RIGHT}", problem.status, problem.reason) from None
        return Health(UNKNOWN, NO_ANSWER, str(problem))


def outcome_text(order: Wait, health: Health) -> str:
    """The outcome in words."""
    if health.status == TRUE:
        return f"{order.node} is proven: {health.message}"
    if health.status == FALSE:
        return f"{order.node} is unfit: {health.reason}: {health.message}"
    return f"{order.node} is not proven after {order.patience_s:g} s: {health.reason}: {health.message}"
