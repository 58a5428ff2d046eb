"""`pytest --cluster NAME` as typed by a user: a HyperPod cluster of fake nodes, each with a fault, through SSM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.reports.results import read_results
from tests.aws.clusters import ID, NAME, instance_id, private_name, with_cluster
from tests.aws.service import Service
from tests.aws.storage import CloudWatch, lustre, quiet_lustre
from tests.aws.systems_manager import PLUGINS, SystemsManager, in_nodes, with_agent
from tests.builders.evaluated import probed, results
from tests.faults import BY_NAME
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, entered, healthy_p5

pytestmark = needs_nodes
ROOT = Path(__file__).parents[2]
SICK = [
    "uncorrected errors in DRAM",
    "a GPU that is lost",
    "an Xid of the hardware",
    "a kernel module that is not loaded",
    "a failed unit",
]


def images() -> list[NodeImage]:
    """Five nodes with a fault each, and a healthy one."""
    return [*(BY_NAME[fault].put(healthy_p5(f"gpu{number}")) for number, fault in enumerate(SICK)), healthy_p5("gpu5")]


@pytest.fixture
def nodes(manager: SystemsManager, service: Service, watch: CloudWatch) -> Iterator[list[str]]:
    """The names of the cluster's nodes, which mount a quiet file system; Systems Manager runs commands in them."""
    quiet_lustre(watch, lustre(service))
    with ExitStack() as stack:
        inside: dict[str, Node] = {}
        for number, image in enumerate(images()):
            target = f"sagemaker-cluster:{ID}_workers-{instance_id(f'workers-{number}')}"
            inside[target] = stack.enter_context(entered(with_agent(image), f"gpu{number}"))
        manager.run = in_nodes(inside)
        with_cluster(service, {"workers": ("ml.p5.48xlarge", len(inside))})
        yield [private_name(f"workers-{number}").partition(".")[0] for number in range(len(inside))]


@pytest.mark.parametrize("plugin", PLUGINS, indirect=True)
def test_a_hyperpod_cluster_by_name_gives_the_verdicts_that_a_login_would(
    nodes: list[str], manager: SystemsManager, tmp_path: Path
) -> None:
    written = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "pytest", "--cluster", NAME, "--region", "us-west-2", "--results", str(written)]
    ran = subprocess.run(
        [*command, f"--rootdir={ROOT}", "-p", "no:cacheprovider", str(ROOT / "checks")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    by_node: dict[str, dict[str, Verdict]] = {}
    for result in read_results(written):
        by_node.setdefault(result.node, {})[result.check] = result.verdict
    of_cluster = by_node.pop(NAME)
    direct = {name: probed(image, name) for name, image in zip(nodes, images(), strict=True)}
    expected = {
        name: {
            check: result.verdict
            for check, result in results(
                evidence, peers=list(direct.values()), group="workers", instance_type="p5.48xlarge"
            ).items()
            if "preflight" in occasions(node_checks()[check])
        }
        for name, evidence in direct.items()
    }
    assert by_node == expected, ran.stdout
    assert set(of_cluster.values()) == {Verdict.PASS, Verdict.NOT_APPLICABLE}
    assert of_cluster["storage.fsx_capacity"] is Verdict.PASS  # for the file system that the nodes report mounting
    assert ran.returncode == 1
    assert len(manager.started) == len(nodes)  # exactly one session per node
    assert manager.open == {}
