"""Network positions of nodes: what HyperPod's nodes and EC2 report, and how checks and reports use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.aws.placement import JobGroup, spreads
from tests.aws.cluster_faults import revoked
from tests.aws.cluster_runs import CHECKS, findings_of, messages, verdicts
from tests.aws.clusters import NAME, with_cluster
from tests.aws.ec2 import TEAM, launched, open_to_internet, with_instances, with_quotas, with_topology
from tests.aws.service import DENIED, Service
from tests.aws.standing import config_of, with_nodes
from tests.aws.systems_manager import SystemsManager
from tests.builders.runs import Runs

pytest_plugins = ["pytester"]
WORKERS = {"workers": ("ml.p5.48xlarge", 3)}
LAYERS = {"workers-0": ["nn-1", "nn-2", "nn-3"], "workers-1": ["nn-1", "nn-2", "nn-3"]}


def ran_on_nodes(
    runs: Runs, service: Service, manager: SystemsManager, root: Path, config: str | None, *more: str
) -> pytest.RunResult:
    """The check of network layers over three nodes with this resource_config.json."""
    with_cluster(service, WORKERS)
    with_nodes(manager, root, config)
    return runs.run(
        *("--cluster", NAME, "--host-root", str(root), "--results", str(runs.results_file), CHECKS),
        *("-k", "network_layers", *more),
    )


@pytest.mark.parametrize(
    ("config", "verdict", "message"),
    [
        (config_of(LAYERS | {"workers-2": ["nn-1", "nn-2", "nn-3"]}), Verdict.PASS, ""),
        (
            config_of(LAYERS | {"workers-2": ["nn-1", "nn-2", "nn-4"]}),
            Verdict.CONCERN,
            "workers: 2 in nn-3 (ip-10-181-0-[1-2]), 1 in nn-4 (ip-10-181-0-3); expected",
        ),
        (config_of(LAYERS), Verdict.INCOMPLETE, "AWS reports no network layer for ip-10-181-0-3"),
        (config_of({"workers-0": [], "workers-1": [], "workers-2": []}), Verdict.NOT_APPLICABLE, "no network layers"),
        (None, Verdict.NOT_APPLICABLE, "HyperPod wrote no resource_config.json here"),
        ("{", Verdict.INCOMPLETE, "is not JSON"),
    ],
    ids=["one network node", "two network nodes", "a node that is not in the file", "no labels", "no file", "not JSON"],
)
def test_network_layers_of_hyperpod_nodes_are_what_they_say_themselves(
    runs: Runs, service: Service, manager: SystemsManager, tmp_path: Path, config: str, verdict: Verdict, message: str
) -> None:
    ran_on_nodes(runs, service, manager, tmp_path / "root", config)
    assert verdicts(runs) == {"control_plane.network_layers": verdict}, messages(runs)
    assert message in messages(runs)


def test_a_site_says_how_many_network_nodes_it_expects(
    runs: Runs, service: Service, manager: SystemsManager, tmp_path: Path
) -> None:
    (runs.folder / "clusterproof.toml").write_text("[thresholds]\nplacement.network_nodes = 2\n")
    config = config_of(LAYERS | {"workers-2": ["nn-1", "nn-2", "nn-4"]})
    ran_on_nodes(runs, service, manager, tmp_path / "root", config)
    assert verdicts(runs) == {"control_plane.network_layers": Verdict.PASS}, messages(runs)


def test_the_page_has_every_network_layer(
    runs: Runs, service: Service, manager: SystemsManager, tmp_path: Path
) -> None:
    config = config_of(LAYERS | {"workers-2": ["nn-1", "<nn-5>", "nn-4"]})
    ended = ran_on_nodes(runs, service, manager, tmp_path / "root", config, "--html", "page.html")
    ended.stdout.fnmatch_lines(["topology    workers in 2 network nodes: 2 in nn-3, 1 in nn-4"])
    page = (runs.folder / "page.html").read_text()
    assert "<td>–</td><td>nn-1</td><td>&lt;nn-5&gt;</td><td>nn-4</td><td>–</td><td>1</td><td>ip-10-181-0-3</td>" in page


# EC2 instances

OF_HYPERPOD = {"cluster_in_service", "nodes_running", "node_recovery", "deep_health_checks"}


def ran_on_instances(runs: Runs, *more: str) -> pytest.RunResult:
    of_aws = ("-k", "not k8s and not node_health and not slurm")
    return runs.run("--cluster", TEAM, "--results", str(runs.results_file), CHECKS, *of_aws, *more)


def test_instances_that_are_as_they_should_be_pass(runs: Runs, service: Service, manager: SystemsManager) -> None:
    with_instances(service)
    ran_on_instances(runs)
    assert findings_of(runs) == {}, messages(runs)
    not_applicable = {
        name.partition(".")[2] for name, verdict in verdicts(runs).items() if verdict is Verdict.NOT_APPLICABLE
    }
    assert not_applicable == {*OF_HYPERPOD, "ultraserver_block"}
    assert messages(runs).count(f"{TEAM} is not a HyperPod cluster") == len(OF_HYPERPOD)
    assert not {"DescribeCluster", "ListClusterNodes"} & set(service.calls)


def in_two_zones(service: Service) -> None:
    with_instances(service, 2, far=1)


def of_two_images(service: Service) -> None:
    with_instances(service, 2, others=1)


def of_two_types(service: Service) -> None:
    vpc, _ = with_instances(service, 2)
    launched(service, vpc.near, vpc.security_group, 1, instance_type="p5e.48xlarge")


def closed(service: Service) -> None:
    vpc, _ = with_instances(service)
    revoked("ingress", service, vpc)


def public(service: Service) -> None:
    vpc, _ = with_instances(service)
    open_to_internet(service, vpc)


def on_two_network_nodes(service: Service) -> None:
    _, ids = with_instances(service)
    with_topology(service, {instance: ["nn-1", "nn-2", f"nn-{3 + (instance == ids[0])}"] for instance in ids})


def topology_of_two(service: Service) -> None:
    _, ids = with_instances(service)
    with_topology(service, {instance: ["nn-1", "nn-2", "nn-3"] for instance in ids[:2]})


def in_two_ultraservers(service: Service) -> None:
    _, ids = with_instances(service)
    blocks = {instance: f"cb-{int(instance == ids[0])}" for instance in ids}
    with_topology(service, {instance: ["nn-1", "nn-2", "nn-3"] for instance in ids}, blocks)


def few_interfaces(service: Service) -> None:
    with_instances(service)
    with_quotas(service, [], Network=95)


FAULTS: Mapping[Callable[[Service], None], tuple[dict[str, Verdict], str]] = {
    in_two_zones: ({"single_az": Verdict.FAIL}, "the nodes: 2 in us-west-2a (ip-10-9-0-"),
    of_two_images: ({"image_uniform": Verdict.CONCERN}, "the nodes: 2 of ami-12345678 and 1 of ami-87654321"),
    of_two_types: (
        {"mixed_instance_types": Verdict.CONCERN, "network_layers": Verdict.INCOMPLETE},
        "the nodes: 2 of p5.48xlarge and 1 of p5e.48xlarge",
    ),
    closed: ({"security_group_self_reference": Verdict.FAIL}, "with itself inbound"),
    public: ({"subnet_private": Verdict.CONCERN}, "routes to an internet gateway"),
    on_two_network_nodes: ({"network_layers": Verdict.CONCERN}, "the nodes: 2 in nn-3 ("),
    topology_of_two: ({"network_layers": Verdict.INCOMPLETE}, "AWS reports no network layer for ip-10-9-0-"),
    in_two_ultraservers: ({"ultraserver_block": Verdict.CONCERN}, "the nodes: 2 in cb-0"),
    few_interfaces: ({"service_quotas": Verdict.FAIL}, "Network interfaces per Region is 95, but 96 are needed"),
}


@pytest.mark.parametrize("put", FAULTS, ids=lambda put: put.__name__)
def test_a_fault_of_instances_changes_its_verdicts_and_no_other(
    runs: Runs, service: Service, manager: SystemsManager, put: Callable[[Service], None]
) -> None:
    put(service)
    ran_on_instances(runs)
    expected, message = FAULTS[put]
    assert findings_of(runs) == expected, messages(runs)
    assert message in messages(runs)


@pytest.mark.parametrize(
    ("instance_type", "of_each", "verdict"),
    [
        ("trn2u.48xlarge", (4, 1), Verdict.PASS),
        ("trn2u.48xlarge", (2, 2), Verdict.CONCERN),
        ("p6e-gb200.36xlarge", (9, 1), Verdict.PASS),  # UltraServers of 9
        ("p6e-gb200.36xlarge", (10, 9), Verdict.PASS),  # of 18
        ("p6e-gb200.36xlarge", (10, 8), Verdict.CONCERN),
        ("p6e-gb200.36xlarge", (1, 1), Verdict.CONCERN),
    ],
)
def test_instances_may_need_several_ultraservers(
    runs: Runs, service: Service, instance_type: str, of_each: Sequence[int], verdict: Verdict
) -> None:
    _, ids = with_instances(service, sum(of_each), instance_type=instance_type)
    names = [f"cb-{number}" for number, count in enumerate(of_each) for _ in range(count)]
    with_topology(service, {instance: ["nn-1"] for instance in ids}, dict(zip(ids, names, strict=True)))
    ran_on_instances(runs, "-k", "ultraserver_block")
    assert verdicts(runs) == {"control_plane.ultraserver_block": verdict}, messages(runs)


def test_a_replay_of_some_nodes_evaluates_their_images(
    runs: Runs, service: Service, manager: SystemsManager, tmp_path: Path
) -> None:
    of_two_images(service)
    ran_on_instances(runs, "--record", str(tmp_path / "recorded"))
    some = ("--nodes", "ip-10-9-0-[4-5]", "-k", "image_uniform")
    ran_on_instances(runs, "--cluster", f"replay:{tmp_path / 'recorded'}", *some)
    assert verdicts(runs) == {"control_plane.image_uniform": Verdict.PASS}, messages(runs)


def test_types_without_a_topology_have_no_network_layers(runs: Runs, service: Service, manager: SystemsManager) -> None:
    with_instances(service)
    with_topology(service, {})
    ran_on_instances(runs)
    assert verdicts(runs)["control_plane.network_layers"] is Verdict.NOT_APPLICABLE


def test_more_than_a_hundred_instances_take_several_calls(
    runs: Runs, service: Service, manager: SystemsManager
) -> None:
    with_instances(service, 120)
    calm = manager.run("", ["/bin/true"])
    manager.run = lambda _target, _words: calm
    ran_on_instances(runs, "-k", "network_layers")
    assert findings_of(runs) == {}, messages(runs)
    assert service.calls.count("DescribeInstanceTopology") == 2


@pytest.mark.parametrize(
    ("action", "needing"),
    [
        (
            "DescribeInstances",
            {"single_az", "image_uniform", "security_group_self_reference", "subnet_private", "vpc_endpoints"},
        ),
        ("DescribeInstanceTopology", {"network_layers", "ultraserver_block"}),
    ],
)
def test_a_denied_action_of_ec2_costs_the_checks_that_need_it_and_is_named(
    runs: Runs, service: Service, manager: SystemsManager, action: str, needing: set[str]
) -> None:
    with_instances(service)
    if action == "DescribeInstances":
        deny_the_second(service, action)
    else:
        service.says(action, DENIED)
    ran_on_instances(runs)
    assert findings_of(runs) == dict.fromkeys(needing, Verdict.INCOMPLETE)
    incomplete = [result.message for result in runs.results if result.verdict is Verdict.INCOMPLETE]
    assert all(f"ec2:{action} is not allowed to this identity" in message for message in incomplete)


def deny_the_second(service: Service, action: str) -> None:
    """Let the inventory's call succeed, and deny the next one."""
    service.allows_first[action] = 1
    service.says(action, DENIED)


# The rule


@given(st.dictionaries(st.text("abc", min_size=1), st.sampled_from(["", "x", "y", "z"]), min_size=1))
def test_every_node_is_in_one_place_or_unknown(place_of: Mapping[str, str]) -> None:
    (spread,) = spreads([JobGroup("g", tuple(place_of))], place_of)
    placed: Sequence[str] = [node for nodes in spread.places.values() for node in nodes]
    assert sorted([*placed, *spread.unknown]) == sorted(place_of)
    assert set(spread.places) == set(place_of.values()) - {""}
    counts = [len(nodes) for nodes in spread.places.values()]
    assert counts == sorted(counts, reverse=True)
