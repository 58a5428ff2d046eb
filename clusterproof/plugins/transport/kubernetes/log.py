"""Reads the log of a pod; a failure is the node's or the API server's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from clusterproof.plugins.kubernetes.api import TIMEOUT, Api, KubernetesError

ANSWER_S = 10.0  # for an API server that is there, and for a kubelet that is asked again


class NoLog(KubernetesError):  # noqa: N818 - what there is not
    """The API server cannot read this node's logs, for a reason of the node."""


def log_of(api: Api, pods: str, name: str, most_bytes: int, retry_s: float, **query: object) -> bytes:
    """What a pod of the collection at `pods` has printed, at most so much of it, asked for over `retry_s` seconds.

    Raises KubernetesError: NoLog where the API server gives the pod itself, as it does not without its etcd, and still
    not the log.
    """
    path = f"{pods}/{name}/log"
    parameters: dict[str, Any] = {**query, "limitBytes": most_bytes}
    try:
        return api.text(path, most_bytes, retry_s, **parameters)
    except KubernetesError as problem:
        if not (_may_be_of_kubelet(problem) and _gives(api, pods, name)):
            raise
    try:
        return api.text(path, most_bytes, 0.0, ANSWER_S, **parameters)  # it may have been away, and is back
    except KubernetesError as problem:
        if not _may_be_of_kubelet(problem):
            raise
        raise NoLog(str(problem), problem.status, problem.reason) from None


def _may_be_of_kubelet(problem: KubernetesError) -> bool:
    return problem.status >= 500 or problem.reason == TIMEOUT


def _gives(api: Api, pods: str, name: str) -> bool:
    """Whether the API server gives the pod: a list of one, as a run may list pods and not get them."""
    with suppress(KubernetesError):
        api.get_once(pods, ANSWER_S, fieldSelector=f"metadata.name={name}")
        return True
    return False
