"""Requirements on every check, and that a run collects from a node only what its checks need."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.benchmarks.load.options import COLLECTORS
from clusterproof.plugins.catalog import owners
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks, node_checks, occasions
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.fact import ONLY_CAPTURED
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.recording import read_cluster
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.transport.gather import replay
from tests.builders.evaluated import probed, results
from tests.faults.gpu import dgx_h100
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_cpu, with_file

# Checks of test logs that no probe collects: not applicable unless captured or put on the node.
CAPTURED = {
    "control_plane.slurm_nodes",
    "gpu.dcgm_diag",
    "host.stress_ng",  # it was given no time
    "network.nccl_correct",
    "network.nccl_transport",
    "neuron.nccom",
    "storage.fs_bandwidth",  # it was given no folder
}
CHECKS = [pytest.param(check, id=name) for name, check in node_checks().items()]


@pytest.fixture(scope="module")
def demo() -> dict[str, Node]:
    """The nodes of the demo cluster."""
    cluster = read_cluster(DEMO)
    return nodes(cluster, replay(DEMO, cluster))


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_says_what_it_finds_what_to_do_how_to_see_it_and_who_owns_it(check: Check) -> None:
    about = check.route
    assert about.title
    assert about.remedy
    assert about.evidence
    assert about.owner in {owner.name for owner in owners().values()}
    assert about.check == f"{about.subsystem}.{check.function.__name__.removeprefix('test_')}"
    assert occasions(check)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_asks_only_for_collectors_that_there_are(check: Check) -> None:
    assert check.collectors <= set(collector_names()) | ONLY_CAPTURED | COLLECTORS


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS)
def test_the_collectors_found_for_a_check_are_all_that_it_reads(check: Check, demo: dict[str, Node]) -> None:
    for name, node in demo.items():
        fewer = {
            collector: value for collector, value in node.evidence.collectors.items() if collector in check.collectors
        }
        alone = Node(node.target, replace(node.evidence, collectors=fewer), group=node.group)
        whole, part = evaluate(check, node), evaluate(check, alone)
        if check.route.check != "node.evidence_complete":  # it looks at every collector
            assert (part.verdict, part.message) == (whole.verdict, whole.message), name


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_passes_a_node_that_reported_nothing(check: Check, demo: dict[str, Node]) -> None:
    silent = Node(demo["gpu001"].target, NodeEvidence("gpu001"))
    spoke = {"node.reachable", "node.evidence_complete"}  # it answered, and nothing was asked
    if check.route.check not in spoke:
        says = Verdict.NOT_APPLICABLE if check.route.check in CAPTURED else Verdict.INCOMPLETE
        assert evaluate(check, silent).verdict is says


@pytest.mark.long
def test_a_finding_says_what_was_observed_and_what_was_expected(demo: dict[str, Node]) -> None:
    results = [evaluate(check, node) for check in node_checks().values() for node in demo.values()]
    findings = [result for result in results if result.verdict in (Verdict.FAIL, Verdict.CONCERN)]
    assert len(findings) > 10
    assert [result.message for result in findings if not (result.observed and result.expected)] == []


def test_the_node_is_asked_for_little_before_a_job() -> None:
    needed = {name: check.collectors for name, check in node_checks().items() if "prolog" in occasions(check)}
    assert "mounts" in needed["host.dev_shm"]
    assert needed["network.memlock"] == {"limits", "rdma", "pci", "platform", "imds"}
    assert needed["node.reachable"] == set()


def of_another_vendor(image: NodeImage) -> NodeImage:
    """A machine that no catalogue knows."""
    image = with_file(image, "/sys/class/dmi/id/sys_vendor", "Quanta\n")
    return with_file(image, "/sys/class/dmi/id/product_name", "D74H\n")


@needs_nodes
@pytest.mark.parametrize("occasion", ["prolog", "preflight"])
@pytest.mark.parametrize(
    ("image", "expect"),
    [
        pytest.param(healthy_cpu("m9x.large"), {"gpus": 0, "efa": 0}, id="an unknown type of EC2"),
        pytest.param(of_another_vendor(healthy_cpu()), {"gpus": 0}, id="CPUs on premises"),
        pytest.param(of_another_vendor(dgx_h100()), {"gpus": 8, "nvlinks": 18, "nvswitch": 4}, id="GPUs on premises"),
    ],
)
def test_a_node_of_no_known_type_that_is_described_leaves_nothing_incomplete(
    image: NodeImage, expect: dict[str, int], occasion: str
) -> None:
    by_check = results(probed(image), occasion, expect=expect)
    well = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    assert {name: result.message for name, result in by_check.items() if result.verdict not in well} == {}
    assert by_check["host.d_state"].verdict is Verdict.PASS


@needs_nodes
def test_nvswitches_that_are_expected_and_not_there_are_missed() -> None:
    by_check = results(probed(of_another_vendor(dgx_h100())), expect={"gpus": 8, "nvlinks": 18, "nvswitch": 6})
    assert by_check["gpu.nvswitch_count"].message == "4 NVSwitches on the PCI bus; expected 6"


@needs_nodes
@pytest.mark.parametrize("check", ["gpu.nvswitch_count", "gpu.fabric_manager"])
def test_gpus_without_nvlinks_have_no_nvswitch_either(check: str) -> None:
    evidence = probed(of_another_vendor(healthy_gpu_node("L40S")))
    unknown, known = (results(evidence, expect={"gpus": 8, **more})[check] for more in ({}, {"nvlinks": 0}))
    assert unknown.message == "the instance type is unknown; give --instance-type or --expect nvswitch=N"
    assert known.verdict is Verdict.NOT_APPLICABLE


@needs_nodes
def test_what_helps_a_node_of_unknown_type_is_said_in_the_words_of_who_asks() -> None:
    evidence = probed(of_another_vendor(healthy_cpu()))
    by_hand, by_slurm = (results(evidence, occasion)["gpu.gpu_count"].message for occasion in ("preflight", "prolog"))
    assert by_hand == "the instance type is unknown; give --instance-type or --expect gpus=N"
    assert (
        by_slurm == "the instance type is unknown; set instance_type in slurm.toml, or gpus under [expect] in a policy"
    )


# What nvidia-smi's manual lists for -d; it has no PCIE.
DISPLAYED = {
    *("MEMORY", "UTILIZATION", "ECC", "TEMPERATURE", "POWER", "CLOCK", "COMPUTE", "PIDS", "PERFORMANCE"),
    *("SUPPORTED_CLOCKS", "PAGE_RETIREMENT", "ACCOUNTING", "VOLTAGE", "ROW_REMAPPER", "GSP_FIRMWARE_VERSION"),
}


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in all_checks().items()])
def test_nvidia_smi_takes_the_options_that_a_check_names(check: Check) -> None:
    commands = re.findall(r"nvidia-smi(?: -[^;|,)]*(?:,\S+)*)*", f"{check.route.evidence}; {check.route.remedy}")
    displayed = {
        kind for command in commands for kinds in re.findall(r"-d ([A-Z_,]+)", command) for kind in kinds.split(",")
    }
    assert displayed <= DISPLAYED
    assert [command for command in commands if "--query-" in command and "--format=csv" not in command] == []


@pytest.mark.parametrize("check", CHECKS)
def test_lspci_takes_one_device_and_shows_capabilities_to_root_only(check: Check) -> None:
    commands = re.findall(r"(?:sudo )?lspci[^;|)]*", check.route.evidence)
    assert [command for command in commands if command.count(" -d ") > 1] == []
    assert [command for command in commands if " -vv" in command and not command.startswith("sudo ")] == []


@pytest.mark.parametrize("check", CHECKS)
def test_the_command_to_see_it_by_hand_names_the_file_of_each_value(check: Check) -> None:
    commands = [command for command in check.route.evidence.split("; ") if "| uniq -c" not in command]
    assert [command for command in commands if re.search(r"\bcat [^|]*[*{]", command)] == []
