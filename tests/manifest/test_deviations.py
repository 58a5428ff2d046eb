"""A golden manifest from one recording, and single deviations from it: each is named, and none is invented."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.plugins.inventory import InventoryError
from clusterproof.plugins.manifest.compose import Manifest, text_of
from tests.builders.evaluated import probed, results
from tests.builders.examples import examples
from tests.faults.software import with_package
from tests.manifest.deviations import DEVIATIONS, ON_BUILD_HOST, Put, with_fabric_manager
from tests.manifest.manifests import build_host, golden, golden_of_good, good, manifest_text
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_cluster, needs_nodes
from tests.testbed.node import (
    entered,
    healthy_p5,
    with_file,
    with_whole_machine,
    without_efa,
)

ROOT = Path(__file__).parents[2]
PASS, FAIL, INCOMPLETE, NA = Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
TABLES = ("versions", "drivers", "modules", "libraries", "services", "sizes")
OWN = [f"software.{table}_expected" for table in TABLES]
GATE = [*OWN, "software.image_clean"]


def gate(evidence: NodeEvidence, policy: Policy | None = None) -> dict[str, Result]:
    """The gate checks' results on a node with the good machine's manifest."""
    by_check = results(evidence, "ami", policy=policy or golden_of_good())
    return {name: by_check[name] for name in GATE}


def lines(by_check: dict[str, Result]) -> list[str]:
    """Every deviation that they name, in alphabetical order."""
    return sorted(line for result in by_check.values() if result.verdict is FAIL for line in result.message.split("\n"))


@needs_nodes
def test_the_machine_that_a_manifest_was_made_from_keeps_it() -> None:
    assert {name: result.verdict for name, result in gate(good()).items()} == dict.fromkeys(GATE, PASS)


@needs_nodes
@pytest.mark.parametrize(("put", "said"), DEVIATIONS.values(), ids=DEVIATIONS)
def test_a_deviation_is_named_and_none_is_invented(put: Put, said: list[str]) -> None:
    by_check = gate(probed(put(healthy_p5())))
    assert lines(by_check) == sorted(line.replace("NCCL/", f"{folder_of_nccl()}/") for line in said)
    assert {result.verdict for result in by_check.values()} == {PASS, FAIL}


def folder_of_nccl() -> str:
    """Where the probe finds NCCL: on some systems, /lib is a link to /usr/lib."""
    (library,) = good().collectors["versions"].value["libraries"]["libnccl.so.2"]
    return str(Path(library["path"]).parent)


@needs_nodes
def test_what_a_node_could_not_report_is_incomplete_and_no_deviation() -> None:
    evidence = probed(healthy_p5())
    for collector, checks in {
        "services": ["services"],
        "rdma": ["drivers", "modules", "sizes"],
        "image": ["image_clean"],
    }.items():
        lost = {name: value for name, value in evidence.collectors.items() if name != collector}
        by_check = gate(replace(evidence, collectors=lost))
        assert lines(by_check) == []
        if collector != "rdma":
            unknown = {name for name, result in by_check.items() if result.verdict is INCOMPLETE}
            assert {f"software.{name}" if "_" in name else f"software.{name}_expected" for name in checks} <= unknown


@needs_nodes
def test_a_build_host_is_gated_on_what_can_be_known_there_and_the_rest_is_not_applicable() -> None:
    by_check = gate(probed(build_host()))
    assert {name: result.verdict for name, result in by_check.items()} == {
        "software.versions_expected": PASS,
        "software.drivers_expected": NA,
        "software.modules_expected": NA,
        "software.libraries_expected": PASS,
        "software.services_expected": NA,
        "software.sizes_expected": NA,
        "software.image_clean": PASS,
    }
    assert by_check["software.drivers_expected"].message == (
        "no NVIDIA GPU is attached to this m5.2xlarge, for driver, gdrcopy; "
        "no EFA device is attached to this m5.2xlarge, for efa"
    )


@needs_nodes
def test_no_check_of_the_gate_fails_or_is_incomplete_on_a_good_build_host() -> None:
    by_check = results(probed(build_host()), "ami", policy=golden_of_good())
    chosen = [name for name, check in node_checks().items() if "ami" in occasions(check)]
    assert {name: by_check[name].message for name in chosen if by_check[name].verdict not in (PASS, NA)} == {}
    of_gpus = [name for name in chosen if name.startswith("gpu.")]
    assert {by_check[name].verdict for name in of_gpus} == {NA}
    assert all(by_check[name].message for name in chosen if by_check[name].verdict is NA)


@needs_nodes
@pytest.mark.parametrize(("put", "said"), ON_BUILD_HOST.values(), ids=ON_BUILD_HOST)
def test_a_deviation_that_a_build_host_can_show_is_named(put: Put, said: list[str]) -> None:
    assert lines(gate(probed(put(build_host())))) == said


@needs_nodes
def test_a_manifest_says_what_it_leaves_out_and_why() -> None:
    assert "#   neuron_driver: no Neuron device is attached to this p5.48xlarge" in manifest_text(good())
    text = manifest_text(probed(build_host(), "builder"))
    assert "#   driver, gdrcopy: no NVIDIA GPU is attached to this m5.2xlarge" in text
    assert golden(text).versions["nccl"] == "== 2.27.7"
    assert golden(text).services["nvidia-fabricmanager"] == "installed, enabled"


@needs_nodes
def test_a_manifest_of_several_machines_has_what_they_share() -> None:
    other = probed(with_package(without_efa(healthy_p5("gpu002"), "rdmap113s0"), "enroot", "3.5.2-1"), "gpu002")
    policy = golden(manifest_text(good(), other))
    assert (policy.versions["enroot"], policy.versions["cuda"]) == ("3.5.0-1 to 3.5.2-1", "== 12.9.1")
    assert policy.sizes["efa"] == "31 to 32"
    for machine in (good(), other):
        assert lines(gate(machine, policy)) == []


STRANGE = st.text(max_size=40) | st.sampled_from(
    ['"', "\\", "\n[versions]\n", "\x1b[2J", "'''", "# no", "\x7f", "\u2028"]
)


@given(name=STRANGE, rule=STRANGE, why=STRANGE)
@examples(200)
def test_whatever_a_node_says_a_manifest_stays_toml(name: str, rule: str, why: str) -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    made = Manifest(("gpu001",), why, {"versions": {name: rule}}, {"versions": {why: ["cuda"]}})
    read = tomllib.loads(text_of(made, "2026-11-21", why))
    assert read.keys() == {"manifest", "versions"}
    assert len(read["versions"]) == 1


REFUSED = [
    ('[versions]\npodman = "absent"', "the probe does not look at 'podman'"),
    (f'[versions]\nnccl = "{", ".join(f"!= 2.{minor}" for minor in range(40))}"', "expected at most 200 characters"),
    ('[modules]\nnvidai = "loaded"', "the probe does not look at 'nvidai' (did you mean nvidia?)"),
    ('[modules]\nnvidia-uvm = "loaded"', "does not look at 'nvidia-uvm' (did you mean nvidia_uvm?)"),
    ('[modules]\nnvidia = "there"', "'there' is not a rule; expected loaded or installed or not loaded or absent"),
    ('[libraries]\n"libnccl.so" = "whole"', "does not look at 'libnccl.so' (did you mean libnccl.so.2?)"),
    ('[services]\nmunge = "active, on"', "munge: 'on' is not a rule; expected active or inactive"),
    ('[sizes]\ngpu = "== 8"', "the probe does not look at 'gpu' (did you mean gpus?)"),
    ('[versions]\ncuda = "1.50 to 1.43"', "cuda: '1.50 to 1.43' holds for nothing; expected the lower end first"),
    ('[sizes]\ngpus = "8"', "gpus: '8' is not a rule; expected one of"),
    ("[sizes]\ngpus = 8", "gpus is a whole number; expected text"),
    ('[manifest]\nmade_by = "me"', "'made_by' is not a known key"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_row_that_means_nothing_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        golden(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def wrong_image() -> NodeImage:
    """A machine launched from an image with three deviations."""
    image = with_fabric_manager(DEVIATIONS["no enroot"][0](healthy_p5("gpu002")), "570.133.20")
    return DEVIATIONS["a service that is not enabled"][0](image)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A good machine, and one launched from such an image."""
    with testbed({"gpu001": healthy_p5(), "gpu002": wrong_image()}) as bed:
        yield bed


