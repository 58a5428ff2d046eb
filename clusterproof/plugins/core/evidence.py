"""What a node answered: the raw results of the probe's collectors, and their form on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.typed import Any

SCHEMA = 2
MAX_WAITS = 64
TOO_LONG_S = 1e11
TOO_LONG = "the answer is longer than its connection carries"


class Status(str, Enum):
    """How a collector ended."""

    READ = "read"
    ABSENT = "absent"  # what the collector reads does not exist on this node: a library, a tool
    DENIED = "denied"  # it exists, and this user may not read it
    BROKE = "broke"  # the collector crashed, or the tool failed without a usable answer
    TIMED_OUT = "timed_out"  # killed at its deadline
    STUCK = "stuck"  # not even killed: in uninterruptible sleep (D), abandoned
    NOT_ASKED = "not_asked"  # not requested by this run, or by the older run that was recorded
    CUT = "cut"  # it sent more than its connection carries; or its part was behind the point where the answer was cut
    UNCOLLECTED = "uncollected"  # a capture by hand that has no file with it; the detail says what to collect


class Unreached(str, Enum):
    """Why a node sent no evidence."""

    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    NAME = "name"  # the name does not resolve, or what ssh_config says of it is invalid
    NO_ROUTE = "no_route"
    HOST_KEY = "host_key"
    AUTH = "auth"
    THROTTLED = "throttled"
    NOT_CONNECTED = "not_connected"  # to Systems Manager, through which it is reached
    BUSY = "busy"  # Slurm could not allocate it
    DRAINED = "drained"  # Slurm starts no jobs on it
    DOWN = "down"  # Slurm believes that it is gone
    NOT_READY = "not_ready"  # Kubernetes reports its kubelet as not ready
    NOT_STARTED = "not_started"  # the pod did not start within the kubelet's time
    NO_IMAGE = "no_image"  # the pod's image could not be pulled
    NO_LOG = "no_log"  # the pod ran, but its log could not be read
    REMOVED = "removed"  # the pod was deleted by somebody else
    API = "api"  # the API of Kubernetes or AWS refused, or did not answer
    NO_CONTAINER = "no_container"  # the command that starts the container did not return the probe's answer
    NO_PYTHON = "no_python"
    GARBLED = "garbled"  # it answered, but not with the probe's frame
    CUT = "cut"  # the frame began and did not end
    LOST = "lost"  # the connection broke, or the run was stopped
    UNRECORDED = "unrecorded"  # the recording has nothing readable about the node


class EvidenceError(ClusterproofError, ValueError):
    """Evidence in an invalid format; the message says where."""


@record
class Collected:
    """One collector's answer. `value` is JSON as sent by the node, and is not trusted."""

    status: Status
    value: Any = None
    detail: str = ""
    seconds: float = 0.0
    waits: tuple[str, ...] = ()  # if stuck: the kernel functions that its process is in, innermost first
    starved: bool = False  # it was runnable for most of its time but got no CPU
    too_long: bool = False  # cut because the answer exceeded what Systems Manager shows; nothing else has a limit


@record
class NodeEvidence:
    """Everything that one node sent in one run, or why it sent nothing."""

    node: str
    collectors: Mapping[str, Collected] = field(default_factory=dict)
    unreached: Unreached | None = None
    detail: str = ""
    seconds: float = 0.0
    probe: Mapping[str, Any] = field(default_factory=dict)  # about the probe: Python, user, start, seconds
    asked: float = 0.0  # when it was requested, in seconds since 1970 by the requester's clock; 0: unknown
    answered: float = 0.0
    too_long: bool = False  # as in Collected, if nothing was received; kept until the parts are joined


def to_json(evidence: NodeEvidence) -> dict[str, Any]:
    """The evidence as a JSON object, the form of a recording's `nodes/<name>.json`."""
    return {
        "schema": SCHEMA,
        "node": evidence.node,
        "unreached": evidence.unreached.value if evidence.unreached else None,
        "detail": evidence.detail,
        "seconds": round(evidence.seconds, 4),
        "asked": round(evidence.asked, 3),
        "answered": round(evidence.answered, 3),
        "probe": dict(evidence.probe),
        "collectors": {name: _collector_to_json(collector) for name, collector in evidence.collectors.items()},
    }


