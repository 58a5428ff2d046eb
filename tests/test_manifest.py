"""A golden manifest made from one recording, and single deviations from it: each is named, and none is invented."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.inventory import InventoryError
from clusterproof.plugins.manifest.compose import Manifest
from clusterproof.plugins.manifest.text import text_of
from clusterproof.plugins.policy.model import Policy
from clusterproof.plugins.result import Result
from clusterproof.plugins.suite import node_checks, occasions
from clusterproof.plugins.verdict import Verdict
from tests.faults.software import with_cuda, with_driver, with_package
from tests.judged import results, told_by
from tests.manifests import build_host, golden, golden_of_good, good, manifest_text
from tests.testbed import software
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.healthy import KERNEL
from tests.testbed.image import File, Link, NodeImage
from tests.testbed.needs import needs_cluster, needs_nodes
from tests.testbed.node import healthy_p5, with_file, with_service, with_tool, without_efa, without_file, without_module
from tests.testbed.software import DPKG, EFA_RECORD, LIBRARIES, OFI_NCCL

ROOT = Path(__file__).parents[1]
PASS, FAIL, INCOMPLETE, NA = Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
TABLES = ("versions", "drivers", "modules", "libraries", "services", "sizes")
OWN = [f"software.{table}_expected" for table in TABLES]
GATE = [*OWN, "software.image_clean"]
MODULES_DEP = f"/lib/modules/{KERNEL}/modules.dep"
Put = Callable[[NodeImage], NodeImage]


def without_package(image: NodeImage, name: str) -> NodeImage:
    """That package is not installed."""
    kept = {other: told for other, told in (software.COMMON | software.OF_GPUS).items() if other != name}
    return with_file(image, DPKG, software.dpkg(kept))


def with_efa_installer(image: NodeImage, version: str) -> NodeImage:
    """EFA's installer of that version ran."""
    return with_file(image, EFA_RECORD, software.EFA_INSTALLED.replace("1.44.0", version))


def with_nccl(image: NodeImage, version: str) -> NodeImage:
    """That NCCL is the one that the loader finds."""
    moved = without_file(image, f"{LIBRARIES}/libnccl.so.2.27.7")
    linked = with_file(moved, f"{LIBRARIES}/libnccl.so.2", Link(f"libnccl.so.{version}"))
    return with_file(linked, f"{LIBRARIES}/libnccl.so.{version}", software.LIBRARY)


def with_fabric_manager(image: NodeImage, version: str) -> NodeImage:
    """That fabric manager is installed."""
    return with_tool(image, "nv-fabricmanager", f"#!/bin/sh\necho Fabric Manager version is : {version}\n")


def with_unit(name: str, **states: str) -> Put:
    """systemctl says this of that service."""
    return lambda image: with_service(image, name, **states)


def written_before(path: str) -> Put:
    """That file is a day older than the instance's first boot."""
    return lambda image: with_file(image, path, File("of the builder\n", 0o600, software.BOOTED - 86_400))


def not_built(name: str) -> Put:
    """DKMS has not built that module for the kernel that runs, and so it is not loaded."""

    def put(image: NodeImage) -> NodeImage:
        dep = str(image.files[MODULES_DEP]).replace(f"/{name}.ko", "/other.ko")
        return with_file(without_module(image, name), MODULES_DEP, dep)

    return put


