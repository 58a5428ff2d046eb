"""The Kubernetes API: access to a cluster, and what it reports about nodes, pods and daemon sets.

This module: errors of an API server, each one line in its own words, and classified; and its clock.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable

HOST = "/host"  # the mount point of the host's files in our pods
OURS = "clusterproof"  # in the names of all conditions and taints that the suite itself writes

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, TOO_MANY = 401, 403, 404, 409, 429
MAX_WORDS = 600  # of the server's message
# From a webhook, with any status (400 by default); from a policy (422); from a failing webhook (500).
OF_ADMISSION = re.compile(r"\bdenied (?:the )?request\b|\bfailed calling webhook\b")
OF_RIGHTS = re.compile(r'\bUser "[^"]*" cannot \w+ (?:resource|path) "')
FLOW_SCHEMA = "X-Kubernetes-PF-FlowSchema-UID"  # whose priority level was full


class KubernetesError(ClusterproofError):
    """A failed request. `status` is HTTP's, 0 if there was no answer; `reason` is Kubernetes'."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class KubernetesDenied(KubernetesError):  # noqa: N818 - what it is
    """The user is unknown (401), or lacks the permission (403 from RBAC)."""

    def with_rights(self, expected: str) -> str:
        """The denial, and the rights that are expected: of a user who is known."""
        return str(self) if self.status == UNAUTHORIZED else f"{self}; {expected}"


class KubernetesRefused(KubernetesError):  # noqa: N818 - what it is
    """An admission controller refused an object: PodSecurity, a webhook, a policy, a quota."""


def decoded(content: bytes) -> Mapping[str, Any]:
    """The object in a body. Raises KubernetesError."""
    try:
        read = json.loads(content)
    except (ValueError, RecursionError):
        raise KubernetesError(f"the API server's answer is not JSON: {printable(repr(content[:80]))}") from None
    if not isinstance(read, dict):
        raise KubernetesError("the API server's answer is not a Kubernetes object")
    return read


def error_of(response: Any, body: bytes, path: str) -> KubernetesError:
    """The error for an unsuccessful response."""
    try:
        resource = decoded(body)
    except KubernetesError:
        resource = {"message": body.decode("utf-8", "replace")}
    schema = response.headers.get(FLOW_SCHEMA)
    if response.status == TOO_MANY and schema:
        message = str(resource.get("message")).strip().rstrip(".")
        resource = {**resource, "message": f"{message}, by its flow schema {schema}"}
    return error_of_status(response.status, resource, path)


def error_of_status(status: int, resource: Mapping[str, Any], path: str) -> KubernetesError:
    """The error for its status and `Status` object."""
    text = printable(" ".join(str(resource.get("message") or "no more is said").split()), MAX_WORDS)
    reason = printable(str(resource.get("reason") or ""), 60)
    message = f"{status} {reason}".strip() + f": {text}"
    if status == UNAUTHORIZED:
        return KubernetesDenied(
            f"{message} (GET or change of {path}); expected credentials that are valid", status, reason
        )
    if OF_ADMISSION.search(text):
        return KubernetesRefused(message, status, reason)
    if status == FORBIDDEN:
        return (KubernetesDenied if OF_RIGHTS.search(text) else KubernetesRefused)(message, status, reason)
    return KubernetesError(message, status, reason)


def error_text(problem: Exception) -> str:
    """A connection error, in one line."""
    return printable(" ".join(str(problem).split()) or type(problem).__name__, 300)


def ahead_s(response: Any) -> float:
    """How far the clock of a server is ahead of this machine's; 0 where it says nothing of it."""
    try:
        return parsedate_to_datetime(response.headers.get("Date") or "").timestamp() - time.time()
    except (ValueError, TypeError):
        return 0.0
