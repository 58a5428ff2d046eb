"""`--redact` of a cluster in AWS: no name from the account survives, and no verdict changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.redaction.redact import Redaction
from clusterproof.reports.results import read_results
from tests.aws.clients import client
from tests.aws.cluster_faults import described, listed
from tests.aws.cluster_runs import CHECKS
from tests.aws.clusters import ARN, ID, NAME, instance_id, private_name, with_cluster
from tests.aws.ec2 import TEAM, Vpc, with_instances
from tests.aws.service import Service
from tests.aws.standing import config_of, with_nodes
from tests.aws.systems_manager import SystemsManager
from tests.builders.runs import Runs

pytest_plugins = ["pytester"]
LAYER = "nn-{:017x}"
MESSAGE = (
    "User: arn:aws:sts::999988887777:assumed-role/Administrators/alice may not use vpc-0aaaabbbbccccdddd of "
    f"111122223333 in {ARN} on {instance_id('workers-1')} at {private_name('workers-1')}"
)
NAMES_IN_MESSAGE = ("999988887777", "111122223333", "Administrators", "alice", "vpc-0aaaabbbbccccdddd")


def ran(runs: Runs, folder: str, *arguments: str) -> dict[str, str]:
    """Run with every possible output into this folder; returns all that was written and printed, by location."""
    into = runs.folder / folder
    into.mkdir()
    ended = runs.run(
        *arguments,
        *("--results", str(into / "results.jsonl"), "--record", str(into / "recorded")),
        *("--html", str(into / "page.html"), "--junitxml", str(into / "junit.xml"), "-rA"),
    )
    files = [path for path in into.rglob("*") if path.is_file()]
    output = "\n".join([*ended.outlines, *ended.errlines])
    return {"said": output, "names": "\n".join(map(str, files)), **{path.name: path.read_text() for path in files}}


def verdicts(runs: Runs, folder: str) -> dict[str, Verdict]:
    return {result.check: result.verdict for result in read_results(runs.folder / folder / "results.jsonl")}


def surviving(texts: dict[str, str], names: list[str]) -> list[tuple[str, str]]:
    return [(where, name) for where, text in texts.items() for name in names if name.lower() in text.lower()]


def ill(service: Service, vpc: Vpc) -> str:
    """Faults whose findings name instances, security groups, subnets, UltraServers and network nodes."""
    ec2 = client(service, "ec2")
    other = ec2.create_security_group(GroupName="other", Description="other", VpcId=vpc.id)["GroupId"]

    def of_cluster(description: dict[str, Any]) -> None:
        description["FailureMessage"] = MESSAGE
        description["VpcConfig"]["SecurityGroupIds"] = [vpc.security_group, other]

    def of_nodes(rows: list[dict[str, Any]]) -> None:
        rows[0]["InstanceStatus"] = {"Status": "Failure", "Message": MESSAGE}
        for row, name in zip(rows, ("alpha", "beta", "beta"), strict=False):
            row["UltraServerInfo"] = {"Id": f"ultra-{name}", "Type": "ml.u-p6e-gb200x72"}

    described(service, of_cluster)
    listed(service, of_nodes)
    ec2.modify_subnet_attribute(SubnetId=vpc.near, MapPublicIpOnLaunch={"Value": True})
    return str(other)


def test_no_name_of_a_hyperpod_cluster_survives_and_the_verdicts_stay(
    runs: Runs, service: Service, manager: SystemsManager, tmp_path: Path
) -> None:
    vpc = with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)})
    other = ill(service, vpc)
    layers = {f"workers-{number}": [LAYER.format(1), LAYER.format(2), LAYER.format(3 + number)] for number in range(3)}
    with_nodes(manager, tmp_path / "root", config_of(layers))
    arguments = ("--cluster", NAME, "--host-root", str(tmp_path / "root"), CHECKS)
    plain = ran(runs, "plain", *arguments)
    names = [NAME, ID, ARN, "123456789012", vpc.id, vpc.near, vpc.security_group, other, vpc.private, *NAMES_IN_MESSAGE]
    names += ["ultra-alpha", "ultra-beta", LAYER.format(1), LAYER.format(3)]
    for number in range(3):
        names += [instance_id(f"workers-{number}"), private_name(f"workers-{number}").partition(".")[0]]
    assert {name for _, name in surviving(plain, names)} == set(names)  # each of them can be found without --redact
    assert surviving(ran(runs, "redacted", *arguments, "--redact"), names) == []
    ran(runs, "replayed", "--cluster", f"replay:{runs.folder / 'redacted' / 'recorded'}", CHECKS)
    assert verdicts(runs, "redacted") == verdicts(runs, "replayed") == verdicts(runs, "plain")
    assert Verdict.FAIL in verdicts(runs, "plain").values()


def test_no_name_of_instances_survives_and_the_verdicts_stay(
    runs: Runs, service: Service, manager: SystemsManager
) -> None:
    vpc, ids = with_instances(service, 2, far=1)
    plain = ran(runs, "plain", "--cluster", TEAM, CHECKS)
    names = [*ids, vpc.id, vpc.near, vpc.far, vpc.security_group, "ami-12345678", "ip-10-9-0-"]
    assert {name for _, name in surviving(plain, names)} == set(names)
    assert surviving(ran(runs, "redacted", "--cluster", TEAM, CHECKS, "--redact"), names) == []
    assert verdicts(runs, "redacted") == verdicts(runs, "plain")


def test_a_recording_with_names_is_redacted_when_it_is_replayed(runs: Runs, service: Service) -> None:
    vpc = with_cluster(service, {"workers": ("ml.p5.48xlarge", 3)})
    ill(service, vpc)
    ran(runs, "plain", "--cluster", NAME, CHECKS, "-k", "not network_layers and not slurm")
    recorded = f"replay:{runs.folder / 'plain' / 'recorded'}"
    texts = ran(runs, "redacted", "--cluster", recorded, CHECKS, "-k", "not network_layers and not slurm", "--redact")
    assert surviving(texts, [NAME, ID, "123456789012", vpc.id, vpc.security_group, *NAMES_IN_MESSAGE]) == []
    assert verdicts(runs, "redacted") == verdicts(runs, "plain")


def redacted(detail: str, name: str = "prod-west") -> str:
    """What remains of AWS's message about a collector."""
    targets = (Target("gpu001", "sagemaker-cluster:a1b2c3d4e5f6_workers-i-0123456789abcdef0"),)
    settings = {"region": "us-west-2", "arn": "arn:aws:sagemaker:us-west-2:123456789012:cluster/a1b2c3d4e5f6"}
    evidence = NodeEvidence(name, {"hyperpod": Collected(Status.BROKE, detail=detail)})
    return (
        Redaction(Cluster(name, "hyperpod", targets, settings)).of_control_plane(evidence).collectors["hyperpod"].detail
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prod-west in 123456789012 is gone", "cluster in account-1 is gone"),
        ("i-0123456789abcdef0 of a1b2c3d4e5f6", "node1 of cluster"),
        ("arn:aws:iam::210987654321:role/Admin, in use", "arn-1, in use"),
        ("210987654321 and 210987654321", "account-2 and account-2"),
        ("igw-0123456789abcdef0 nn-0123456789abcdef0 vpce-0123456789abcdef0", "resource-1 resource-2 resource-3"),
        ("us-west-2a of p5.48xlarge: ec2:DescribeSubnets", "us-west-2a of p5.48xlarge: ec2:DescribeSubnets"),
    ],
)
def test_what_names_something_of_the_account_gets_a_word(text: str, expected: str) -> None:
    assert re.sub(r"(account|arn)-\d", r"\1-N", redacted(text)) == re.sub(r"(account|arn)-\d", r"\1-N", expected)