# What is done to the good machine, and every line that the gate then says.
DEVIATIONS: dict[str, tuple[Put, list[str]]] = {
    "an older containerd": (
        lambda image: with_package(image, "containerd.io", "1.7.20-1"),
        ["containerd 1.7.20-1; expected containerd == 1.7.27-1"],
    ),
    "a newer containerd": (
        lambda image: with_package(image, "containerd.io", "2.0.4-1"),
        ["containerd 2.0.4-1; expected containerd == 1.7.27-1"],
    ),
    "a rebuilt containerd": (
        lambda image: with_package(image, "containerd.io", "1.7.27-2"),
        ["containerd 1.7.27-2; expected containerd == 1.7.27-1"],
    ),
    "no enroot": (
        lambda image: without_package(image, "enroot"),
        ["no enroot; expected enroot == 3.5.0-1"],
    ),
    "a container toolkit of another version": (
        lambda image: with_package(image, "nvidia-container-toolkit", "1.16.2-1"),
        ["nvidia_container_toolkit 1.16.2-1; expected nvidia_container_toolkit == 1.17.8-1"],
    ),
    "a runtime that the machine did not have": (
        lambda image: with_package(image, "nvslurm-plugin-pyxis", "0.20.0-1"),
        ["pyxis 0.20.0-1; expected no pyxis"],
    ),
    "another libfabric": (
        lambda image: with_package(image, "libfabric-aws-bin", "2.1.0amzn5.0"),
        ["libfabric 2.1.0amzn5.0; expected libfabric == 2.3.1amzn2.0"],
    ),
    "an older aws-ofi-nccl": (
        lambda image: with_package(image, "libnccl-ofi", "1.16.3-1"),
        ["aws_ofi_nccl 1.16.3-1; expected aws_ofi_nccl == 1.17.1-1"],
    ),
    "an older EFA installer": (
        lambda image: with_efa_installer(image, "1.43.2"),
        ["efa_installer 1.43.2; expected efa_installer == 1.44.0"],
    ),
    "no EFA installer": (
        lambda image: without_file(image, EFA_RECORD),
        ["no efa_installer; expected efa_installer == 1.44.0"],
    ),
    "another NCCL": (
        lambda image: with_nccl(image, "2.26.2"),
        ["nccl 2.26.2; expected nccl == 2.27.7"],
    ),
    "another CUDA": (
        lambda image: with_cuda(image, "12.8.0"),
        ["cuda 12.8.0; expected cuda == 12.9.1"],
    ),
    "another cuDNN": (
        lambda image: with_file(image, "/usr/include/cudnn_version.h", software.CUDNN.replace("MINOR 13", "MINOR 10")),
        ["cudnn 9.10.0; expected cudnn == 9.13.0"],
    ),
    "another Slurm": (
        lambda image: with_file(
            image, "/opt/slurm/include/slurm/slurm_version.h", "#define SLURM_VERSION_NUMBER 0x180504\n"
        ),
        ["slurm 24.05.4; expected slurm == 24.11.6"],
    ),
    "another DCGM": (
        lambda image: with_package(image, "datacenter-gpu-manager-4-core", "1:4.2.3-2"),
        ["dcgm 1:4.2.3-2; expected dcgm == 1:4.4.1-1"],
    ),
    "another glibc": (
        lambda image: with_package(image, "libc6", "2.35-0ubuntu3.9"),
        ["glibc 2.35-0ubuntu3.9; expected glibc == 2.35-0ubuntu3.10"],
    ),
    "the wrong fabric manager": (
        lambda image: with_fabric_manager(image, "570.133.20"),
        ["fabric_manager 570.133.20; expected fabric_manager == 580.126.09"],
    ),
    "no fabric manager's program": (
        lambda image: without_file(image, "/usr/bin/nv-fabricmanager"),
        ["no fabric_manager; expected fabric_manager == 580.126.09"],
    ),
    "another driver, and its libcuda with it": (
        lambda image: with_driver(image, "580.95.05"),
        [
            "driver 580.95.05; expected driver == 580.126.09",
            "fabric_manager 580.95.05; expected fabric_manager == 580.126.09",  # it comes with the driver
            "libcuda 580.95.05; expected libcuda == 580.126.09",
        ],
    ),
    "another EFA driver": (
        lambda image: with_file(image, "/sys/module/efa/version", "2.15.1g\n"),
        ["efa 2.15.1g; expected efa == 2.17.3g"],
    ),
    "another gdrcopy": (
        lambda image: with_file(image, "/sys/module/gdrdrv/version", "2.4\n"),
        ["gdrcopy 2.4; expected gdrcopy == 2.5.1"],
    ),
    "a module that is not loaded": (
        lambda image: without_module(image, "nvidia_uvm"),
        ["module nvidia_uvm is installed; expected loaded"],
    ),
    "a module that was not built for this kernel": (
        not_built("ena"),
        ["module ena is absent; expected loaded"],
    ),
    "a module that takes the GPUs": (
        lambda image: with_file(image, "/sys/module/nouveau/initstate", "live\n"),
        ["module nouveau is loaded; expected not loaded"],
    ),
    "an empty library": (
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2.27.7", ""),
        ["library libnccl.so.2: NCCL/libnccl.so.2 is empty; expected whole"],
    ),
    "a library whose link leads nowhere": (
        lambda image: with_file(image, f"{OFI_NCCL}/libnccl-net.so", Link("libnccl-net-gone.so")),
        [f"library libnccl-net.so: {OFI_NCCL}/libnccl-net.so leads nowhere; expected whole"],
    ),
    "no NCCL plug-in": (
        lambda image: without_file(image, f"{OFI_NCCL}/libnccl-net.so"),
        ["library libnccl-net.so: absent; expected whole"],
    ),
    "a service that is not enabled": (
        with_unit("munge", enabled="disabled"),
        ["service munge is active, disabled; expected active, enabled"],
    ),
    "a service that does not run": (
        with_unit("chrony", active="inactive", sub="dead"),
        ["service chrony is inactive, enabled; expected active, enabled"],
    ),
    "a service that is not installed": (
        with_unit("nvidia-dcgm", load="not-found", active="inactive", sub="dead", enabled=""),
        ["service nvidia-dcgm is absent; expected active, enabled"],
    ),
    "a masked service": (
        with_unit("nvidia-fabricmanager", load="masked", active="inactive", sub="dead", enabled="masked"),
        ["service nvidia-fabricmanager is inactive, masked; expected active, enabled"],
    ),
    "an EFA device less": (
        lambda image: without_efa(image, "rdmap113s0"),
        ["efa 31; expected efa == 32"],
    ),
    "half of /dev/shm": (
        lambda image: replace(image, tmpfs=image.tmpfs | {"/dev/shm": "512g"}),
        ["dev_shm_gib 512; expected dev_shm_gib >= 1024"],
    ),
    "the machine-id of the machine that built it": (
        written_before(software.MACHINE_ID),
        [f"older than the instance: {software.MACHINE_ID}; expected none of it in an image"],
    ),
    "the host key of the machine that built it": (
        written_before(software.HOST_KEY),
        [f"older than the instance: {software.HOST_KEY}; expected none of it in an image"],
    ),
}


