"""EKS: the token for its API server, and a HyperPod cluster that it orchestrates."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs, urlsplit

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.inventory import InventoryError, resolve
from tests.aws.clusters import NAME, with_cluster
from tests.aws.service import Service

EKS = "arn:aws:eks:us-west-2:123456789012:cluster/train"


def orchestrated_by_eks(answer: dict[str, object]) -> None:
    answer["Orchestrator"] = {"Eks": {"ClusterArn": EKS}}


def test_the_token_is_a_signed_question_for_sts_that_names_the_cluster(service: Service) -> None:
    token = Account("us-west-2").eks_token("train")
    prefix, _, encoded = token.partition(".")
    url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    query = parse_qs(urlsplit(url).query)
    assert prefix == "k8s-aws-v1"
    assert "=" not in encoded
    assert (query["Action"], query["X-Amz-Expires"]) == (["GetCallerIdentity"], ["60"])
    assert "x-k8s-aws-id" in query["X-Amz-SignedHeaders"][0]
    assert not service.calls
    assert query["X-Amz-Credential"][0].endswith("/us-west-2/sts/aws4_request")


def test_without_credentials_there_is_no_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError, match="no AWS credentials here"):
        Account("us-west-2").eks_token("train")


def test_a_name_that_no_eks_cluster_has_is_refused(service: Service) -> None:
    with pytest.raises(InventoryError, match="--cluster 'eks:nowhere': eks:DescribeCluster: "):
        resolve("eks:nowhere")
    with pytest.raises(InventoryError, match="'a b' is not the name of an EKS cluster; expected eks:NAME"):
        resolve("eks:a b")


def test_a_hyperpod_cluster_on_eks_is_reached_by_pods_where_that_is_asked(service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 2)})
    service.rewrites("DescribeCluster", orchestrated_by_eks)
    by_session, by_pod = resolve(NAME), resolve(NAME, {"via": "kubernetes"})
    assert (by_session.connection, by_pod.connection) == ("hyperpod", "kubernetes")
    assert by_pod.settings["kubernetes"] == "eks:train"
    assert by_pod.settings["arn"] == by_session.settings["arn"]
    assert [target.address for target in by_pod.targets] == [target.address for target in by_session.targets]
    assert [target.name for target in by_pod.targets] == [
        f"hyperpod-i-{target.address.rpartition('-i-')[2]}" for target in by_session.targets
    ]


def test_no_group_of_a_hyperpod_cluster_on_eks_is_left_out_for_its_name(service: Service) -> None:
    with_cluster(service, {"ray-head-node": ("ml.p5.48xlarge", 1), "workers": ("ml.p5.48xlarge", 40)})
    service.rewrites("DescribeCluster", orchestrated_by_eks)
    cluster = resolve(NAME)
    assert {target.group for target in cluster.targets} == {"ray-head-node", "workers"}
    assert (cluster.connection, cluster.notes) == ("hyperpod", ())


def test_one_on_slurm_has_no_pods(service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 2)})
    with pytest.raises(InventoryError, match="is not orchestrated by EKS; expected --via auto"):
        resolve(NAME, {"via": "kubernetes"})


@pytest.mark.parametrize(
    ("types", "verdict", "message"),
    [
        (("p5.48xlarge", "p5.48xlarge"), Verdict.PASS, ""),
        (
            ("p5.48xlarge", ""),
            Verdict.INCOMPLETE,
            "the instance type of 1 of 2 nodes is not known; expected each known",
        ),
        (
            ("p5.48xlarge", "p5e.48xlarge", ""),
            Verdict.INCOMPLETE,
            "the nodes: 1 of p5.48xlarge and 1 of p5e.48xlarge; expected one instance type in each group",
        ),
    ],
)
def test_a_node_of_an_unknown_type_is_not_of_another(types: tuple[str, ...], verdict: Verdict, message: str) -> None:
    targets = tuple(Target(f"n{number}", instance_type=kind) for number, kind in enumerate(types))
    cluster = Cluster("eks:train", "kubernetes", targets, {"region": "us-west-2"})
    check = all_checks()["control_plane.mixed_instance_types"]
    result = evaluate(check, ClusterFacts(cluster, NodeEvidence(cluster.name), {}))
    assert result.verdict is verdict, result.message
    assert message in result.message
