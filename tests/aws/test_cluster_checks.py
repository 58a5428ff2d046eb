"""Checks of the cluster itself as users run them: pytest, AWS over HTTP, a recording, a replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.aws.collectors.vpc import service_of
from clusterproof.plugins.core.result import CLUSTER_SUBJECTS, MEMBER_SUBJECT
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.check import SUBJECTS_OF_CLUSTER
from clusterproof.plugins.evidence.cluster import HYPERPOD_COLLECTORS, NOT_OF_AWS
from tests.aws.cluster_faults import FAULTS, closed_inward, described, giving_addresses, in_two_zones, listed
from tests.aws.cluster_runs import CHECKS, findings_of, messages, verdicts
from tests.aws.clusters import NAME, WORKERS, with_another_group, with_cluster
from tests.aws.ec2 import Vpc, with_quotas
from tests.aws.service import DENIED, Service
from tests.builders.runs import Runs

pytest_plugins = ["pytester"]
OF_AWS_ALONE = ("-k", "not network_layers and not slurm and not k8s and not node_health")  # these look at nodes
OF_CONTROL_PLANE = [
    name
    for name, check in all_checks().items()
    if check.subject == "cluster" and check.control_collectors.isdisjoint(NOT_OF_AWS)
]
PASSING = Verdict.PASS
NOWHERE = {"control_plane.ultraserver_block": Verdict.NOT_APPLICABLE}


def ran(runs: Runs, *arguments: str) -> pytest.RunResult:
    """The control plane checks that only need AWS, run over the cluster."""
    return runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS, *OF_AWS_ALONE, *arguments)


def test_the_subjects_of_the_cluster_are_those_that_results_know() -> None:
    assert set(SUBJECTS_OF_CLUSTER) == {*CLUSTER_SUBJECTS, MEMBER_SUBJECT}


def test_a_cluster_in_service_passes(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    ended = ran(runs)
    assert verdicts(runs) == dict.fromkeys(verdicts(runs), PASSING) | NOWHERE
    assert len(verdicts(runs)) == len(OF_CONTROL_PLANE) - 1
    ended.stdout.fnmatch_lines(["cluster: ml-cluster: 3 nodes (ip-*) by hyperpod, p5.48xlarge"])
    ended.stdout.fnmatch_lines(["cluster-wide checks: passed"])
    ended.stdout.no_fnmatch_line("*topology *")


@pytest.mark.parametrize("put", FAULTS, ids=lambda put: put.__name__)
def test_a_fault_changes_its_verdicts_and_no_other(
    runs: Runs, service: Service, put: Callable[[Service, Vpc], None]
) -> None:
    put(service, with_cluster(service, WORKERS))
    ran(runs)
    expected, message = FAULTS[put]
    assert findings_of(runs) == expected, messages(runs)
    assert message in messages(runs)


def test_every_check_of_the_control_plane_is_proven_to_fail_or_worry() -> None:
    bad = (Verdict.FAIL, Verdict.CONCERN)
    proven = {name for expected, _ in FAULTS.values() for name, verdict in expected.items() if verdict in bad}
    there = {name.partition(".")[2] for name in OF_CONTROL_PLANE}
    assert proven | {"network_layers"} == there


def test_a_spread_is_a_line_of_the_summary_and_the_page_has_every_place(runs: Runs, service: Service) -> None:
    in_two_zones(service, with_cluster(service, WORKERS))
    ended = ran(runs, "--html", "page.html")
    ended.stdout.fnmatch_lines(["topology    workers in 2 availability zones: 2 in us-west-2a, 1 in us-west-2b"])
    page = (runs.folder / "page.html").read_text()
    assert "<td>workers</td><td>us-west-2a</td><td>–</td><td>2</td><td>ip-10-181-0-[1-2]</td>" in page


def test_quotas_that_nobody_raised_are_those_of_aws(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    with_quotas(service, ["ml.p5.48xlarge"], defaults=["VPCs per Region"])
    ran(runs)
    assert findings_of(runs) == {}
    assert service.calls.count("ListAWSDefaultServiceQuotas") == 2  # two pages for the one service that lacks some


def test_groups_without_accelerators_are_no_job_groups(runs: Runs, service: Service) -> None:
    with_cluster(service, {"workers": ("ml.c5.large", 2)})
    ran(runs)
    not_applicable = {
        name.partition(".")[2] for name, verdict in verdicts(runs).items() if verdict is Verdict.NOT_APPLICABLE
    }
    assert findings_of(runs) == {}
    assert not_applicable == {"single_az", "ultraserver_block", "deep_health_checks", "security_group_self_reference"}


def test_a_cluster_in_a_network_of_sagemakers_own_cannot_be_asked_of_it(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    described(service, lambda description: description.pop("VpcConfig"))
    ran(runs)
    assert findings_of(runs) == {}
    assert messages(runs).count("runs in a network of SageMaker's own") == 3
    assert "DescribeSubnets" not in service.calls
    assert service.calls.count("DescribeClusterNode") == 3


def test_a_denied_look_at_the_nodes_costs_the_zone_where_no_subnet_shows_it(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    described(service, lambda description: description.pop("VpcConfig"))
    service.says("DescribeClusterNode", DENIED)
    ran(runs)
    assert findings_of(runs) == {"single_az": Verdict.INCOMPLETE}
    assert "sagemaker:DescribeClusterNode is not allowed to this identity" in messages(runs)


def test_a_denied_look_at_one_node_does_not_hide_that_the_others_are_apart(runs: Runs, service: Service) -> None:
    in_two_zones(service, with_cluster(service, WORKERS))
    listed(service, lambda rows: rows[0].update(PrivateDnsHostname="somewhere.internal"))
    service.says("DescribeClusterNode", DENIED)
    ran(runs)
    assert findings_of(runs) == {"single_az": Verdict.FAIL}
    assert "of 1 nobody knows" in messages(runs)


def test_a_group_that_was_just_removed_does_not_hide_that_nodes_are_apart(runs: Runs, service: Service) -> None:
    """The listing has a node of it that the description does not have any more."""
    in_two_zones(service, with_cluster(service, WORKERS))
    listed(service, lambda rows: rows[0].update(InstanceGroupName="removed"))
    ran(runs, "-k", "single_az")
    assert findings_of(runs) == {"single_az": Verdict.FAIL}


def test_what_is_deleted_does_not_hide_what_is_wrong_with_the_rest(runs: Runs, service: Service) -> None:
    """A group without nodes still names a subnet and a security group that are gone."""
    vpc = with_cluster(service, WORKERS)
    gone = {"Subnets": ["subnet-0123456789abcdef0"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
    described(service, with_another_group(vpc.config, gone))
    closed_inward(service, vpc)
    giving_addresses(service, vpc)
    ran(runs)
    assert findings_of(runs) == {
        "security_group_self_reference": Verdict.FAIL,
        "subnet_private": Verdict.INCOMPLETE,
        "vpc_endpoints": Verdict.INCOMPLETE,
    }
    assert f"{vpc.near} gives every instance a public address; expected private subnets" in messages(runs)
    assert "nothing about the subnet subnet-0123456789abcdef0" in messages(runs)
    assert "nothing about the security group sg-0123456789abcdef0" in messages(runs)


@pytest.mark.parametrize("status", ["Degraded", "Failed"])
def test_a_complete_group_that_is_not_in_service_is_named_though_its_cluster_is(
    runs: Runs, service: Service, status: str
) -> None:
    with_cluster(service, WORKERS)
    described(service, lambda description: description["InstanceGroups"][0].update(Status=status))
    ran(runs, "-k", "cluster_in_service or nodes_running")
    assert findings_of(runs) == {"nodes_running": Verdict.CONCERN}
    assert f"the group workers is {status}; expected every group InService" in messages(runs)


def test_a_quota_without_a_value_does_not_hide_another_that_is_too_low(runs: Runs, service: Service) -> None:
    """AWS gives a reason in place of a value where the service did not answer it."""
    with_cluster(service, WORKERS)
    with_quotas(service, ["ml.p5.48xlarge"], (), Network=95, **{"ml.p5.48xlarge": None})
    ran(runs, "-k", "service_quotas")
    assert findings_of(runs) == {"service_quotas": Verdict.FAIL}
    assert "Network interfaces per Region is 95, but 96 are needed" in messages(runs)


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("com.amazonaws.cn-north-1.s3", "s3"),
        ("cn.com.amazonaws.cn-north-1.ecr.api", "ecr.api"),  # as China's regions call interface endpoints
        ("com.amazonaws.vpce.cn-north-1.vpce-svc-0123456789abcdef0", "vpce-svc-0123456789abcdef0"),
        ("com.example.cn-north-1.ecr.api", "com.example.cn-north-1.ecr.api"),
    ],
)
def test_the_service_of_an_endpoint_is_known_in_china_too(name: str, service: str) -> None:
    assert service_of(name, "cn-north-1") == service


def test_a_replay_gives_the_same_verdicts_without_aws(runs: Runs, service: Service, tmp_path: Path) -> None:
    with_cluster(service, WORKERS)
    ran(runs, "--record", str(tmp_path / "recorded"))
    before = verdicts(runs)
    service.calls.clear()
    runs.run("--cluster", f"replay:{tmp_path / 'recorded'}", "--results", str(runs.results_file), CHECKS, *OF_AWS_ALONE)
    assert verdicts(runs) == before
    assert service.calls == []


# What each denied action costs

NETWORK = {"single_az", "security_group_self_reference", "subnet_private", "vpc_endpoints"}
NEEDED_BY: dict[str, tuple[str, set[str]]] = {
    "DescribeCluster": (
        "sagemaker",
        {"cluster_in_service", "nodes_running", "node_recovery", "deep_health_checks", "service_quotas", *NETWORK},
    ),
    "ListClusterNodes": (
        "sagemaker",
        {"nodes_running", "single_az", "mixed_instance_types", "image_uniform", "ultraserver_block"},
    ),
    "DescribeSubnets": ("ec2", {"single_az", "subnet_private", "vpc_endpoints"}),
    "DescribeSecurityGroups": ("ec2", {"security_group_self_reference"}),
    "DescribeRouteTables": ("ec2", {"subnet_private", "vpc_endpoints"}),
    "DescribeVpcEndpoints": ("ec2", {"vpc_endpoints"}),
    "ListServiceQuotas": ("servicequotas", {"service_quotas"}),
    "ListAWSDefaultServiceQuotas": ("servicequotas", {"service_quotas"}),
}


def denied_after_inventory(service: Service, action: str) -> None:
    """Deny an action; an inventory action once the inventory has been made."""
    if action not in ("DescribeCluster", "ListClusterNodes"):
        service.says(action, DENIED)
    elif action == "DescribeCluster":
        described(service, lambda _: service.says(action, DENIED))
    else:
        listed(service, lambda _: service.says(action, DENIED))


@pytest.mark.parametrize("action", NEEDED_BY)
def test_a_denied_action_costs_the_checks_that_need_it_and_is_named(runs: Runs, service: Service, action: str) -> None:
    with_cluster(service, WORKERS)
    with_quotas(service, ["ml.p5.48xlarge"], defaults=["VPCs per Region"])
    denied_after_inventory(service, action)
    ended = ran(runs)
    prefix, needing = NEEDED_BY[action]
    assert findings_of(runs) == dict.fromkeys(needing, Verdict.INCOMPLETE)
    incomplete = [result.message for result in runs.results if result.verdict is Verdict.INCOMPLETE]
    assert all(f"{prefix}:{action} is not allowed to this identity" in message for message in incomplete)
    assert ended.ret == 10


def test_an_answer_that_several_collectors_need_is_asked_once(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    ran(runs)
    assert {action: service.calls.count(action) for action in NEEDED_BY} == {
        "DescribeCluster": 2,  # once for the inventory
        "ListClusterNodes": 2,
        "DescribeSubnets": 1,  # its zone is that of all nodes, so nothing else is asked
        "DescribeSecurityGroups": 1,
        "DescribeRouteTables": 1,
        "DescribeVpcEndpoints": 1,
        "ListServiceQuotas": 6,  # pages
        "ListAWSDefaultServiceQuotas": 0,
    }


def test_workers_of_xdist_evaluate_the_cluster_by_what_the_controller_asked(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    recorded = runs.folder / "recorded"
    ran(runs, "--record", str(recorded))
    before = verdicts(runs)
    service.calls.clear()
    runs.run("--cluster", f"replay:{recorded}", "--results", str(runs.results_file), CHECKS, *OF_AWS_ALONE, "-n2")
    assert verdicts(runs) == before
    assert service.calls == []


def test_a_recording_without_aws_says_that_aws_was_not_asked(runs: Runs) -> None:
    runs.run("--cluster", "demo", "--results", str(runs.results_file), CHECKS, *OF_AWS_ALONE)
    by_check = {result.check: (result.verdict, result.message) for result in runs.results}
    assert by_check.pop("control_plane.single_az") == (PASSING, "")  # an instance knows its own zone
    for check, (verdict, message) in by_check.items():
        is_of_hyperpod = all_checks()[check].control_collectors <= HYPERPOD_COLLECTORS
        expected = " is not a HyperPod cluster" if is_of_hyperpod else "AWS was not queried: "
        assert verdict is Verdict.NOT_APPLICABLE
        assert expected in message