def gate(told: NodeEvidence, policy: Policy | None = None) -> dict[str, Result]:
    """What the checks of the gate say of a node beside the good machine's manifest."""
    found = results(told, "ami", policy=policy or golden_of_good())
    return {name: found[name] for name in GATE}


def lines(found: dict[str, Result]) -> list[str]:
    """Every deviation that they name, in alphabetical order."""
    return sorted(line for result in found.values() if result.verdict is FAIL for line in result.message.split("\n"))


@needs_nodes
def test_the_machine_that_a_manifest_was_made_from_keeps_it() -> None:
    assert {name: result.verdict for name, result in gate(good()).items()} == dict.fromkeys(GATE, PASS)


@needs_nodes
@pytest.mark.parametrize(("put", "said"), DEVIATIONS.values(), ids=DEVIATIONS)
def test_a_deviation_is_named_and_none_is_invented(put: Put, said: list[str]) -> None:
    found = gate(told_by(put(healthy_p5())))
    assert lines(found) == sorted(line.replace("NCCL/", f"{folder_of_nccl()}/") for line in said)
    assert {result.verdict for result in found.values()} == {PASS, FAIL}


def folder_of_nccl() -> str:
    """Where the probe finds NCCL: some systems have /lib as a link to /usr/lib."""
    (library,) = good().leaves["versions"].value["libraries"]["libnccl.so.2"]
    return str(Path(library["path"]).parent)


