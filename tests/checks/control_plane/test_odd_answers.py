"""Results of the cluster's checks on odd or incomplete answers of AWS and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.aws import interfaces
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.aws.facts_account import needs
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node
from tests.checks.control_plane.slurm_faults import healthy

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS


def facts(types: Mapping[str, str], collectors: Mapping[str, Any], **settings: str) -> ClusterFacts:
    """A cluster of instances of these types, by name, on which AWS or Slurm reported this."""
    targets = tuple(Target(name, instance_type=kind) for name, kind in types.items())
    cluster = Cluster("c", "ssm", targets, {"region": "us-west-2", **settings})
    evidence = NodeEvidence("c", {name: Collected(Status.READ, value) for name, value in collectors.items()})
    return ClusterFacts(cluster, evidence, nodes(cluster, {name: NodeEvidence(name) for name in types}))


def evaluated(check: str, types: Mapping[str, str], **collectors: Any) -> Result:
    return evaluate(all_checks()[f"control_plane.{check}"], facts(types, collectors))


def quotas(types: Mapping[str, str], *without: str, value: float = 1000.0) -> dict[str, Any]:
    """The quotas that such a cluster needs, except those with these words in their names."""
    wanted = [need for need in needs(facts(types, {})) if not any(part in need.name for part in without)]
    return {"quotas": [{"service": need.service, "name": need.name, "value": value} for need in wanted]}


P5 = {"a": "p5.48xlarge", "b": "p5.48xlarge"}
UNKNOWN = {"a": "p5.48xlarge", "b": "p9.metal"}


@pytest.mark.parametrize(
    ("types", "without", "value", "verdict", "message"),
    [
        (P5, (), 1000.0, PASS, ""),
        (P5, (), 66.0, PASS, ""),
        (P5, (), 1.0, FAIL, "are needed; expected at least what the cluster needs"),
        (P5, ("etwork interface",), 1000.0, INCOMPLETE, "AWS reports no quota"),
        (UNKNOWN, (), 1000.0, INCOMPLETE, "the catalogue lacks an instance type, so the need for"),
    ],
)
def test_quotas_allow_what_the_cluster_needs(
    types: Mapping[str, str], without: tuple[str, ...], value: float, verdict: Verdict, message: str
) -> None:
    expect(evaluated("service_quotas", types, quotas=quotas(types, *without, value=value)), verdict, message)


def test_a_type_with_accelerators_that_nobody_knows_has_no_number_of_interfaces() -> None:
    assert interfaces("p5.48xlarge", PACKAGED) == 32
    assert interfaces("c5.large", PACKAGED) == 1
    assert interfaces("p9.metal", PACKAGED) is None


def instances(*described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "instances": [
            {"hostname": name, "InstanceType": "x", **fields} for name, fields in zip("ab", described, strict=True)
        ]
    }


@pytest.mark.parametrize(
    ("images", "verdict", "message"),
    [
        (("ami-1", "ami-1"), PASS, ""),
        (("ami-1", "ami-2"), CONCERN, "the nodes: 1 of ami-1 and 1 of ami-2; expected one image in each group"),
        (("ami-1", None), INCOMPLETE, "AWS reports no image for 1 of 2 nodes; expected one for each"),
    ],
)
def test_instances_without_a_group_are_called_the_nodes(images: Any, verdict: Verdict, message: str) -> None:
    of_images = instances(*({"ImageId": image} for image in images))
    expect(evaluated("image_uniform", P5, instances=of_images), verdict, message)


def test_nodes_outside_an_ultraserver_are_named() -> None:
    blocks = [{"hostname": "a", "CapacityBlockId": "cr-1"}, {"hostname": "b", "CapacityBlockId": ""}]
    types = dict.fromkeys("ab", "p6e-gb200.36xlarge")
    result = evaluated("ultraserver_block", types, instance_topology={"instances": blocks})
    expect(result, CONCERN, "the nodes: b of 2 nodes in no UltraServer; expected every node of the group in one")


def slurm(**changed: str) -> dict[str, Any]:
    """Slurm's report, with one node's changed."""
    report = healthy()
    report["nodes"][0].update(changed)
    return report


FOUR = {f"gpu{number:03}": "p5.48xlarge" for number in range(1, 5)}


@pytest.mark.parametrize(
    ("types", "data", "verdict", "message"),
    [
        (FOUR, slurm(), PASS, ""),
        (FOUR, slurm(gres=""), FAIL, "gpu001 has GRES (null) and 8 GPUs; expected the same number"),
        (FOUR, slurm(gres="gpu:nvidia_h100_1g.10gb:56(S:0-1)"), PASS, ""),
        (dict.fromkeys(["gpu001"], "p5.48xlarge"), slurm(gres="gpu:1g.10gb:56"), Verdict.NOT_APPLICABLE, "MIG"),
        ({**FOUR, "gpu009": "p5.48xlarge"}, slurm(), INCOMPLETE, "Slurm knows no node gpu009"),
        ({**FOUR, "gpu009": "p5.48xlarge"}, slurm(gres="gpu:7"), FAIL, "gpu001 has GRES gpu:7 and 8 GPUs"),
        (
            {**FOUR, "gpu001": "p9.metal"},
            slurm(),
            INCOMPLETE,
            "gpu001: instance type 'p9.metal' is not in the catalogue",
        ),
    ],
)
def test_slurm_counts_the_gpus_of_each_node(types: Any, data: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("slurm_gres", types, slurm=data), verdict, message)


def test_nodes_that_get_no_jobs_are_reported_by_state_and_reason() -> None:
    report = healthy()
    for number in (0, 1):
        report["nodes"][number].update(state="IDLE+DRAIN", reason="fan")
    report["nodes"][2].update(state="DOWN*")
    expect(
        evaluated("slurm_nodes_take_jobs", FOUR, slurm=report),
        FAIL,
        "gpu[001-002]: IDLE+DRAIN (fan), gpu003: DOWN*; exp",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [("(null)", "PrologFlags is not set; expected"), ("Contain", "PrologFlags is Contain; expected")],
)
def test_the_flags_of_a_prolog_are_named(flags: str, message: str) -> None:
    report = healthy()
    report["config"]["PrologFlags"] = flags
    expect(evaluated("slurm_config", FOUR, slurm=report), CONCERN, message)


@pytest.mark.parametrize(
    ("state", "gres", "verdict", "message"),
    [
        ("IDLE", "gpu:8", PASS, ""),
        ("UNKNOWN", "gpu:8", INCOMPLETE, "Slurm reports it as UNKNOWN; expected a known state"),
        ("UNKNOWN*", "gpu:8", INCOMPLETE, "Slurm reports it as UNKNOWN*; expected a known state"),
        ("", "gpu:8", INCOMPLETE, "Slurm reports it as nothing; expected a known state"),
        ("IDLE+DRAI", "gpu:8", INCOMPLETE, "Slurm reports it as IDLE+DRAI; expected a known state"),
        ("DOWN$", "gpu:8", FAIL, "Slurm reports it as DOWN$; expected a node that takes jobs"),  # from older versions
        ("IDLE*", "gpu:8", CONCERN, "slurmctld gets no response from it (IDLE*); expected slurmd to answer"),
        ("IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING", "gpu:8", PASS, ""),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "gpu:8", PASS, ""),
        ("FAILING", "gpu:8", FAIL, "Slurm reports it as FAILING; expected a node that takes jobs"),
        ("IDLE", "", CONCERN, "GRES (null); expected 8 GPUs"),
        ("IDLE", "gpu:h100:4,gpu:h100_1g.10gb:28", PASS, ""),
    ],
)
def test_a_captured_state_of_slurm_is_one_that_takes_jobs(
    state: str, gres: str, verdict: Verdict, message: str
) -> None:
    slurm_node = {**healthy()["nodes"][0], "state": state, "gres": gres}
    evidence = node("gpu001", slurm_node={"nodes": [slurm_node]})
    expect(result_of("control_plane.slurm_nodes", evidence, instance_type="p5.48xlarge"), verdict, message)


def test_a_public_subnet_is_named_beside_one_whose_route_table_is_unknown() -> None:
    instances = [{"SubnetId": f"subnet-{name}"} for name in "ab"]
    subnets = [{"SubnetId": f"subnet-{name}", "VpcId": f"vpc-{name}", "MapPublicIpOnLaunch": False} for name in "ab"]
    table = {"RouteTableId": "rtb-b", "VpcId": "vpc-b", "main": True, "SubnetIds": [], "default": ["internet gateway"]}
    collectors = {"instances": {"instances": instances}, "subnets": {"subnets": subnets}}
    result = evaluated("subnet_private", P5, **collectors, route_tables={"tables": [table]})
    expect(result, INCOMPLETE, "AWS reports no route table of subnet-a")
    assert "subnet-b routes to an internet gateway; expected private subnets" in result.message


def test_a_closed_security_group_is_named_beside_one_whose_rules_are_unknown() -> None:
    instances = [{"SecurityGroupIds": ["sg-a", "sg-b"], "InstanceType": "p5.48xlarge", "hostname": "a"}]
    groups = [{"GroupId": "sg-a", "inbound": None, "outbound": []}, {"GroupId": "sg-b", "inbound": [], "outbound": []}]
    collectors = {"instances": {"instances": instances}, "security_groups": {"groups": groups}}
    result = evaluated("security_group_self_reference", {"a": "p5.48xlarge"}, **collectors)
    expect(result, FAIL, "sg-b does not allow traffic with itself inbound and outbound")
    assert "sg-a: inbound was not reported" in result.message
