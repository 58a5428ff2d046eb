"""Parses `kubectl describe node`, into the form of the collector `k8s_nodes`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from clusterproof.plugins.catalog.kubernetes import bad_status
from clusterproof.plugins.evidence.kernel_log.parse_journal import EXPORTED
from clusterproof.plugins.evidence.kubernetes.facts import NODES
from clusterproof.plugins.evidence.parsing import CaptureError, Form
from clusterproof.plugins.kubernetes.collectors.k8s_nodes import entry
from clusterproof.plugins.kubernetes.nodes import node_of

MAX_NODES = 4_096
FIRST_YEAR = 1970  # an unset time has the year 1
MAX_LINES = 5_000  # of one node; its pods and events are hundreds
MAX_BEFORE = 5  # lines above the first node: after more, a user's output may imitate one
DESCRIBED = re.compile(r"^Name:[ \t]{1,60}([A-Za-z0-9][\w.-]{0,252})\nRoles?:", re.MULTILINE | re.ASCII)
KUBELETS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

_KEY = re.compile(r"([A-Z][A-Za-z ()-]{1,40}):(.*)")
_VALUE = re.compile(r"\s{1,60}([\w ./-]{1,300}?):\s{0,200}(.{0,1000})")
_TIME = r"(?:[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|<[a-z]{1,20}>)"
_TIMES = re.compile(_TIME)
_CONDITION = re.compile(
    rf"\s{{1,60}}(\S{{1,253}})\s{{1,80}}(True|False|Unknown)\s{{1,80}}({_TIME})\s{{1,80}}({_TIME})"
    r"(?:\s{1,80}(\S{1,300}))?(?:\s{1,200}(\S.{0,1000}))?"
)
_EVENTS, _OF_EVENTS = "Events:", re.compile(r"  (?:Type|FirstSeen)\b")
_TITLES = re.compile(r"\s{1,60}(?:Type|----)\s")
_TAINT = re.compile(r"([^\s=:]{1,317})(?:=([^\s=:]{0,63}))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_INFO = {
    "Kernel Version": "kernelVersion",
    "OS Image": "osImage",
    "Operating System": "operatingSystem",
    "Architecture": "architecture",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kubelet Version": "kubeletVersion",
}


def is_described(text: str) -> bool:
    """Whether this is output of `kubectl describe node`."""
    return bool(DESCRIBED.search(text) and nodes_in(text.split("\n")))


def begins_events(line: str, below: str) -> bool:
    """Whether events begin here. Whoever may create one may give it a text of several lines."""
    return line == _EVENTS and bool(_OF_EVENTS.match(below))


def nodes_in(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each node in one output, up to MAX_NODES plus one.

    What looks like a node after events, or in an exported journal, may be users' text.
    """
    by_node: dict[str, list[str]] = {}
    name, before, is_of_users = "", 0, False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        is_of_users = is_of_users or begins_events(line, below) or line.startswith(EXPORTED)
        match = DESCRIBED.match(f"{line}\n{below}") if line.startswith("Name:") and not is_of_users else None
        if match and len(by_node) > MAX_NODES:
            break
        if match:
            name = match[1]
            by_node[name] = []
        if name:
            by_node[name].append(line)
        elif before >= MAX_BEFORE or is_of_users:
            break
        before += bool(line)
    return by_node


def read(text: str) -> Mapping[str, object]:
    """Parse each node into the form of the collector `k8s_nodes`, as far as possible. Raises CaptureError."""
    nodes = [_node(name, lines) for name, lines in nodes_in(text.split("\n")).items()]
    if not nodes:
        raise CaptureError("kubectl describe names no node")
    return {NODES: {"asked_at": max(node["asked_at"] for node in nodes), "nodes": nodes}}


def has_more(text: str) -> bool:
    """Whether anything but events follows the events of a node or another object."""
    lines = text.split("\n") if f"\n{_EVENTS}\n" in text else []
    below = itertools.dropwhile(lambda number: not begins_events(*lines[number : number + 2]), range(len(lines) - 1))
    return any(lines[number][:1].strip() for number in itertools.islice(below, 1, None))


def refuse(_text: str) -> Mapping[str, object]:
    """Raises CaptureError."""
    raise CaptureError("what stands behind events may be anybody's words; expected --show-events=false")


