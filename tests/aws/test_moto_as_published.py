"""AWS as moto serves it, without a proxy and with nothing replaced."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

import boto3
import pytest

from clusterproof.plugins.aws import Account
from clusterproof.plugins.aws import collectors as aws
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.inventory import Cluster, InventoryError, resolve
from tests.aws.ec2 import Vpc, with_vpc
from tests.aws.service import Service, environment

NAME = "as-published"
PAGE = 100  # for ListClusterNodes: moto returns its first page again and again
SETTINGS = {"fsx_window_minutes": "180"}


@pytest.fixture
def vpc(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Vpc:
    """A network in moto that boto3 finds."""
    urllib.request.urlopen(urllib.request.Request(f"{moto_url}/moto-api/reset", method="POST")).close()
    published = Service(moto_url, moto_url)
    for name, value in environment(published).items():
        monkeypatch.setenv(name, value)
    return with_vpc(published, "10.9")


def hyperpod(vpc: Vpc, count: int) -> None:
    """A HyperPod cluster with this many nodes."""
    workers = {
        "InstanceGroupName": "workers",
        "InstanceType": "ml.p5.48xlarge",
        "InstanceCount": count,
        "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-lifecycle/", "OnCreate": "on_create.sh"},
        "ExecutionRole": "arn:aws:iam::123456789012:role/node",
        "ThreadsPerCore": 1,
    }
    boto3.client("sagemaker").create_cluster(ClusterName=NAME, VpcConfig=vpc.config, InstanceGroups=[workers])


def output_of(cluster: Cluster, collector: str) -> Collected:
    """What AWS returns for one collector."""
    return aws.ask(Account("us-west-2"), cluster_with(cluster, SETTINGS), [collector]).collectors[collector]


def cluster_with(cluster: Cluster, settings: Mapping[str, str]) -> Cluster:
    return Cluster(cluster.name, cluster.connection, cluster.targets, settings={**cluster.settings, **settings})


def test_a_page_of_nodes_is_a_cluster(vpc: Vpc) -> None:
    hyperpod(vpc, PAGE)
    cluster = resolve(NAME)
    assert (cluster.connection, len(cluster.targets)) == ("hyperpod", PAGE)
    assert {target.instance_type for target in cluster.targets} == {"p5.48xlarge"}
    assert output_of(cluster, "hyperpod").value["cluster"]["ClusterStatus"] == "InService"
    assert len(output_of(cluster, "hyperpod_nodes").value["nodes"]) == PAGE


def test_a_service_that_returns_a_page_twice_is_refused_and_not_asked_for_ever(vpc: Vpc) -> None:
    hyperpod(vpc, PAGE + 1)
    with pytest.raises(InventoryError, match=r"sagemaker:ListClusterNodes: .* same next token was received twice"):
        resolve(NAME)


@pytest.mark.parametrize(
    "collector", ["instances", "subnets", "security_groups", "route_tables", "vpc_endpoints", "fsx"]
)
def test_what_moto_returns_for_instances_and_their_network_is_understood(vpc: Vpc, collector: str) -> None:
    answer = output_of(instances(vpc), collector)
    assert answer.status is Status.READ, answer.detail


@pytest.mark.parametrize("collector", ["quotas", "instance_topology"])
def test_what_moto_does_not_know_is_one_line(vpc: Vpc, collector: str) -> None:
    answer = output_of(instances(vpc), collector)
    assert answer.status is Status.BROKE
    assert "\n" not in answer.detail


def instances(vpc: Vpc) -> Cluster:
    """A cluster of two EC2 instances."""
    launched = boto3.client("ec2").run_instances(
        ImageId="ami-12345678",
        MinCount=2,
        MaxCount=2,
        InstanceType="p5.48xlarge",
        SubnetId=vpc.near,
        SecurityGroupIds=[vpc.security_group],
    )
    cluster = resolve("ec2:" + ",".join(instance["InstanceId"] for instance in launched["Instances"]))
    assert len(cluster.targets) == 2
    return cluster
