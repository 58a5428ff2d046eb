"""`pytest --cluster ssh:…` as typed by a user, over real sshds, on nodes that each have a fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import CLUSTER_SUBJECTS, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.reports.results import read_results
from tests.faults import BY_NAME, DOES_NOT_APPLY
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_hung_mount
from tests.testbed.node import healthy_p5, with_nvml
from tests.testbed.talkative import with_crlf, with_garbage, with_shell_noise

pytestmark = [needs_cluster, needs_hung_mount]

ROOT = Path(__file__).parents[2]
CHECKS = str(ROOT / "checks")

# A fault of each family, by the node that has it.
SICK = {
    "gpu001": "uncorrected errors in DRAM",
    "gpu002": "a GPU that is lost",
    "gpu003": "an Xid of the hardware",
    "gpu004": "an NVLink that is down",
    "gpu005": "a hardware slowdown by heat",
    "gpu006": "EFA devices that libfabric does not see",
    "gpu007": "a failed unit",
    "gpu008": "a file server that does not answer",
}
REFUSING, HUNG, RUBBISH, NOISY = "gpu009", "gpu010", "gpu011", "gpu012"
CHOSEN = [name for name, check in node_checks().items() if "preflight" in occasions(check)]
HEALTHY = dict.fromkeys(CHOSEN, Verdict.PASS) | dict.fromkeys(
    DOES_NOT_APPLY.intersection(CHOSEN), Verdict.NOT_APPLICABLE
)


def in_preflight(fault: str) -> dict[str, Verdict]:
    """The selected checks' results on a node with this fault."""
    return HEALTHY | {check: verdict for check, verdict in BY_NAME[fault].expect.items() if check in HEALTHY}


SILENT = dict.fromkeys(CHOSEN, Verdict.INCOMPLETE) | {"node.reachable": Verdict.FAIL}
HANGS = in_preflight("a driver that does not answer")
EXPECTED = {node: in_preflight(fault) for node, fault in SICK.items()} | {
    REFUSING: SILENT,
    HUNG: HANGS,
    RUBBISH: SILENT,
    NOISY: HEALTHY,
}


@dataclass(frozen=True)
class Run:
    """What one run printed and wrote."""

    exit: int
    output: str
    results: list[Result]
    recording: Path

    @property
    def verdicts(self) -> dict[str, dict[str, Verdict]]:
        """Every verdict by node and check."""
        by_node: dict[str, dict[str, Verdict]] = {}
        for result in self.results:
            if result.subject in CLUSTER_SUBJECTS:  # nobody here may ask AWS for these
                continue
            by_node.setdefault(result.node, {})[result.check] = result.verdict
        return by_node


def run(bed: Testbed, folder: Path, *options: str) -> Run:
    """Run `pytest OPTIONS` in the checkout, on the cluster's network."""
    results, recording = folder / "results.jsonl", folder / "recording"
    results.unlink(missing_ok=True)
    written = ["--results", str(results), "--record", str(recording), "--no-report", "-p", "no:cacheprovider"]
    ran = bed.run([sys.executable, "-m", "pytest", f"--rootdir={ROOT}", *written, *options, CHECKS], timeout=600)
    output = (ran.stdout + ran.stderr).decode()
    return Run(ran.returncode, output, read_results(results) if results.exists() else [], recording)


def differences(
    by_node: dict[str, dict[str, Verdict]], expected: dict[str, dict[str, Verdict]] = EXPECTED
) -> list[str]:
    """Unexpected verdicts, including missing ones: `gpu001 gpu.no_xid: pass; expected fail`."""
    return [
        f"{node} {check}: {by_node.get(node, {}).get(check)}; expected {verdict}"
        for node, verdicts in expected.items()
        for check, verdict in verdicts.items()
        if by_node.get(node, {}).get(check) is not verdict
    ]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """Twelve nodes: eight sick, one that refuses, one with a hung driver, one that prints garbage, one talkative."""
    images = {node: BY_NAME[fault].put(healthy_p5(node)) for node, fault in SICK.items()}
    images[HUNG] = with_nvml(healthy_p5(HUNG), gpu=5, hang="memory_info")
    images[RUBBISH] = with_garbage(healthy_p5(RUBBISH))
    images[NOISY] = with_crlf(with_shell_noise(healthy_p5(NOISY)))
    with testbed(images, refusing=[REFUSING]) as bed:
        yield bed


@pytest.fixture(scope="module")
def ran(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that most tests use."""
    folder = tmp_path_factory.mktemp("run")
    return run(bed, folder, "--cluster", "ssh:gpu[001-012]", "--probe-timeout", "6")


def test_every_verdict_on_every_node_is_the_right_one(ran: Run) -> None:
    assert differences(ran.verdicts) == [], ran.output
    assert ran.exit == 1


def test_the_summary_names_node_part_owner_and_how_to_see_it(ran: Run) -> None:
    for text in (
        "Uncorrected GPU memory errors: 1 of 12 nodes (gpu001), 1 GPU → hardware",
        "gpu001: GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0",
        "see it: nvidia-smi -q -d ECC",
    ):
        assert text in " ".join(ran.output.split()), ran.output


def test_a_replay_gives_the_same_verdicts(bed: Testbed, ran: Run, tmp_path: Path) -> None:
    again = run(bed, tmp_path, "--cluster", f"replay:{ran.recording}")
    assert (again.verdicts, again.exit) == (ran.verdicts, ran.exit)


def test_workers_of_xdist_form_the_same_verdicts_from_one_round_trip(bed: Testbed, tmp_path: Path) -> None:
    ended = run(bed, tmp_path, "--cluster", "ssh:gpu[001-012]", "--probe-timeout", "6", "-n", "2")
    assert (differences(ended.verdicts), ended.exit) == ([], 1), ended.output
    began = [node.read_text() for node in sorted((ended.recording / "nodes").iterdir())]
    assert len(began) == len(EXPECTED)


def test_only_the_collectors_that_the_selected_checks_need_are_read(bed: Testbed, tmp_path: Path) -> None:
    ended = run(bed, tmp_path, "--cluster", "ssh:gpu001", "-k", "test_memlock")
    recorded = json.loads((ended.recording / "nodes" / "gpu001.json").read_text())
    assert recorded["collectors"].keys() == {"boot", "platform", "rdma", "pci", "limits", "imds"}
    assert ended.exit == 0, ended.output


def test_an_inventory_file_names_groups_types_and_the_connection(bed: Testbed, tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.toml"
    inventory.write_text(
        '[cluster]\nname = "lab"\n'
        '[[group]]\nname = "workers"\nnodes = "gpu[001,007]"\ninstance_type = "ml.p5.48xlarge"\n'
    )
    ended = run(bed, tmp_path, "--cluster", str(inventory))
    expected = {node: EXPECTED[node] for node in ("gpu001", "gpu007")}
    assert (differences(ended.verdicts, expected), ended.verdicts.keys()) == ([], expected.keys()), ended.output
