"""The API's JSON is read, whatever it contains."""

from __future__ import annotations

import json
import threading
import time
from types import ModuleType

import pytest
from urllib3 import HTTPResponse

from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.kubernetes import read_job
from clusterproof.plugins.kubernetes import KubernetesDenied, KubernetesError, KubernetesRefused, error_of_status
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.collectors import k8s_compute_domains, k8s_nodes, k8s_pods, k8s_storage
from clusterproof.plugins.kubernetes.gate.object_writer import RIGHTS, ObjectWriter
from clusterproof.plugins.kubernetes.gate.objects import event, seen_of
from clusterproof.plugins.kubernetes.gate.wait import Wait, waited
from clusterproof.plugins.kubernetes.nodes import node_of
from clusterproof.plugins.kubernetes.pods import pod_of
from clusterproof.plugins.transport.kubernetes.outcome import RBAC, refused
from tests.kubernetes.responses import response

WRONG: list[object] = [
    None,
    7,
    "text",
    [],
    {},
    {"metadata": None, "spec": [], "status": "x"},
    {"metadata": {"name": 7, "labels": []}},
]


@pytest.mark.parametrize("data", WRONG, ids=repr)
def test_a_malformed_value_is_as_if_it_were_missing(data: object) -> None:
    assert (node_of(data).name, pod_of(data).name) == ("", "")
    assert not node_of(data).is_ready


def listing(items: object) -> Api:
    """An API server with these objects in every listing, and no others."""

    def send(_method: str, address: str, **_: object) -> HTTPResponse:
        if "?" in address:
            return response(200, {"metadata": {}, "items": items})
        return response(404, {"message": "there is none"})

    return Api("https://x", send)


@pytest.mark.parametrize("items", [None, 7, "text", {}, WRONG, [{"metadata": {"name": []}}]], ids=repr)
def test_nor_does_a_listing_of_malformed_objects_end_a_collector(items: object) -> None:
    for collector in (k8s_nodes, k8s_pods, k8s_storage):
        assert collector.read(listing(items), frozenset({"n"}))


@pytest.mark.parametrize(
    ("spec", "is_read"),
    [
        ({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, True),
        ({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]}, True),
        ({"containers": [{"name": "c"}]}, False),
    ],
    ids=["GPUs", "a claim", "neither"],
)
def test_a_pod_that_waits_is_read_if_it_asks_for_devices_in_either_way(spec: dict[str, object], is_read: bool) -> None:
    answer = k8s_pods.read(listing([{"metadata": {"name": "p", "namespace": "n"}, "spec": spec}]), frozenset({"n"}))
    assert isinstance(answer, dict)
    assert [pod["name"] for pod in answer["pods"]] == (["p"] if is_read else [])


@pytest.mark.parametrize("collector", [k8s_nodes, k8s_pods, k8s_compute_domains])
@pytest.mark.parametrize(
    ("date", "at"), [("Wed, 31 Dec 2025 23:59:59 GMT", 1_767_225_599.0), ("", None), ("yesterday", None)], ids=str
)
def test_what_an_api_server_dates_has_the_age_that_it_has_there(
    collector: ModuleType, date: str, at: float | None
) -> None:
    def send(*_: object, **__: object) -> HTTPResponse:
        return response(200, {}, {"Date": date})

    asked_at = collector.read(Api("https://x", send), frozenset())["asked_at"]
    assert asked_at == pytest.approx(at or time.time(), abs=5.0)


@pytest.mark.parametrize("key", ["name", "uid"])
def test_nor_a_case(key: str) -> None:
    ended = {"state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:04:05Z"}}}
    metadata = {"name": "w-0", "labels": {"job-name": "w"}, "ownerReferences": [{"name": "w", key: []}]}
    about = {"involvedObject": {"name": "w-0", key: []}}
    builder = CaseBuilder()
    read_job(listing([{"metadata": metadata, "status": {"containerStatuses": [ended]}, **about}]), "t/w", builder, 0.0)
    assert builder.objects.keys() == {"t/w"}


def test_images_are_left_out_only_where_nobody_asks_for_them() -> None:
    document = {"metadata": {"name": "n"}, "status": {"images": [{"names": ["a:1"], "sizeBytes": 7}]}}
    assert [(image.names, image.size_bytes) for image in node_of(document).images] == [(("a:1",), 7)]
    assert node_of(document, with_images=False).images == ()


def test_texts_are_bounded_and_steer_no_terminal() -> None:
    condition = {"type": "Ready", "status": "False", "message": "\x1b[2J" + "x" * 5000}
    (made,) = node_of({"status": {"conditions": [condition]}}).conditions
    assert made.message.isprintable()
    assert len(made.message) < 1100


