"""Clusters by name, ARN, tag, id and Auto Scaling group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.evidence.recording import write_cluster
from clusterproof.plugins.inventory import Cluster, resolve
from tests.aws.clusters import ARN, ID, NAME, WORKERS, client, instance_id, refused, with_cluster
from tests.aws.service import DENIED, THROTTLED, Service


@pytest.mark.parametrize("text", [NAME, ARN])
def test_a_hyperpod_cluster_is_named_by_its_name_or_arn(service: Service, text: str) -> None:
    with_cluster(service, WORKERS)
    cluster = resolve(text)
    assert (cluster.name, cluster.connection) == (NAME, "hyperpod")
    assert cluster.settings == {"region": "us-west-2", "arn": ARN}
    assert [target.instance_type for target in cluster.targets] == ["p5.48xlarge"] * 3
    first = cluster.targets[0]
    assert first.address == f"sagemaker-cluster:{ID}_workers-{instance_id('workers-0')}"
    assert first.name.startswith("ip-10-")
    assert "." not in first.name
    assert first.group == "workers"


def test_every_page_of_a_large_cluster_is_read(service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 1200)})
    cluster = resolve(NAME)
    assert len({target.address for target in cluster.targets}) == 1200
    assert service.calls.count("ListClusterNodes") == 12


def test_controllers_and_login_nodes_are_recognised_and_left_out(service: Service) -> None:
    with_cluster(service, WORKERS | {"controller-machine": ("ml.m5.xlarge", 1), "login-group": ("ml.m5.xlarge", 2)})
    cluster = resolve(NAME)
    assert {target.group for target in cluster.targets} == {"workers"}
    assert cluster.notes == ("not validated: 1 controller and 2 logins",)


def test_the_role_that_the_api_returns_takes_precedence_over_the_groups_name(service: Service) -> None:
    with_cluster(service, {"controller-lookalikes": ("ml.p5.48xlarge", 1), "brain": ("ml.m5.xlarge", 1)})
    describe = service.changes["DescribeCluster"]

    def with_roles(description: dict[str, Any]) -> None:
        describe(description)
        for group, role in zip(description["InstanceGroups"], ("Compute", "Controller"), strict=True):
            group["SlurmConfig"] = {"NodeType": role}

    service.rewrites("DescribeCluster", with_roles)
    assert [target.group for target in resolve(NAME).targets] == ["controller-lookalikes"]


def test_nodes_of_one_name_are_distinguished_by_their_ids(service: Service) -> None:
    with_cluster(service, WORKERS)
    listed = service.served["ListClusterNodes"]

    def nameless(request: dict[str, Any]) -> dict[str, Any]:
        page: Any = listed(request)
        nodes = [{**node, "PrivateDnsHostname": "ip-10-0-0-1.internal"} for node in page["ClusterNodeSummaries"]]
        return {"ClusterNodeSummaries": nodes}

    service.serves("ListClusterNodes", nameless)
    assert [target.name for target in resolve(NAME).targets] == [
        f"workers-{instance_id(f'workers-{number}')}" for number in range(3)
    ]


def test_a_node_that_two_pages_list_is_one_node(service: Service) -> None:
    with_cluster(service, WORKERS)
    listed = service.served["ListClusterNodes"]

    def shifted(request: dict[str, Any]) -> dict[str, Any]:
        page: Any = listed(request)
        return {"ClusterNodeSummaries": [*page["ClusterNodeSummaries"], page["ClusterNodeSummaries"][0]]}

    service.serves("ListClusterNodes", shifted)
    assert len({target.name for target in resolve(NAME).targets}) == len(resolve(NAME).targets) == 3


def test_a_cluster_that_is_not_there_is_one_line_with_those_that_are(service: Service) -> None:
    with_cluster(service, WORKERS)
    assert refused("ml-clusters") == (
        "no HyperPod cluster 'ml-clusters' in us-west-2 (did you mean ml-cluster?); there are ml-cluster; "
        "for a host say ssh:ml-clusters"
    )


def test_of_many_clusters_a_few_are_named_and_the_rest_counted(service: Service) -> None:
    with_cluster(service, WORKERS)
    names = [f"ml-{number:02}" for number in range(1, 31)]
    service.serves("ListClusters", lambda _: {"ClusterSummaries": [{"ClusterName": name} for name in names]})
    assert f"there are {', '.join(names[:8])}, and 22 more; for a host" in refused("research")


def test_a_name_that_is_a_file_too_is_the_files_and_says_so(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cluster(service, WORKERS)
    (tmp_path / NAME).write_text('[[group]]\nnodes = "gpu001"\n')
    monkeypatch.chdir(tmp_path)
    cluster = resolve(NAME)
    assert [target.name for target in cluster.targets] == ["gpu001"]
    assert cluster.notes == ("the name is that of a file here; for a HyperPod cluster called so, give its ARN",)
    assert resolve(ARN).connection == "hyperpod"
    assert "DescribeCluster" in service.calls


def test_a_file_of_others_does_not_take_the_place_of_a_cluster_of_its_name(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ssh settings could name a program to run, and the folder may be anybody's, as /tmp is."""
    with_cluster(service, WORKERS)
    for name in (NAME, "nowhere"):
        (tmp_path / name).write_text('[[group]]\nnodes = "gpu001"\n')
        (tmp_path / name).chmod(0o666)
    monkeypatch.chdir(tmp_path)
    cluster = resolve(NAME)
    said = (
        "the file of that name here is not read: it may be written by others; "
        "with ./ before its name it is read all the same"
    )
    assert cluster.connection == "hyperpod"
    assert cluster.notes[-1] == said
    assert refused("nowhere").endswith(said)
    assert [target.name for target in resolve(f"./{NAME}").targets] == ["gpu001"]


