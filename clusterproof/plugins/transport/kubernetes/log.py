"""Reads a pod's log; if it cannot be read, finds out whether the node or the API server is at fault."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from clusterproof.plugins.kubernetes import FORBIDDEN, UNAUTHORIZED
from clusterproof.plugins.kubernetes.api import TIMEOUT, Api, KubernetesError

ANSWER_S = 10.0  # for the API server to answer, and for a kubelet that is asked again


class NoLog(KubernetesError):  # noqa: N818 - what there is not
    """The control plane cannot read any log of this node, for a reason of its own."""


def log_of(api: Api, pods: str, name: str, most_bytes: int, retry_s: float, **query: object) -> bytes:
    """What a pod of the collection at `pods` printed, at most `most_bytes`, retried for `retry_s` seconds.

    Raises KubernetesError: NoLog if the API server returns the pod itself, for which it needs its etcd, but still not
    the log.
    """
    path = f"{pods}/{name}/log"
    parameters: dict[str, Any] = {**query, "limitBytes": most_bytes}
    try:
        return api.text(path, most_bytes, retry_s, **parameters)
    except KubernetesError as problem:
        if not (_may_be_of_kubelet(problem, name) and _gives(api, pods, name)):
            raise
    try:
        return api.text(path, most_bytes, 0.0, ANSWER_S, **parameters)  # it may have been down briefly
    except KubernetesError as problem:
        if not _may_be_of_kubelet(problem, name):
            raise
        raise NoLog(str(problem), problem.status, problem.reason) from None


def _may_be_of_kubelet(problem: KubernetesError, name: str) -> bool:
    """Whether it may be the kubelet's error: also if it refuses the API server, which passes that on."""
    is_refusal = problem.status in (UNAUTHORIZED, FORBIDDEN) and f"( pods/log {name})" in str(problem)
    return problem.status >= 500 or problem.reason == TIMEOUT or is_refusal


def _gives(api: Api, pods: str, name: str) -> bool:
    """Whether the API server returns the pod: asked as a list of one, because a run may list pods but not get them."""
    with suppress(KubernetesError):
        api.get_once(pods, ANSWER_S, fieldSelector=f"metadata.name={name}")
        return True
    return False