def typed(bed: Testbed, *arguments: str) -> tuple[int, str]:
    """Run a command in the checkout on the cluster's network: its exit code and output."""
    ran = bed.run([sys.executable, "-m", *arguments], timeout=600)
    return ran.returncode, (ran.stdout + ran.stderr).decode()


@needs_cluster
def test_the_gate_as_a_person_types_it(bed: Testbed, tmp_path: Path) -> None:
    manifest, junit = tmp_path / "golden.toml", tmp_path / "junit.xml"
    main = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
    made = bed.run(
        [sys.executable, "-c", main, "manifest", "--from", "ssh:gpu001", "--out", str(manifest)], timeout=600
    )
    assert (made.returncode, made.stdout) == (0, b""), made.stderr
    assert made.stderr.decode().strip().endswith(f"wrote {manifest}")

    gate_it = ["pytest", f"--rootdir={ROOT}", "-p", "no:cacheprovider", "-m", "ami", "--policy", str(manifest)]
    exit_code, output = typed(bed, *gate_it, "--cluster", "ssh:gpu001", str(ROOT / "checks"))
    assert exit_code == 0, output
    exit_code, output = typed(bed, *gate_it, "--cluster", "ssh:gpu002", f"--junitxml={junit}", str(ROOT / "checks"))
    assert exit_code == 1, output
    report = junit.read_text()
    for line in (
        "no enroot; expected enroot == 3.5.0-1",
        "fabric_manager 570.133.20; expected fabric_manager == 580.126.09",
        "service munge is active, disabled; expected active, enabled",
    ):
        assert f"gpu002: {line}" in " ".join(output.split())
        assert line in report


@needs_nodes
@pytest.mark.parametrize(("image", "exit_code"), [(healthy_p5, 0), (build_host, 0), (wrong_image, 1)])
def test_the_gate_on_the_instance_itself(image: Callable[[], NodeImage], exit_code: int) -> None:
    with entered(with_file(with_whole_machine(image()), "/root/golden.toml", manifest_text(good()))) as node:
        gate_it = ["-p", "no:cacheprovider", "--cluster", "local", "-m", "ami", "--policy", "/root/golden.toml"]
        command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", *gate_it, str(ROOT / "checks")]
        ran = node.run(command, timeout=600)
        assert ran.returncode == exit_code, ran.stdout.decode()


@needs_cluster
def test_a_manifest_of_nobody_is_refused(bed: Testbed, tmp_path: Path) -> None:
    main = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
    out = str(tmp_path / "golden.toml")
    made = bed.run([sys.executable, "-c", main, "manifest", "--from", "ssh:nobody", "--out", out], timeout=600)
    assert made.returncode == 4
    assert b"no node answered; expected a machine known to be good" in made.stderr
    assert not Path(out).exists()
