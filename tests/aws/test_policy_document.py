"""The documented IAM policy: it matches the table of actions, suffices for a whole run, and only reads."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import boto3
import pytest

from clusterproof.plugins.catalog.aws import AwsAction, aws_actions
from clusterproof.plugins.inventory import InventoryError, resolve
from scripts.generators.iam_policy import PATH, in_place, policy
from tests.aws.clusters import NAME, with_cluster
from tests.aws.ec2 import TEAM, with_instances
from tests.aws.service import Service
from tests.aws.systems_manager import SystemsManager
from tests.builders.runs import ROOT, Runs

pytest_plugins = ["pytester"]
READS = re.compile(r"(Describe|List|Get|Filter)[A-Z]\w*")
BESIDES = {"ssm:StartSession", "ssm:TerminateSession", "ssm:SendCommand"}  # used to reach nodes
IAM_NAME = {"monitoring": "cloudwatch"}  # services that sign under another name
IAM_ACTION = {"ListObjectsV2": "ListBucket"}  # operations allowed under another name
ROWS = [pytest.param(row, id=row.action) for row in aws_actions().values()]


def allowed() -> list[str]:
    return [action for statement in policy()["Statement"] for action in statement["Action"]]


def beyond_the_policy(service: Service) -> set[str]:
    """The calls made that the policy does not allow."""
    made = {":".join((IAM_NAME.get(service, service), name)) for service, _, name in map(_parts, service.signed)}
    return {call for call in made if not any(fnmatch(call, action) for action in allowed())}


def _parts(signed: str) -> tuple[str, str, str]:
    return signed.partition(":")


def test_the_policy_of_the_page_is_that_of_the_table() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert text == in_place(text), "run `scripts/generate`"
    assert text.count('"Action"') == len(policy()["Statement"])


@pytest.mark.parametrize("row", ROWS)
def test_an_action_only_reads_or_reaches_a_node(row: AwsAction) -> None:
    assert READS.fullmatch(row.action.partition(":")[2]) or row.action in BESIDES or row.opt_in


def test_nothing_is_written_but_metrics_and_those_only_where_an_option_asks_for_them() -> None:
    assert {row.action: row.opt_in for row in aws_actions().values() if row.opt_in} == {
        "cloudwatch:PutMetricData": "--cloudwatch"
    }
    (statement,) = (entry for entry in policy()["Statement"] if "cloudwatch:PutMetricData" in entry["Action"])
    assert statement["Action"] == ["cloudwatch:PutMetricData"]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "NAMESPACE"}}


@pytest.mark.parametrize("row", ROWS)
def test_an_action_is_that_of_its_operation(row: AwsAction) -> None:
    names = boto3.client(row.service, region_name="us-west-2").meta
    operation = names.method_to_api_mapping[row.operation]
    assert IAM_ACTION.get(operation, operation) == row.action.partition(":")[2]
    signs = names.service_model.signing_name
    assert IAM_NAME.get(signs, signs) == row.action.partition(":")[0]


def test_no_action_is_allowed_by_a_wildcard_or_twice() -> None:
    assert sorted(allowed()) == sorted(row.action for row in aws_actions().values())
    assert "*" not in "".join(allowed())


def test_everything_that_a_whole_run_over_a_hyperpod_cluster_calls_is_allowed(
    runs: Runs, service: Service, manager: SystemsManager
) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 2), "controller": ("ml.m5.xlarge", 1)})
    runs.run("--cluster", NAME, "--record", "recorded", str(ROOT / "checks"))
    with pytest.raises(InventoryError):
        resolve("no-such-cluster")
    assert beyond_the_policy(service) == set()
    assert {"sagemaker:ListClusterNodes", "sagemaker:ListClusters", "ssm:StartSession", "ssm:TerminateSession"} <= set(
        service.signed
    )
    assert {"ec2:DescribeVpcEndpoints", "servicequotas:ListServiceQuotas"} <= set(service.signed)


def test_everything_that_a_whole_run_over_instances_calls_is_allowed(
    runs: Runs, service: Service, manager: SystemsManager
) -> None:
    with_instances(service)
    runs.run("--cluster", TEAM, "--record", "recorded", str(ROOT / "checks"))
    assert beyond_the_policy(service) == set()
    assert {"ec2:DescribeInstanceTopology", "ssm:SendCommand", "ssm:GetCommandInvocation"} <= set(service.signed)


def test_no_call_goes_past_the_table() -> None:
    plugins = Path(ROOT) / "plugins"
    paths = [path for path in plugins.rglob("*.py") if "import boto3" in path.read_text(encoding="utf-8")]
    assert [str(path.relative_to(plugins)) for path in paths] == ["aws/__init__.py"]
