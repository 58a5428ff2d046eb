"""EC2's instance metadata service, version 2: this instance's identity, and events planned by AWS.

Uses HTTP/1.1 over a socket: Python's `http.client` is slow to import, and not needed for a local service.
"""

from __future__ import annotations

import json
import os
from _socket import (  # avoids the enumerations that `socket` creates
    SOCK_STREAM,
    gaierror,
    getaddrinfo,
    socket,
    timeout,
)

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Absent, Node, error
from clusterproof.plugins.evidence.software.collect_assignments import plain

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    Error = dict[str, str]
    Answer = tuple[int, str] | Error

ENDPOINT = "http://169.254.169.254"
VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # of AWS's own SDKs: overrides the service's address
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
MAX_BYTES = 64 * 1024  # of an answer's head, and of its body
ADDRESS = Pattern(r"http://(?:\[([0-9a-fA-F:.]+)\]|([^][/:@\s]+))(?::([0-9]{1,5}))?(?:/.*)?")
STATUS = Pattern(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r|$)")
LENGTH = Pattern(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?:\r|$)")


def read(node: Node) -> object:
    """The HTTP status of a token request and of one without token, the identity, and events. Raises Absent."""
    if not _is_instance(node):
        raise Absent("the firmware does not say that this is an EC2 instance")
    at = _endpoint(node)
    token = _ask(node, at, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    if isinstance(token, dict):  # nobody answers: spend no more time
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
    url = os.environ.get(VARIABLE, "")
    try:
        url = url or [value for _, name, value, _ in plain(node.read("/etc/environment")) if name == VARIABLE][-1]
    except (OSError, IndexError):
        return ENDPOINT
    return url


def _ask(node: Node, endpoint: str, method: str, path: str, headers: dict[str, str]) -> Answer:
    """HTTP status and text, or an error if there is no answer in time."""
    node.at(f"{method} {endpoint}{path}")
    try:
        status, body = request(endpoint, method, path, headers, TIMEOUT_S)
        return status, body.decode("utf-8", "replace")
    except (TimeoutError, timeout):  # two classes before Python 3.10
        return {"error": "ETIMEDOUT", "text": f"{endpoint}: no answer in {TIMEOUT_S:g} s"}
    except (gaierror, ValueError) as problem:
        return {"error": "EPROTO", "text": f"{endpoint}: {problem}"[:MAX_TEXT]}
    except OSError as problem:
        return {"error": error(problem)["error"], "text": f"{endpoint}: {problem}"[:MAX_TEXT]}


def _json(answer: Answer, kind: type) -> object:
    """The JSON of an answer, or an error; a missing document counts as empty."""
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


def request(endpoint: str, method: str, path: str, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    """Status and body, at most MAX_BYTES; `timeout_s` applies to each wait. Chunks are not joined.

    Raises OSError, and ValueError for an invalid address or HTTP answer.
    """
    host, port = address(endpoint)
    named = {"Host": f"[{host}]" if ":" in host else host, "Connection": "close", "Content-Length": "0", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("a header that HTTP cannot carry")
    connection = _connected(host, port, timeout_s)
    try:
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        return _answered(connection)
    finally:
        connection.close()


def address(endpoint: str) -> tuple[str, int]:
    """Host and port of `http://HOST[:PORT]`. Raises ValueError."""
    match = ADDRESS.fullmatch(endpoint)
    port = int((match and match[3]) or 80)
    if not match or not 0 < port < 65536:
        raise ValueError("expected http://HOST[:PORT]")
    return match[1] or match[2], port


def _connected(host: str, port: int, timeout_s: float) -> socket:
    problem: OSError | None = None
    for family, kind, protocol, _, where in getaddrinfo(host, port, 0, SOCK_STREAM):
        connection = socket(family, kind, protocol)
        connection.settimeout(timeout_s)
        try:
            connection.connect(where)
        except OSError as why:
            connection.close()
            problem = why
        else:
            return connection
    raise problem or OSError(f"{host} has no address")


def _answered(connection: socket) -> tuple[int, bytes]:
    data = b""
    while True:
        piece = connection.recv(MAX_BYTES)
        data += piece
        head, end, body = data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = min(int(length[1]), MAX_BYTES) if length else MAX_BYTES
        if not piece or (len(body) >= size if end else len(data) > MAX_BYTES):
            break
    status = STATUS.match(head)
    if not (status and end):
        raise ValueError("no HTTP answer")
    return int(status[1]), body[:size]