def _node(name: str, lines: Sequence[str]) -> dict[str, Any]:
    """Parse a node. Leaves out what may be cut: its last part, and healthy conditions if some conditions are
    unreadable.
    """
    shown = _by_key(lines[:MAX_LINES])
    last = next(reversed(shown), "")
    rows = [line for line in shown.get("Conditions", _without_heading(shown)) if line and not _TITLES.match(line)]
    conditions = [condition for condition in map(_condition, rows) if condition]
    times = [
        *(_utc(time) for line in shown.get("Lease", ()) for time in _TIMES.findall(line)),
        *(condition[time] for condition in conditions for time in ("lastHeartbeatTime", "lastTransitionTime")),
    ]
    if last in ("", "Conditions") or "Conditions" not in shown or len(conditions) < len(rows):
        conditions = [condition for condition in conditions if is_bad(condition)]
    described: dict[str, Any] = {
        "metadata": {
            "name": name,
            "labels": dict(word.split("=", 1) for word in _terms(shown, "Labels") if "=" in word),
            "creationTimestamp": next((_utc(word) for word in shown.get("CreationTimestamp", ())), ""),
        },
        "spec": {
            "taints": [
                {"key": match[1], "value": match[2] or "", "effect": match[3]}
                for match in map(_TAINT.fullmatch, _terms(shown, "Taints"))
                if match
            ],
            "unschedulable": _terms(shown, "Unschedulable") == ["true"],
            "providerID": "".join(_terms(shown, "ProviderID")),
        },
        "status": {
            "conditions": conditions,
            "capacity": _values(shown, "Capacity"),
            "allocatable": _values(shown, "Allocatable"),
            "nodeInfo": {_INFO[key]: value for key, value in _values(shown, "System Info").items() if key in _INFO},
        },
    }
    whole = shown.keys() - {last}
    node = {**entry(node_of(described)), "asked_at": seconds(max(times, default=""))}
    needed = {"capacity": "Capacity", "allocatable": "Allocatable", "cordoned": "Unschedulable", "taints": "Taints"}
    return {key: value for key, value in node.items() if needed.get(key, "") in ("", *whole)}


def _by_key(lines: Iterable[str]) -> dict[str, list[str]]:
    """The lines below each unindented key, beginning with the rest of its own line."""
    shown: dict[str, list[str]] = {}
    below: list[str] = []
    for line in lines:
        if line == _EVENTS:
            break
        if match := _KEY.fullmatch(line):
            below = shown.setdefault(match[1], [])
            below.append(match[2].strip())
        elif line[:1].isspace():
            below.append(line)
    return shown


def _without_heading(shown: Mapping[str, list[str]]) -> list[str]:
    """The conditions of a node whose line `Conditions:` was cut out; annotations and pods are not read."""
    return [
        line
        for key, below in shown.items()
        if key not in ("Annotations", "Non-terminated Pods")
        for line in below[1:]
        if _CONDITION.fullmatch(line)
    ]


def _terms(shown: Mapping[str, list[str]], key: str) -> list[str]:
    """What follows a key and stands below it, one item per line; empty for `<none>`."""
    return [word for line in shown.get(key, ()) if (word := line.strip()) and not word.startswith("<")]


def _values(shown: Mapping[str, list[str]], key: str) -> dict[str, str]:
    matches = map(_VALUE.fullmatch, shown.get(key, ()))
    return {match[1].strip(): match[2].strip() for match in matches if match}


def _condition(line: str) -> dict[str, str] | None:
    match = _CONDITION.fullmatch(line)
    if not match:
        return None
    kind, status, heard, since, reason, message = match.groups(default="")
    times = {"lastHeartbeatTime": _utc(heard), "lastTransitionTime": _utc(since)}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def is_bad(condition: Mapping[str, str]) -> bool:
    """Whether a condition reports a problem."""
    kind, status = condition["type"], condition["status"]
    if kind == "Ready":
        return status != "True"
    return status == ("True" if kind in KUBELETS else bad_status(kind))


def _utc(time: str) -> str:
    """A time in the API's format; empty if invalid, or never set."""
    try:
        moment = datetime.strptime(time, "%a, %d %b %Y %H:%M:%S %z").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment.year >= FIRST_YEAR else ""


def seconds(time: str) -> float:
    """Seconds since 1970; 0 if invalid."""
    return datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp() if time else 0.0


FORMS = (Form("kubectl describe node", is_described, read), Form("kubectl describe node", has_more, refuse))
