"""What Kubernetes reports about a job: pods, its own object and events, in the format of `kubectl get -o json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from clusterproof.plugins.case import Event, Job, Span, label, one_line
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.scheduler import SUCCEEDED
from clusterproof.plugins.catalog.causes import sign_of
from clusterproof.plugins.kubernetes.values import tables

MAX_ITEMS = 20_000
JOBS = ("Job", "JobSet", "PyTorchJob", "MPIJob", "TrainJob", "HyperPodPyTorchJob")  # kinds that create pods
KINDS = ("Pod", *JOBS, "Event", "List", "PodList", "EventList", *(f"{kind}List" for kind in JOBS))
BADLY = ("Failed",)  # conditions of a finished object that did not succeed
END_CONDITIONS = ("DisruptionTarget", "TerminationTarget", "Failed")  # the reason a pod ended; the second is Kueue's
NOT_STARTED = ("StartError", "ContainerCannotRun")  # reasons of a container
MAX_DEPTH = 2  # nesting depth of lists
_TOLD = re.compile(
    r"(?m)^(?:Name: {2,40}\S{1,253}\n(?:Priority|Namespace): "
    r"|(?:NAMESPACE {1,253})?(?:NAME {1,253}READY {1,9}STATUS|LAST SEEN {1,40}TYPE {1,40}REASON))"
)


def is_told_by_kubectl(text: str) -> bool:
    """Whether a text has tables or descriptions of kubectl, which are for people."""
    return bool(_TOLD.search(text))


def objects(text: str) -> list[Mapping[str, Any]]:
    """The objects in a file, one more than MAX_ITEMS if it has more; empty if it is no such file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(islice(_flat(document, 0), MAX_ITEMS + 1))


def _flat(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, dict) or depth > MAX_DEPTH or value.get("kind") not in KINDS:
        return
    items = value.get("items")
    if isinstance(items, list):
        for item in items[: MAX_ITEMS + 1]:
            kind = str(value["kind"]).removesuffix("List")
            yield from _flat({"kind": kind, **item} if isinstance(item, dict) else item, depth + 1)
    else:
        yield value


def read(resource: Mapping[str, Any], source: str, clock: Clock) -> Iterator[Event]:
    """What an object reports about the end of a job."""
    if resource.get("kind") == "Event":
        about = _text(_of(resource, "involvedObject", "name"))
        when = clock.of(_text(resource.get("lastTimestamp") or resource.get("eventTime")))
        node = _text(_of(resource, "source", "host"))
        yield from _event(
            f"{_text(resource.get('reason'))}: {about}: {_text(resource.get('message'))}", source, when, node
        )
        return
    name, node = _text(_of(resource, "metadata", "name")), _text(_of(resource, "spec", "nodeName"))
    status = resource.get("status")
    if not isinstance(status, dict):
        return
    reason = f"{_text(status.get('reason'))} {_text(status.get('message'))}".strip()
    if reason:
        yield from _event(f"pod {name}: {reason}", source, Span(), node)
    for condition in tables(status.get("conditions")):
        if condition.get("type") in END_CONDITIONS and condition.get("status") == "True":
            message = f"{name}: {_text(condition.get('reason'))}: {_text(condition.get('message'))}"
            yield from _event(message, source, clock.of(_text(condition.get("lastTransitionTime"))), node)
    for container in (*tables(status.get("containerStatuses")), *tables(status.get("initContainerStatuses"))):
        waits = _of(container, "state", "waiting")
        if isinstance(waits, dict):
            message = f"pod {name}: {_text(waits.get('reason'))}: {_text(waits.get('message'))}"
            yield from _event(message, source, Span(), node)
        for ended in _ends(container):
            yield from _event(_end_of(name, ended), source, clock.of(_text(ended.get("finishedAt"))), node)


def _end_of(pod: str, ended: Mapping[str, Any]) -> str:
    """How a container ended; the message is its runtime's if it never started, else the container's own."""
    reason = _text(ended.get("reason"))
    message = f": {_text(ended.get('message'))}" if reason in NOT_STARTED else ""
    return f"pod {pod}: {reason}, exit code {_text(ended.get('exitCode'))}{message}"


def containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A pod's containers; where none has begun, also those that failed of the ones that run before them."""
    own = tables(_of(pod, "status", "containerStatuses"))
    if not any(_of(entry, "state", "running") is not None or any(_ends(entry)) for entry in own):
        for container in tables(_of(pod, "status", "initContainerStatuses")):
            if any(ended.get("exitCode") for ended in _ends(container)):
                yield container
    yield from own


def ends(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """How each of these ended, now and before."""
    return (ended for container in containers(pod) for ended in _ends(container))


def _ends(container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for state in ("lastState", "state"):
        ended = _of(container, state, "terminated")
        if isinstance(ended, dict):
            yield ended


def job_of(resource: Mapping[str, Any], clock: Clock) -> Job | None:
    """How an object's job ended, and when it ran; None if it is no job. A running one has no state."""
    status = resource.get("status")
    if resource.get("kind") not in JOBS or not isinstance(status, dict):
        return None
    over = [condition for condition in tables(status.get("conditions")) if condition.get("status") == "True"]
    end = next((condition for condition in over if condition.get("type") in (*SUCCEEDED, *BADLY)), {})
    ended = clock.of(_text(status.get("completionTime") or end.get("lastTransitionTime"))).ends if end else None
    name = "/".join(_text(_of(resource, "metadata", key)) for key in ("namespace", "name")).strip("/")
    ran = Span(clock.of(_text(status.get("startTime"))).begins, ended)
    return Job(one_line(name), one_line(_text(end.get("type"))), "", (), ran)


def name_of_node(resource: Mapping[str, Any]) -> str:
    """The full name of a pod's node in Kubernetes; else empty."""
    return _text(_of(resource, "spec", "nodeName")) if resource.get("kind") == "Pod" else ""


def _event(message: str, source: str, when: Span, node: str) -> Iterator[Event]:
    sign = sign_of("kubernetes", message)
    if sign:
        yield Event(sign.name, one_line(message), source, when, label(node))


def _of(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return str(value)[:500] if isinstance(value, (str, int)) else ""
