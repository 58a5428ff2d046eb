"""Listings of pods, however large; repeated ones decode unchanged pods once, and miss no change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from clusterproof.plugins.kubernetes import api
from clusterproof.plugins.kubernetes import pods as pods_of_api
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.plugins.kubernetes.pods import Pod, PodPages, pod_of
from clusterproof.plugins.transport.kubernetes.agents import CONTAINER, is_changing, state_of

SINCE, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"


def pod(node: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": SINCE}
    container = {"name": CONTAINER, "ready": True, "restartCount": 0, "state": {"running": {"startedAt": SINCE}}}
    return {
        "metadata": {"name": f"agent-{node}", "ownerReferences": [{"uid": "u", "controller": True}]},
        "spec": {"nodeName": node, "containers": [{"name": CONTAINER}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    }


class Server:
    """An API server with these pods, in pages of two at most."""

    def __init__(self, *pods: dict[str, Any], order: Sequence[str] = ("kind", "metadata", "items")) -> None:
        self.pods, self.order, self.version = list(pods), order, 1

    def send(self, _method: str, address: str, **_: object) -> Any:
        query = parse_qs(urlsplit(address).query)
        first, limit = int(query.get("continue", ["0"])[0]), min(2, int(query["limit"][0]))
        self.version += 1  # each listing has another version, as with etcd
        after = str(first + limit) if first + limit < len(self.pods) else ""
        page: dict[str, Any] = {
            "kind": "PodList",
            "metadata": {"resourceVersion": str(self.version), "continue": after},
        }
        page["items"] = self.pods[first : first + limit]
        body = json.dumps({key: page[key] for key in self.order}, separators=(",", ":")).encode()
        nothing = lambda: None  # noqa: E731
        return SimpleNamespace(status=200, stream=lambda _: [body], release_conn=nothing, close=nothing, headers={})


def listed(pages: PodPages, server: Server) -> list[Pod]:
    return pages.listed(Api("https://x", server.send), "clusterproof", "a=b")


@pytest.fixture
def decoded_pods(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every pod that was decoded."""
    made: list[object] = []
    monkeypatch.setattr(pods_of_api, "pod_of", lambda document: made.append(document) or pod_of(document))
    return made


def test_a_page_that_is_as_before_is_decoded_once(decoded_pods: list[object]) -> None:
    server, pages = Server(*map(pod, "abcde")), PodPages()
    first = listed(pages, server)
    assert [listed(pages, server) for _ in range(3)] == [first] * 3
    assert [decoded.node for decoded in first] == list("abcde")
    assert len(decoded_pods) == 5


CHANGES: dict[str, Any] = {
    "it is unready": lambda pod: pod["status"]["conditions"][0].update(status="False"),
    "it was unready": lambda pod: pod["status"]["conditions"][0].update(lastTransitionTime=LATER),
    "its container is unready": lambda pod: pod["status"]["containerStatuses"][0].update(ready=False),
    "its container was started again": lambda pod: pod["status"]["containerStatuses"][0].update(restartCount=1),
    "its container waits": lambda pod: pod["status"]["containerStatuses"][0].update(state={"waiting": {"reason": "x"}}),
    "its container has ended": lambda pod: pod["status"]["containerStatuses"][0].update(state={"terminated": {}}),
    "it is another pod": lambda pod: pod["metadata"].update(name="agent-other"),
    "it is on another node": lambda pod: pod["spec"].update(nodeName="other"),
    "it is being deleted": lambda pod: pod["metadata"].update(deletionTimestamp=LATER),
    "it has ended": lambda pod: pod["status"].update(phase="Failed"),
    "somebody else made it": lambda pod: pod["metadata"]["ownerReferences"][0].update(uid="other"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("at", range(5))
def test_whatever_changes_of_whichever_pod_is_seen(change: Any, at: int) -> None:
    server, pages = Server(*map(pod, "abcde")), PodPages()
    before = listed(pages, server)
    server.pods = deepcopy(server.pods)
    change(server.pods[at])
    after = listed(pages, server)
    assert after == list(map(pod_of, server.pods))
    assert [decoded_before == other for decoded_before, other in zip(before, after, strict=True)] == [
        place != at for place in range(5)
    ]
    assert _as_the_gate_sees(after[at]) != _as_the_gate_sees(before[at])


def _as_the_gate_sees(pod: Pod) -> tuple[object, ...]:
    """What makes a gate evaluate a node, or take a pod for another agent's."""
    return state_of(pod), is_changing(pod), pod.node, pod.controller


@pytest.mark.parametrize("names", ["abcd", "bcde", "abcdef", "", "edcba", "abcdabcd"])
def test_pods_that_come_go_and_move_are_seen(names: str) -> None:
    server, pages = Server(*map(pod, "abcde")), PodPages()
    listed(pages, server)
    server.pods = list(map(pod, names))
    assert [entry.node for entry in listed(pages, server)] == list(names)
    server.pods = list(map(pod, "abcde"))
    assert [entry.node for entry in listed(pages, server)] == list("abcde")


@pytest.mark.parametrize("order", [("items", "kind", "metadata"), ("metadata", "items", "kind")], ids=str)
def test_no_pod_is_lost_in_whatever_order_a_page_has_its_parts(order: Sequence[str]) -> None:
    server, pages = Server(*map(pod, "abcde"), order=order), PodPages()
    assert [[entry.node for entry in listed(pages, server)] for _ in range(2)] == [list("abcde")] * 2


@pytest.mark.parametrize("content", [b'{"metadata": {}, "items": null}', b'{"metadata": {}, "items" : []}'], ids=str)
def test_a_page_in_another_spelling_is_read_each_time(content: bytes) -> None:
    answer: Any = SimpleNamespace(status=200, stream=lambda _: [content], release_conn=lambda: None, headers={})
    api, pages = Api("https://x", lambda *_, **__: answer), PodPages()
    assert [pages.listed(api, "clusterproof", "a=b") for _ in range(3)] == [[]] * 3


@pytest.mark.parametrize("large", range(3))
def test_pods_that_are_too_large_for_one_page_together_are_listed_one_by_one(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_BYTES", 10_000)
    server = Server(*map(pod, "abcde"))
    for entry in server.pods[large : large + 3]:
        entry["metadata"]["annotations"] = {"note": "x" * 7_000}
    assert [entry["metadata"]["name"] for entry in Api("https://x", server.send).listed("/api/v1/pods")] == [
        f"agent-{name}" for name in "abcde"
    ]


def test_an_object_larger_than_a_page_may_be_ends_the_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_BYTES", 100)
    with pytest.raises(KubernetesError, match="is not JSON"):
        list(Api("https://x", Server(pod("a")).send).listed("/api/v1/pods"))
