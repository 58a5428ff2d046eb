"""EC2's instance metadata service: answers of a real small server, and whom a node believes about its type."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.aws import collect_imds as imds
from clusterproof.plugins.evidence.node import Node as FactsNode
from tests.testbed.imds import identity

DOCUMENT = "/latest/dynamic/instance-identity/document"
EVENTS = "/latest/meta-data/events/maintenance/scheduled"
TOKEN = "/latest/api/token"
HEALTHY: dict[str, tuple[int, bytes]] = {
    TOKEN: (200, b"token=="),
    DOCUMENT: (200, json.dumps(identity("p5.48xlarge")).encode()),
    EVENTS: (200, b"[]"),
}


class Service(HTTPServer):
    """A metadata service that logs requests."""

    answers: Mapping[str, tuple[int, bytes]]
    asked: list[tuple[str, str, bool]]


class Answering(BaseHTTPRequestHandler):
    """Answers from the service's table; without a token, 401."""

    def _answer(self) -> None:
        assert isinstance(self.server, Service)
        shown = self.headers.get("X-aws-ec2-metadata-token") == "token=="
        self.server.asked.append((self.command, self.path, shown))
        status, body = self.server.answers.get(self.path, (404, b"")) if shown or self.command == "PUT" else (401, b"")
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Answering)
    server.answers, server.asked = HEALTHY, []
    monkeypatch.setenv(imds.VARIABLE, f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def ec2(tmp_path: Path) -> Node:
    vendor = tmp_path / "sys/class/dmi/id/sys_vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    return Node(str(tmp_path))


def output_of(node: Node) -> Any:
    """The collector's report."""
    return imds.read(node)


def test_a_healthy_service_shows_which_instance_it_is_but_not_whose(service: Service, ec2: Node) -> None:
    answer = output_of(ec2)
    assert answer == {
        "token": 200,
        "without_token": 401,
        "identity": {
            "instance_id": "i-0f1e2d3c4b5a69788",
            "instance_type": "p5.48xlarge",
            "availability_zone": "us-west-2b",
            "region": "us-west-2",
            "image_id": "ami-0abcdef1234567890",
        },
        "events": [],
    }
    assert "123456789012" not in json.dumps(answer)
    assert service.asked[0] == ("PUT", TOKEN, False)
    assert [shown for _, path, shown in service.asked if path in (DOCUMENT, EVENTS)] == [True, True]


def test_nothing_is_asked_where_the_firmware_names_another_vendor(service: Service, tmp_path: Path) -> None:
    with pytest.raises(Absent, match="EC2"):
        imds.read(Node(str(tmp_path)))
    assert service.asked == []


def test_an_instance_on_xen_is_known_by_its_hypervisor(service: Service, tmp_path: Path) -> None:
    uuid = tmp_path / "sys/hypervisor/uuid"
    uuid.parent.mkdir(parents=True)
    uuid.write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    assert output_of(Node(str(tmp_path)))["token"] == 200
    assert service.asked


@pytest.mark.parametrize(
    ("path", "answer", "key", "expected"),
    [
        (DOCUMENT, (200, b"<html>"), "identity", "HTTP_200"),
        (DOCUMENT, (200, b"[]"), "identity", "HTTP_200"),
        (DOCUMENT, (200, b"\xff\xfe{"), "identity", "HTTP_200"),
        (DOCUMENT, (200, b"[" * 100_000), "identity", "HTTP_200"),
        (DOCUMENT, (500, b"x" * 1_000_000), "identity", "HTTP_500"),
        (EVENTS, (401, b""), "events", "HTTP_401"),
        (EVENTS, (200, b"{}"), "events", "HTTP_200"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_in_its_place(
    service: Service, ec2: Node, path: str, answer: tuple[int, bytes], key: str, expected: str
) -> None:
    service.answers = HEALTHY | {path: answer}
    error = output_of(ec2)[key]
    assert error["error"] == expected
    assert len(error["text"]) <= imds.MAX_TEXT


def test_no_document_of_events_means_that_none_is_scheduled(service: Service, ec2: Node) -> None:
    service.answers = {path: answer for path, answer in HEALTHY.items() if path != EVENTS}
    assert output_of(ec2)["events"] == []


def test_every_scheduled_event_is_reported_each_of_them_short(service: Service, ec2: Node) -> None:
    events = [{"Code": "system-reboot", "State": "active", "Description": "x" * 500}] * 60
    service.answers = HEALTHY | {EVENTS: (200, json.dumps(events).encode())}
    answer = output_of(ec2)["events"]
    assert len(answer) == len(events)
    assert {len(event["description"]) for event in answer} == {imds.MAX_TEXT}


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://127.0.0.1:99999", "http://[bad", "nonsense"])
def test_a_service_that_cannot_be_asked_is_an_error_everywhere(
    monkeypatch: pytest.MonkeyPatch, ec2: Node, endpoint: str
) -> None:
    monkeypatch.setenv(imds.VARIABLE, endpoint)
    assert {value["error"] for value in output_of(ec2).values()} <= {"ECONNREFUSED", "EPROTO", "EIO"}


def test_the_nodes_own_environment_file_names_the_service_too(
    monkeypatch: pytest.MonkeyPatch, service: Service, ec2: Node, tmp_path: Path
) -> None:
    monkeypatch.delenv(imds.VARIABLE)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/environment").write_text(f'{imds.VARIABLE}="http://127.0.0.1:{service.server_port}/"\n')
    assert output_of(ec2)["token"] == 200


def node(collectors: Mapping[str, Collected], **target: Any) -> FactsNode:
    """A node with these collectors."""
    return FactsNode(Target("gpu001", **target), NodeEvidence("gpu001", dict(collectors)))


def metadata(**more: object) -> dict[str, Collected]:
    """An EC2 instance by DMI, with another type in its metadata service."""
    answer = {"token": 200, "without_token": 401, "identity": {"instance_type": "p5e.48xlarge"}, "events": []} | more
    dmi = {"vendor": "Amazon EC2", "product": "p5.48xlarge"}
    return {"platform": Collected(Status.READ, dmi), "imds": Collected(Status.READ, answer)}


def test_the_instance_type_is_the_inventorys_then_the_metadata_services_then_dmis() -> None:
    assert node(metadata(), instance_type="ml.p5en.48xlarge").instance_type == "p5en.48xlarge"
    assert node(metadata()).instance_type == "p5e.48xlarge"
    assert node(metadata(identity={"error": "ETIMEDOUT", "text": ""})).instance_type == "p5.48xlarge"
    assert node({"imds": Collected(Status.ABSENT), "platform": metadata()["platform"]}).instance_type == "p5.48xlarge"


def test_an_instance_id_that_was_not_reported_is_incomplete() -> None:
    with pytest.raises(Incomplete):
        assert node(metadata()).instance_id
    assert node(metadata(identity={"instance_id": "i-1"})).instance_id == "i-1"


@pytest.mark.parametrize("check", ["network.imds_v2", "network.scheduled_events"])
def test_a_node_that_is_no_instance_has_no_metadata_service(check: str) -> None:
    verdict = evaluate(node_checks()[check], node({"imds": Collected(Status.ABSENT, detail="not EC2")}))
    assert (verdict.verdict, verdict.message) == (Verdict.NOT_APPLICABLE, "this is not an EC2 instance")


@pytest.mark.parametrize(("state", "verdict"), [("completed", Verdict.PASS), ("canceled", Verdict.PASS),
                                                ("active", Verdict.CONCERN), ("", Verdict.CONCERN)])  # fmt: skip
def test_an_event_that_is_over_is_no_concern(state: str, verdict: Verdict) -> None:
    event = {"code": "system-reboot", "state": state, "not_before": "21 Jan 2026 09:00:43 GMT"}
    assert evaluate(node_checks()["network.scheduled_events"], node(metadata(events=[event]))).verdict is verdict
