"""What Kubernetes says of a job: pods, the job's own object and events, as `kubectl get -o json` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.case import Event, Job, Span, label, one_line
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.scheduler import WELL
from clusterproof.plugins.catalog.causes import sign_of

MAX_ITEMS = 20_000
JOBS = ("Job", "JobSet", "PyTorchJob", "MPIJob", "TrainJob", "HyperPodPyTorchJob")  # who makes pods of its own
KINDS = ("Pod", *JOBS, "Event", "List", "PodList", "EventList", *(f"{kind}List" for kind in JOBS))
BADLY = ("Failed",)  # the condition of such an object when it is over, unless it went well
MAX_DEPTH = 2  # lists in lists


def objects(text: str) -> list[Mapping[str, Any]]:
    """The objects that a file holds; none where it is no such file."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(_flat(data, 0))[:MAX_ITEMS]


def _flat(data: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if not isinstance(data, dict) or depth > MAX_DEPTH or data.get("kind") not in KINDS:
        return
    items = data.get("items")
    if isinstance(items, list):
        for item in items[:MAX_ITEMS]:
            kind = str(data["kind"]).removesuffix("List")
            yield from _flat({"kind": kind, **item} if isinstance(item, dict) else item, depth + 1)
    else:
        yield data


def read(data: Mapping[str, Any], source: str, clock: Clock) -> Iterator[Event]:
    """What one object says of the end of a job."""
    if data.get("kind") == "Event":
        about = _text(_of(data, "involvedObject", "name"))
        when = clock.of(_text(data.get("lastTimestamp") or data.get("eventTime")))
        node = _text(_of(data, "source", "host"))
        yield from _event(f"{_text(data.get('reason'))}: {about}: {_text(data.get('message'))}", source, when, node)
        return
    name, node = _text(_of(data, "metadata", "name")), _text(_of(data, "spec", "nodeName"))
    status = data.get("status")
    if not isinstance(status, dict):
        return
    said = f"{_text(status.get('reason'))} {_text(status.get('message'))}".strip()
    if said:
        yield from _event(f"pod {name}: {said}", source, Span(), node)
    for one in _list(status.get("conditions")):
        if one.get("type") in ("DisruptionTarget", "Failed") and one.get("status") == "True":
            words = f"{name}: {_text(one.get('reason'))}: {_text(one.get('message'))}"
            yield from _event(words, source, clock.of(_text(one.get("lastTransitionTime"))), node)
    for one in (*_list(status.get("containerStatuses")), *_list(status.get("initContainerStatuses"))):
        for state in ("state", "lastState"):
            ended = _of(one, state, "terminated")
            if isinstance(ended, dict):
                words = f"pod {name}: {_text(ended.get('reason'))}, exit code {_text(ended.get('exitCode'))}"
                yield from _event(words, source, clock.of(_text(ended.get("finishedAt"))), node)


def job_of(data: Mapping[str, Any], clock: Clock) -> Job | None:
    """How the job of an object ended, and when it ran; None of what is no job. One that goes on has no state."""
    status = data.get("status")
    if data.get("kind") not in JOBS or not isinstance(status, dict):
        return None
    over = [one for one in _list(status.get("conditions")) if one.get("status") == "True"]
    end = next((one for one in over if one.get("type") in (*WELL, *BADLY)), {})
    ended = clock.of(_text(status.get("completionTime") or end.get("lastTransitionTime"))).ends if end else None
    name = "/".join(_text(_of(data, "metadata", key)) for key in ("namespace", "name")).strip("/")
    ran = Span(clock.of(_text(status.get("startTime"))).begins, ended)
    return Job(one_line(name), one_line(_text(end.get("type"))), "", (), ran)


def name_of_node(data: Mapping[str, Any]) -> str:
    """The whole name of the node of a pod, as Kubernetes has it; else empty."""
    return _text(_of(data, "spec", "nodeName")) if data.get("kind") == "Pod" else ""


def _event(words: str, source: str, when: Span, node: str) -> Iterator[Event]:
    sign = sign_of("kubernetes", words)
    if sign:
        yield Event(sign.name, one_line(words), source, when, label(node))


def _of(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _list(data: Any) -> list[Mapping[str, Any]]:
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def _text(data: Any) -> str:
    return str(data)[:500] if isinstance(data, (str, int)) else ""
