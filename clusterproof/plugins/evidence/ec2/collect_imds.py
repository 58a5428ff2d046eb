"""EC2's instance metadata service, version 2: which instance this is, and what AWS has planned for it."""

from __future__ import annotations

import json
import os
from _socket import gaierror, timeout

from clusterproof.plugins.agent.http_call import ask
from clusterproof.plugins.agent.reading import Absent, Node, error
from clusterproof.plugins.evidence.software.collect_assignments import plain

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    Error = dict[str, str]
    Answer = tuple[int, str] | Error

ENDPOINT = "http://169.254.169.254"
VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # of AWS's own SDKs: another address of the service
TIMEOUT_S = 1.0
MAX_TEXT = 200
IDENTITY = {
    "instance_id": "instanceId",
    "instance_type": "instanceType",
    "availability_zone": "availabilityZone",
    "region": "region",
    "image_id": "imageId",
}
EVENT = {
    "code": "Code",
    "state": "State",
    "not_before": "NotBefore",
    "not_after": "NotAfter",
    "description": "Description",
}


def read(node: Node) -> object:
    """HTTP's status of a request for a token and of one without, the instance's identity, its events. Raises Absent."""
    if not _is_instance(node):
        raise Absent("the firmware does not say that this is an EC2 instance")
    at = _endpoint(node)
    token = _ask(node, at, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    if isinstance(token, dict):  # nobody answers: no more of this node's time
        return {"token": token, "without_token": token, "identity": token, "events": token}
    header = {"X-aws-ec2-metadata-token": token[1]} if token[0] == 200 else {}
    bare = _ask(node, at, "GET", "/latest/meta-data/instance-id", {})
    identity = _json(_ask(node, at, "GET", "/latest/dynamic/instance-identity/document", header), dict)
    events = _json(_ask(node, at, "GET", "/latest/meta-data/events/maintenance/scheduled", header), list)
    return {
        "token": token[0],
        "without_token": bare if isinstance(bare, dict) else bare[0],
        "identity": _chosen(identity, IDENTITY) if isinstance(identity, dict) else identity,
        "events": [_chosen(event, EVENT) for event in events] if isinstance(events, list) else events,
    }


def _is_instance(node: Node) -> bool:
    vendor = node.text("/sys/class/dmi/id/sys_vendor", absent="")
    return vendor == "Amazon EC2" or str(node.text("/sys/hypervisor/uuid", absent=""))[:3].lower() == "ec2"


def _endpoint(node: Node) -> str:
    data = os.environ.get(VARIABLE, "")
    try:
        data = data or [value for _, name, value, _ in plain(node.read("/etc/environment")) if name == VARIABLE][-1]
    except (OSError, IndexError):
        return ENDPOINT
    return data


def _ask(node: Node, endpoint: str, method: str, path: str, headers: dict[str, str]) -> Answer:
    """HTTP's status and text, or an error where nobody answers in time."""
    node.at(f"{method} {endpoint}{path}")
    try:
        status, body = ask(endpoint, method, path, headers, TIMEOUT_S)
        return status, body.decode("utf-8", "replace")
    except (TimeoutError, timeout):  # two classes before Python 3.10
        return {"error": "ETIMEDOUT", "text": f"{endpoint}: no answer in {TIMEOUT_S:g} s"}
    except (gaierror, ValueError) as problem:
        return {"error": "EPROTO", "text": f"{endpoint}: {problem}"[:MAX_TEXT]}
    except OSError as problem:
        return {"error": error(problem)["error"], "text": f"{endpoint}: {problem}"[:MAX_TEXT]}


def _json(answer: Answer, kind: type) -> object:
    """What an answer holds, or an error; that there is no such document means that there is nothing in it."""
    if isinstance(answer, dict):
        return {**answer}
    status, text = answer
    if status == 404:
        return kind()
    try:
        data = json.loads(text) if status == 200 else None
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, kind) else {"error": f"HTTP_{status}", "text": text[:MAX_TEXT]}


def _chosen(data: object, names: dict[str, str]) -> object:
    if not isinstance(data, dict) or "error" in data:
        return data if isinstance(data, dict) else {"error": "EPROTO", "text": str(data)[:MAX_TEXT]}
    return {name: str(data.get(word, ""))[:MAX_TEXT] for name, word in names.items()}