def from_json(value: object) -> NodeEvidence:
    """Decode `to_json`'s form strictly. Raises EvidenceError."""
    record = _mapping(value, "evidence")
    if record.get("schema") == 1:
        record = _from_schema_1(record)
    elif record.get("schema") != SCHEMA:
        raise EvidenceError(f"schema is {record.get('schema')!r}; expected 1 or {SCHEMA}")
    unreached = record.get("unreached")
    return NodeEvidence(
        node=_text(record.get("node"), "node"),
        collectors=collectors_from_json(record.get("collectors")),
        unreached=None if unreached is None else _member(Unreached, unreached, "unreached"),
        detail=_text(record.get("detail", ""), "detail"),
        seconds=_seconds(record.get("seconds", 0.0), "seconds"),
        probe=_mapping(record.get("probe", {}), "probe"),
        asked=_seconds(record.get("asked", 0.0), "asked"),
        answered=_seconds(record.get("answered", 0.0), "answered"),
    )


def collectors_from_json(value: object) -> dict[str, Collected]:
    """Decode the collectors of a probe's answer. Raises EvidenceError."""
    return {
        _text(name, "collector name"): _collector(name, collector)
        for name, collector in _mapping(value, "collectors").items()
    }


def load(text: str | bytes) -> NodeEvidence:
    """Decode one recorded node. Raises EvidenceError."""
    try:
        return from_json(json.loads(text))
    except (ValueError, RecursionError) as problem:
        raise EvidenceError(f"not a node's evidence: {problem}") from problem


def _from_schema_1(record: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a record in which collectors are called `leaves`, and a collector that was read `told`."""
    collectors = {
        name: {**collector, "status": "read"}
        if isinstance(collector, dict) and collector.get("status") == "told"
        else collector
        for name, collector in _mapping(record.get("leaves"), "leaves").items()
    }
    return {**record, "collectors": collectors}


def _collector(name: str, value: object) -> Collected:
    record = _mapping(value, f"collector {name}")
    status = _member(Status, record.get("status"), f"collector {name} status")
    detail = _text(record.get("detail", ""), f"collector {name} detail")
    too_long = status is Status.CUT and _is_too_long(record, detail)
    return Collected(
        status=status,
        value=record.get("value"),
        detail=detail or (TOO_LONG if too_long else ""),
        too_long=too_long,
        seconds=_seconds(record.get("seconds", 0.0), f"collector {name} seconds"),
        starved=record.get("starved") is True,
        waits=_texts(record.get("waits", []), f"collector {name} waits"),
    )


def _is_too_long(record: Mapping[str, Any], detail: str) -> bool:
    """Whether a collector was cut because it was too long; older recordings only say so in the detail's text."""
    if "too_long" in record:
        return record["too_long"] is True
    return any(phrase in detail for phrase in ("longer than its connection carries", "that SSM shows"))


def _collector_to_json(collector: Collected) -> dict[str, Any]:
    record: dict[str, Any] = {"status": collector.status.value, "seconds": round(collector.seconds, 4)}
    if collector.detail:
        record["detail"] = collector.detail
    if collector.status is Status.CUT:
        record["too_long"] = collector.too_long
    if collector.starved:
        record["starved"] = True
    if collector.waits:
        record["waits"] = list(collector.waits)
    if collector.value is not None:
        record["value"] = collector.value
    return record


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EvidenceError(f"{where} is a {type(value).__name__}; expected an object")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise EvidenceError(f"{where} is a {type(value).__name__}; expected text")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_WAITS:
        raise EvidenceError(f"{where} is {value!r:.60}; expected a short list")
    return tuple(_text(entry, where) for entry in value)


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise EvidenceError(f"{where} is a {type(value).__name__}; expected a number")
    if not 0 <= value < TOO_LONG_S:
        raise EvidenceError(f"{where} is {value!r:.30}; expected seconds")
    return float(value)


def _member(kind: type[Any], value: object, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise EvidenceError(f"{where} is {value!r:.60}; expected one of {known}") from None