def test_a_pod_has_its_containers_and_why_they_wait() -> None:
    limits = {"nvidia.com/gpu": "8"}
    pod = pod_of(
        {
            "metadata": {"name": "p", "namespace": "n", "ownerReferences": [{"kind": "Job", "name": "train"}]},
            "spec": {
                "nodeName": "gpu001",
                "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
            },
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available"}],
                "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
        }
    )
    assert (pod.owner, pod.node, pod.phase) == ("Job/train", "gpu001", "Pending")
    assert pod.scheduled == "0/4 nodes are available"
    (container,) = pod.containers
    assert (container.limits, container.waiting, container.exit_code) == (limits, "ImagePullBackOff", None)


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_waits_to_start_again_has_how_it_ended(kind: str) -> None:
    state = {
        "name": "c",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    }
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {kind: [state]},
    }
    answer = k8s_pods.read(listing([pod]), frozenset({"n"}))
    assert isinstance(answer, dict)
    seen = answer["pods"][0]["unready"][0]
    assert (seen["reason"], seen["message"]) == ("CrashLoopBackOff", "OOMKilled, exit code 137; back-off 5m0s")


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, 'admission webhook "x.example.com" denied the request: no', KubernetesRefused),
        (403, 'pods "a" is forbidden: violates PodSecurity "baseline:latest"', KubernetesRefused),
        (422, "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", KubernetesRefused),
        (500, 'failed calling webhook "x.example.com": connection refused', KubernetesRefused),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""', KubernetesDenied),
        (
            403,
            'admission webhook "a.b" denied the request: probe cannot run without resource limits',
            KubernetesRefused,
        ),
        (403, 'admission webhook "a.b" denied the request: User "u" cannot create resource "pods"', KubernetesRefused),
        (422, 'Pod "a" is invalid: spec.nodeName: Invalid value', KubernetesError),
        (500, "etcdserver: request timed out", KubernetesError),
        (400, "the server could not understand the request", KubernetesError),
    ],
)
def test_what_admission_refuses_is_known_by_its_words_whatever_its_status(
    status: int, words: str, kind: type[KubernetesError]
) -> None:
    assert type(error_of_status(status, {"message": words}, "/api/v1/pods")) is kind


@pytest.mark.parametrize(
    ("status", "message", "is_of_rights"),
    [(401, "Unauthorized", False), (403, 'User "x" cannot patch resource "nodes" in API group ""', True)],
)
def test_only_an_account_that_is_known_is_told_which_rights_it_lacks(
    status: int, message: str, is_of_rights: bool
) -> None:
    denied = error_of_status(status, {"message": message}, "/api/v1/nodes")
    writer = ObjectWriter(Api("https://10.0.0.1:443", object))

    def deny() -> None:
        raise denied

    writer.tried("gpu001", deny)
    assert [RIGHTS in line for line in writer.lines()] == [is_of_rights]
    assert (RBAC in refused(denied, "clusterproof")) is is_of_rights


def test_a_pod_whose_credentials_are_not_valid_is_not_told_to_ask_for_rights() -> None:
    def unknown(*_: object, **__: object) -> HTTPResponse:
        return response(401, {"message": "Unauthorized"})

    order = Wait("gpu001", patience_s=0.1)
    health = waited(Api("https://10.0.0.1:443", unknown), order, print, threading.Event())
    assert health.message.endswith("expected credentials that are valid")


def test_an_event_that_etcd_loses_costs_no_other_node_its_own() -> None:
    created: list[str] = []

    def losing_one(_: str, __: str, *, body: str, **___: object) -> HTTPResponse:
        node = json.loads(body)["involvedObject"]["name"]
        if node == "gpu001":
            return response(500, {"message": "etcdserver: leader changed"})
        created.append(node)
        return response(201, {})

    writer = ObjectWriter(Api("https://10.0.0.1:443", losing_one))
    for name in ("gpu001", "gpu002"):
        writer.create_event(event(seen_of({"metadata": {"name": name}}), False, "Why", "words", 0.0))
    assert created == ["gpu002"]
    assert writer.lines() == ["gpu001: an event was refused: 500: etcdserver: leader changed"]


@pytest.mark.parametrize("is_served", [True, False])
def test_a_right_to_list_what_is_not_installed_is_not_needed(is_served: bool) -> None:
    group = "/apis/resource.nvidia.com"

    def without_rights(_: str, address: str, **__: object) -> HTTPResponse:
        if not address.endswith(group):  # the API server looks at rights first, also for what it does not serve
            said, status = b'{"message": "User \\"x\\" cannot list resource \\"computedomains\\""}', 403
        else:  # which groups it serves, every user may ask
            said, status = (b"{}", 200) if is_served else (b"404 page not found", 404)
        return response(status, said)

    api = Api("https://10.0.0.1:443", without_rights)
    if is_served:
        with pytest.raises(KubernetesDenied, match="cannot list resource"):
            k8s_compute_domains.read(api, frozenset())
    else:
        answer = k8s_compute_domains.read(api, frozenset())
        assert isinstance(answer, dict)
        assert (answer["is_installed"], answer["domains"]) == (False, [])