@pytest.mark.parametrize("word", ["lokal", "Local", "local1"])
def test_a_word_close_to_a_kind_is_not_looked_up(word: str, service: Service) -> None:
    hint = "(did you mean local?); for a HyperPod cluster called so, give its ARN"
    assert refused(word) == f"--cluster {word!r} is of no known kind {hint}"
    assert service.calls == []


@pytest.mark.parametrize("name", ["gpu-demo", "local-1", "slurm-prod", "eks-ml"])
def test_a_cluster_whose_name_has_a_kind_in_it_is_looked_up(name: str, service: Service) -> None:
    with_cluster(service, WORKERS)
    assert refused(name).startswith(f"no HyperPod cluster {name!r} in us-west-2; there are ml-cluster; ")


@pytest.mark.parametrize(
    ("action", "needs"),
    [("DescribeCluster", "sagemaker:DescribeCluster"), ("ListClusterNodes", "sagemaker:ListClusterNodes")],
)
def test_a_denied_call_names_the_action_that_is_missing(service: Service, action: str, needs: str) -> None:
    with_cluster(service, WORKERS)
    service.says(action, DENIED)
    assert f"{needs} is not allowed to this identity" in refused(NAME)


def test_throttling_is_waited_out_and_said_once(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    with_cluster(service, WORKERS)
    service.says("ListClusterNodes", THROTTLED, THROTTLED)
    assert len(resolve(NAME).targets) == 3
    assert service.calls.count("ListClusterNodes") == 3
    assert capsys.readouterr().err == "AWS throttles sagemaker:ListClusterNodes; waiting for it\n"


def launched(service: Service, count: int, **tags: str) -> list[str]:
    """Running EC2 instances."""
    ec2 = client(service, "ec2")
    response = ec2.run_instances(
        ImageId="ami-12345678",
        MinCount=count,
        MaxCount=count,
        InstanceType="p5.48xlarge",
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    return sorted(instance["InstanceId"] for instance in response["Instances"])


def shown(cluster: Cluster) -> list[tuple[str, str]]:
    return [(target.address, target.instance_type) for target in cluster.targets]


def test_instances_are_found_by_a_tag(service: Service) -> None:
    ids = launched(service, 3, Team="pretraining")
    launched(service, 2, Team="other")
    cluster = resolve("ec2:tag:Team=pretraining")
    assert shown(cluster) == [(instance, "p5.48xlarge") for instance in ids]
    assert cluster.connection == "ssm"


def test_instances_are_found_by_their_ids(service: Service) -> None:
    ids = launched(service, 3, Name="gpu")
    cluster = resolve(f"ec2:{','.join(ids[:2])}")
    assert shown(cluster) == [(instance, "p5.48xlarge") for instance in ids[:2]]
    assert [target.name for target in cluster.targets] == ids[:2]  # all are called gpu


@pytest.mark.parametrize(("name", "shown"), [("gpu\n 1 ", "gpu 1"), ("gpu\u200b1\x9b2J", "gpu\\u200b1\\x9b2J")])
def test_a_recording_of_an_instance_with_an_odd_name_is_read_back(
    name: str, shown: str, service: Service, tmp_path: Path
) -> None:
    launched(service, 1, Name=name)
    write_cluster(tmp_path, resolve("ec2:tag:Name=gpu*"))
    assert [target.name for target in resolve(f"replay:{tmp_path}").targets] == [shown]


def test_an_instance_that_is_called_by_the_id_of_another_does_not_take_its_place(service: Service) -> None:
    ids = launched(service, 3, Name="gpu")
    client(service, "ec2").create_tags(Resources=ids[:1], Tags=[{"Key": "Name", "Value": ids[2]}])
    cluster = resolve(f"ec2:{','.join(ids)}")
    assert [(target.name, target.address) for target in cluster.targets] == [(instance, instance) for instance in ids]


@pytest.mark.parametrize("by_tag", [False, True], ids=["by id", "by tag"])
def test_a_stopped_instance_is_left_out_and_noted(service: Service, by_tag: bool) -> None:
    ids = launched(service, 3, Name="gpu")
    client(service, "ec2").stop_instances(InstanceIds=ids[:1])
    client(service, "ec2").terminate_instances(InstanceIds=ids[2:])
    cluster = resolve("ec2:tag:Name=gpu" if by_tag else f"ec2:{','.join(ids[:2])}")
    assert [target.name for target in cluster.targets] == ["gpu"]
    assert cluster.notes == (f"not validated: 1 that do not run ({ids[0]} is stopped)",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ec2:", "it names no instance"),
        ("ec2:gpu001", "'gpu001' is not an instance id; expected ec2:tag:Key=Value"),
        ("ec2:tag:Team", "'tag:Team' is not an instance id"),
        ("ec2:tag:Team=nobody", "has no running instance"),
        ("ec2:i-0123456789abcdef0", "InvalidInstanceID.NotFound"),
        ("asg:nowhere", "no Auto Scaling group 'nowhere' in us-west-2"),
    ],
)
def test_what_names_no_instance_is_one_line(service: Service, text: str, message: str) -> None:
    assert message in refused(text)


def test_the_instances_of_an_auto_scaling_group_are_found(service: Service) -> None:
    ec2, scaling = client(service, "ec2"), client(service, "autoscaling")
    template = ec2.create_launch_template(
        LaunchTemplateName="gpu", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "p5.48xlarge"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="gpus",
        MinSize=2,
        MaxSize=2,
        AvailabilityZones=["us-west-2a"],
        LaunchTemplate={"LaunchTemplateId": template},
    )
    cluster = resolve("asg:gpus")
    assert len(cluster.targets) == 2
    assert {target.group for target in cluster.targets} == {"gpus"}