@needs_nodes
def test_what_a_node_could_not_tell_is_incomplete_and_no_deviation() -> None:
    told = told_by(healthy_p5())
    for leaf, checks in {
        "services": ["services"],
        "rdma": ["drivers", "modules", "sizes"],
        "image": ["image_clean"],
    }.items():
        lost = {name: value for name, value in told.leaves.items() if name != leaf}
        found = gate(replace(told, leaves=lost))
        assert lines(found) == []
        if leaf != "rdma":
            unknown = {name for name, result in found.items() if result.verdict is INCOMPLETE}
            assert {f"software.{name}" if "_" in name else f"software.{name}_expected" for name in checks} <= unknown


@needs_nodes
def test_a_build_host_is_gated_on_what_can_be_known_there_and_the_rest_is_not_applicable() -> None:
    found = gate(told_by(build_host()))
    assert {name: result.verdict for name, result in found.items()} == {
        "software.versions_expected": PASS,
        "software.drivers_expected": NA,
        "software.modules_expected": NA,
        "software.libraries_expected": PASS,
        "software.services_expected": NA,
        "software.sizes_expected": NA,
        "software.image_clean": PASS,
    }
    assert found["software.drivers_expected"].message == (
        "no NVIDIA GPU is attached to this m5.2xlarge, for driver, gdrcopy; "
        "no EFA device is attached to this m5.2xlarge, for efa"
    )


@needs_nodes
def test_no_check_of_the_gate_fails_or_is_incomplete_on_a_good_build_host() -> None:
    found = results(told_by(build_host()), "ami", policy=golden_of_good())
    chosen = [name for name, check in node_checks().items() if "ami" in occasions(check)]
    assert {name: found[name].message for name in chosen if found[name].verdict not in (PASS, NA)} == {}
    of_gpus = [name for name in chosen if name.startswith("gpu.")]
    assert {found[name].verdict for name in of_gpus} == {NA}
    assert all(found[name].message for name in chosen if found[name].verdict is NA)


ON_BUILD_HOST: dict[str, tuple[Put, list[str]]] = {
    "modules that were not built for this kernel": (
        lambda image: with_file(image, MODULES_DEP, "updates/dkms/efa.ko.zst:\n"),
        [
            "module gdrdrv is absent; expected loaded",
            "module ib_core is absent; expected loaded",
            "module ib_uverbs is absent; expected loaded",
            "module nvidia is absent; expected loaded",
            "module nvidia_peermem is absent; expected installed",
            "module nvidia_uvm is absent; expected loaded",
        ],
    ),
    "a service of the GPUs that is not enabled": (
        with_unit("nvidia-fabricmanager", active="inactive", sub="dead", enabled="disabled"),
        ["service nvidia-fabricmanager is inactive, disabled; expected active, enabled"],
    ),
    "the wrong fabric manager": DEVIATIONS["the wrong fabric manager"],
    "no NCCL plug-in": DEVIATIONS["no NCCL plug-in"],
    "the machine-id of the machine that built it": DEVIATIONS["the machine-id of the machine that built it"],
}


@needs_nodes
@pytest.mark.parametrize(("put", "said"), ON_BUILD_HOST.values(), ids=ON_BUILD_HOST)
def test_a_deviation_that_a_build_host_can_show_is_named(put: Put, said: list[str]) -> None:
    assert lines(gate(told_by(put(build_host())))) == said


@needs_nodes
def test_a_manifest_says_what_it_leaves_out_and_why() -> None:
    assert "#   neuron_driver: no Neuron device is attached to this p5.48xlarge" in manifest_text(good())
    text = manifest_text(told_by(build_host(), "builder"))
    assert "#   driver, gdrcopy: no NVIDIA GPU is attached to this m5.2xlarge" in text
    assert golden(text).versions["nccl"] == "== 2.27.7"
    assert golden(text).services["nvidia-fabricmanager"] == "installed, enabled"


@needs_nodes
def test_a_manifest_of_several_machines_has_what_they_share() -> None:
    other = told_by(with_package(without_efa(healthy_p5("gpu002"), "rdmap113s0"), "enroot", "3.5.2-1"), "gpu002")
    policy = golden(manifest_text(good(), other))
    assert (policy.versions["enroot"], policy.versions["cuda"]) == ("3.5.0-1 to 3.5.2-1", "== 12.9.1")
    assert policy.sizes["efa"] == "31 to 32"
    for machine in (good(), other):
        assert lines(gate(machine, policy)) == []


