"""Clusters given without AWS: if nodes report that they are EC2's, AWS is asked about them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clusterproof.plugins.aws import collectors
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.evidence.aws import by_evidence
from clusterproof.plugins.evidence.cluster import HYPERPOD_COLLECTORS
from tests.aws.clients import client
from tests.aws.ec2 import open_to_internet, with_instances
from tests.aws.evidence_runs import (
    ALL,
    CHECKS,
    CONCERN,
    FAIL,
    NA,
    NOWHERE,
    OF_ANOTHER,
    OF_NODES,
    PASS,
    answering,
    on_ec2,
    ran,
    verdicts,
)
from tests.aws.service import Service
from tests.aws.storage import CloudWatch, lustre, quiet_lustre
from tests.builders.recordings import node
from tests.builders.runs import ROOT, Runs

MOUNTINFO = """22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
98 22 0:50 / /fsx rw,noatime shared:60 - lustre 10.1.71.197@tcp:/oyuutbev rw,flock
"""


@contextmanager
def metadata_of(instance: str) -> Iterator[str]:
    """An instance metadata service; yields its URL."""
    identity = {"instanceId": instance, "instanceType": "p5.48xlarge", "availabilityZone": "us-west-2a"}

    class Answering(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.output_of("token")

        def do_GET(self) -> None:
            self.output_of(json.dumps({**identity, "region": "us-west-2"}) if self.path.endswith("document") else "[]")

        def output_of(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_nodes_on_ec2_are_looked_up_in_their_region(runs: Runs, service: Service, ids: Sequence[str]) -> None:
    by_check = ran(runs)
    assert by_check.keys() == ALL
    assert verdicts(by_check) == dict.fromkeys(ALL, PASS) | {"ultraserver_block": NA}
    assert "DescribeInstances" in service.calls
    assert {call for call in service.calls if "Cluster" in call} == set()


def test_what_is_wrong_there_is_found(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    vpc, ids = with_instances(service)
    name = lustre(service)
    quiet_lustre(watch, name)
    watch.put(name, "DataReadBytes", "Sum", [240e6 * 60] * 180)
    open_to_internet(service, vpc)
    pairs = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": vpc.security_group}]}]
    client(service, "ec2").revoke_security_group_ingress(GroupId=vpc.security_group, IpPermissions=pairs)
    zones = ("us-west-2a", "us-west-2a", "us-west-2b")
    answering(monkeypatch, *(on_ec2(f"n{n}", instance, zone) for n, (instance, zone) in enumerate(zip(ids, zones), 1)))  # noqa: B905
    by_check = ran(runs)
    assert {name: verdict for name, verdict in verdicts(by_check).items() if verdict in (FAIL, CONCERN)} == {
        "fsx_throughput": FAIL,
        "single_az": FAIL,
        "security_group_self_reference": FAIL,
        "subnet_private": CONCERN,
    }
    assert "2 in us-west-2a (n[1-2]), 1 in us-west-2b (n3)" in by_check["single_az"][1]


def test_a_replay_gives_the_same_verdicts_without_aws(
    runs: Runs, service: Service, ids: Sequence[str], tmp_path: Path
) -> None:
    before = ran(runs, "--record", str(tmp_path / "recorded"))
    service.calls.clear()
    assert ran(runs, cluster=f"replay:{tmp_path / 'recorded'}") == before
    assert service.calls == []


def test_redacted_evidence_gives_the_same_verdicts_without_the_ids(
    runs: Runs, ids: Sequence[str], tmp_path: Path
) -> None:
    recorded = tmp_path / "recorded"
    assert verdicts(ran(runs)) == verdicts(ran(runs, "--redact", "--record", str(recorded)))
    recording = "".join(file.read_text() for file in recorded.rglob("*.json"))
    assert '"collectors"' in recording
    assert [instance for instance in ids if instance in recording] == []


def test_workers_of_xdist_evaluate_what_the_controller_asked(runs: Runs, ids: Sequence[str]) -> None:
    before = verdicts(ran(runs))
    assert verdicts(ran(runs, "-n2")) == before


# Which clusters


@pytest.mark.parametrize(
    ("connection", "settings", "may"),
    [
        ("ssh", {}, True),
        ("srun", {"submit_host": "local"}, True),
        ("local", {}, True),
        ("replay", {"recording": "x"}, False),  # recorded before nodes were asked for it
        ("replay", {"recording": "x", "ec2": "by evidence"}, True),
        ("replay", {"recording": "x", "region": "us-west-2"}, False),  # known to be AWS's
        ("capture", {"capture": "x"}, False),
        ("ssm", {"region": "us-west-2"}, False),
        ("ssh", {"region": "us-west-2"}, False),
    ],
)
def test_only_the_nodes_know_what_no_inventory_records(connection: str, settings: dict[str, str], may: bool) -> None:
    assert by_evidence.may_be_on_ec2(Cluster("c", connection, (Target("n1"),), settings)) is may


def test_collectors_of_hyperpod_alone_are_those_that_say_so() -> None:
    kinds = {
        name: getattr(collectors._module(name), "KINDS", ("hyperpod", "ec2")) for name in collectors.collector_names()
    }
    assert {name for name, of in kinds.items() if "ec2" not in of} == HYPERPOD_COLLECTORS


@pytest.mark.parametrize(
    "identity",
    [None, [], {}, {"error": "HTTP_500"}, {"instance_id": 7}, {"instance_id": "i-1\n"}, {"instance_id": "x" * 999}],
)
def test_an_identity_that_makes_no_sense_is_none(identity: object) -> None:
    instances = by_evidence.Instances.of([node("n1", imds={"identity": identity}, platform={"vendor": "Amazon EC2"})])
    assert instances.identities == {}
    assert instances.nameless == ["n1"]


def test_an_instance_id_that_is_none_is_never_asked_for() -> None:
    instances = by_evidence.Instances.of([on_ec2("n1", "--profile=x"), on_ec2("n2", "i-0123456789abcdef0")])
    cluster = instances.cluster(Cluster("c", "ssh", (Target("n1"), Target("n2"))))
    assert [target.address for target in cluster.targets] == ["", "i-0123456789abcdef0"]


@pytest.mark.parametrize("region", ["us-west-2", "us-gov-west-1", "cn-northwest-1", "us-isob-east-1", "eusc-de-east-1"])
def test_the_nodes_region_is_the_one_to_ask_in_every_partition(region: str) -> None:
    identity = {"instance_id": "i-0123456789abcdef0", "region": region}
    assert by_evidence.Instances.of([node("n1", imds={"identity": identity})]).region == region


def test_a_run_over_nodes_elsewhere_loads_nothing_of_boto3(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys/class/dmi/id").mkdir(parents=True)
    (root / "sys/class/dmi/id/sys_vendor").write_text("Dell Inc.\n")
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mountinfo").write_text(MOUNTINFO)
    script = (
        "import sys, pytest; pytest.main(sys.argv[1:]); "
        "print('LOADED', sorted(name for name in sys.modules if name.startswith(('boto3', 'botocore'))))"
    )
    arguments = ["--cluster", "local", "--host-root", str(root), "--no-report", "--results", str(tmp_path / "out")]
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments, *CHECKS, *OF_NODES],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "LOADED []" in ended.stdout, ended.stdout + ended.stderr
    records = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    messages = {record["message"] for record in records if "verdict" in record}
    assert {message for message in messages if not OF_ANOTHER.search(message)} == {NOWHERE}


def test_an_instance_that_runs_it_itself_is_looked_up(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, (instance,) = with_instances(service, count=1)
    quiet_lustre(watch, lustre(service))
    root = tmp_path / "root"
    (root / "sys/class/dmi/id").mkdir(parents=True)
    (root / "sys/class/dmi/id/sys_vendor").write_text("Amazon EC2\n")
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mountinfo").write_text(MOUNTINFO)
    with metadata_of(instance) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        by_check = ran(runs, "--host-root", str(root), cluster="local")
    assert verdicts(by_check) == dict.fromkeys(ALL, PASS) | {"ultraserver_block": NA}