STRANGE = st.text(max_size=40) | st.sampled_from(
    ['"', "\\", "\n[versions]\n", "\x1b[2J", "'''", "# no", "\x7f", "\u2028"]
)


@given(name=STRANGE, rule=STRANGE, why=STRANGE)
@settings(max_examples=200, deadline=None)
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
    ('[modules]\nnvidai = "loaded"', "the probe does not look at 'nvidai' (did you mean nvidia?)"),
    ('[modules]\nnvidia = "there"', "'there' is no rule; expected loaded or installed or not loaded or absent"),
    ('[libraries]\n"libnccl.so" = "whole"', "does not look at 'libnccl.so' (did you mean libnccl.so.2?)"),
    ('[services]\nmunge = "active, on"', "munge: 'on' is no rule; expected active or inactive"),
    ('[sizes]\ngpu = "== 8"', "the probe does not look at 'gpu' (did you mean gpus?)"),
    ('[sizes]\ngpus = "8"', "gpus: '8' is no rule; expected one of"),
    ("[sizes]\ngpus = 8", "gpus is a whole number; expected text"),
    ('[manifest]\nmade_by = "me"', "'made_by' means nothing here"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_row_that_means_nothing_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        golden(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A good machine, and one launched from an image with three things wrong."""
    wrong = with_fabric_manager(DEVIATIONS["no enroot"][0](healthy_p5("gpu002")), "570.133.20")
    wrong = DEVIATIONS["a service that is not enabled"][0](wrong)
    with testbed({"gpu001": healthy_p5(), "gpu002": wrong}) as bed:
        yield bed


def typed(bed: Testbed, *words: str) -> tuple[int, str]:
    """Type a command in the checkout, on the cluster's network: its exit code and what it prints."""
    ran = bed.run([sys.executable, "-m", *words], timeout=120)
    return ran.returncode, (ran.stdout + ran.stderr).decode()


@needs_cluster
def test_the_gate_as_a_person_types_it(bed: Testbed, tmp_path: Path) -> None:
    manifest, junit = tmp_path / "golden.toml", tmp_path / "junit.xml"
    main = "import sys; from clusterproof.plugins.cli import main; sys.exit(main())"
    made = bed.run([sys.executable, "-c", main, "manifest", "--from", "ssh:gpu001", "--out", str(manifest)], timeout=60)
    assert (made.returncode, made.stdout) == (0, b""), made.stderr
    assert made.stderr.decode().strip().endswith(f"wrote {manifest}")

    gate_it = ["pytest", f"--rootdir={ROOT}", "-p", "no:cacheprovider", "-m", "ami", "--policy", str(manifest)]
    exit_code, said = typed(bed, *gate_it, "--cluster", "ssh:gpu001", str(ROOT / "checks"))
    assert exit_code == 0, said
    exit_code, said = typed(bed, *gate_it, "--cluster", "ssh:gpu002", f"--junitxml={junit}", str(ROOT / "checks"))
    assert exit_code == 1, said
    report = junit.read_text()
    for line in (
        "no enroot; expected enroot == 3.5.0-1",
        "fabric_manager 570.133.20; expected fabric_manager == 580.126.09",
        "service munge is active, disabled; expected active, enabled",
    ):
        assert f"gpu002: {line}" in " ".join(said.split())
        assert line in report


@needs_cluster
def test_a_manifest_of_nobody_is_refused(bed: Testbed, tmp_path: Path) -> None:
    main = "import sys; from clusterproof.plugins.cli import main; sys.exit(main())"
    out = str(tmp_path / "golden.toml")
    made = bed.run([sys.executable, "-c", main, "manifest", "--from", "ssh:nobody", "--out", out], timeout=60)
    assert made.returncode == 4
    assert b"no node answered; expected a machine known to be good" in made.stderr
    assert not Path(out).exists()
