"""How single rows of a golden manifest are evaluated, and which need their device."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, node
from tests.manifest.manifests import golden, manifest_text

FAIL, NA, PASS = Verdict.FAIL, Verdict.NOT_APPLICABLE, Verdict.PASS
EFA = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2", "ports": []}
RUNS = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled"}
DEAD = {**RUNS, "active": "inactive", "sub": "dead"}
P5 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}
NOT_FOUND = {**DEAD, "load": "not-found", "enabled": ""}


def evaluated(table: str, rule: dict[str, str], *efa: dict[str, Any], made_on: str = "", **collectors: Any) -> Result:
    """The results on a node without GPUs, with these EFA devices, and a manifest with this row."""
    collected = {"boot": boot(), "platform": {"vendor": "", "product": "", "serial": ""}, "pci": {"devices": []}}
    collected |= {"rdma": {"devices": list(efa), "modules": ["loop"]}, "image": {"modules": ["efa"]}, **collectors}
    rules: dict[str, Any] = {table: rule}
    policy = Policy(**rules, made_on=made_on)
    check = "drivers" if table == "versions" else table
    return result_of(
        f"software.{check}_expected", node("n", **collected), policy=policy, expect={"gpus": 0, "efa": len(efa)}
    )


@pytest.mark.parametrize(
    ("name", "rule", "efa", "verdict", "words"),
    [
        ("loop", "loaded", [], PASS, ""),
        ("loop", "installed", [], PASS, ""),
        ("loop", "not loaded", [], FAIL, "module loop is loaded; expected not loaded"),
        ("loop", "absent", [], FAIL, "module loop is loaded; expected absent"),
        ("efa", "installed", [], PASS, ""),
        ("efa", "not loaded", [], PASS, ""),
        ("efa", "absent", [], FAIL, "module efa is installed; expected absent"),
        ("efa", "loaded", [EFA], FAIL, "module efa is installed; expected loaded"),
        ("efa", "loaded", [], NA, "is attached to this machine, for efa"),
        ("xfs", "absent", [], PASS, ""),
        ("xfs", "loaded", [], FAIL, "module xfs is absent; expected loaded"),
        ("nvidia", "loaded", [], FAIL, "module nvidia is absent; expected loaded"),  # it is not even installed
    ],
)
def test_a_module_is_as_its_row_says(name: str, rule: str, efa: Any, verdict: Verdict, words: str) -> None:
    result = evaluated("modules", {name: rule}, *efa)
    assert result.verdict is verdict, result.message
    assert words in result.message


@pytest.mark.parametrize(
    ("name", "data", "rule", "verdict", "words"),
    [
        ("slurmd", RUNS, "active, enabled", PASS, ""),
        ("slurmd", RUNS, "installed", PASS, ""),
        ("slurmd", NOT_FOUND, "installed", FAIL, "service slurmd is absent; expected installed"),
        ("slurmd", NOT_FOUND, "absent", PASS, ""),
        ("slurmd", RUNS, "absent", FAIL, "service slurmd is active, enabled; expected absent"),
        ("slurmd", DEAD, "active", FAIL, "service slurmd is inactive, enabled; expected active"),
        ("nvidia-persistenced", DEAD, "active, enabled", NA, "is attached to this machine, for nvidia-persistenced"),
        ("nvidia-persistenced", {**DEAD, "enabled": "disabled"}, "active, enabled", FAIL, "is inactive, disabled"),
        ("nvidia-persistenced", NOT_FOUND, "active", FAIL, "is absent; expected active"),
        ("nvidia-persistenced", {**RUNS, "enabled": "disabled"}, "enabled", FAIL, "is active, disabled; expected"),
    ],
)
def test_a_service_is_as_its_row_says(name: str, data: dict[str, str], rule: str, verdict: Verdict, words: str) -> None:
    result = evaluated("services", {name: rule}, services={"services": {name: data}, "failed": []})
    assert result.verdict is verdict, result.message
    assert words in result.message


@pytest.mark.parametrize(
    ("name", "rule", "efa", "verdict", "words"),
    [
        ("efa", ">= 2", [], NA, "is attached to this machine, for efa"),
        ("efa", ">= 2", [EFA], FAIL, "no efa; expected efa >= 2"),
        ("efa", "absent", [], PASS, ""),
        ("gdrcopy", ">= 2", [], FAIL, "gdrcopy 1.9; expected gdrcopy >= 2"),
        ("gdrcopy", "absent", [], FAIL, "gdrcopy 1.9; expected no gdrcopy"),
    ],
)
def test_a_driver_is_missing_only_beside_its_device(
    name: str, rule: str, efa: Any, verdict: Verdict, words: str
) -> None:
    versions = {"container": "", "components": {"gdrcopy": {"version": "1.9", "from": "/sys"}}, "toolkits": []}
    result = evaluated("versions", {name: rule}, *efa, versions=versions)
    assert result.verdict is verdict, result.message
    assert words in result.message


@pytest.mark.parametrize(
    ("made_on", "rule", "verdict", "words"),
    [
        ("", {"cpus": "== 192"}, PASS, ""),
        ("", {"cpus": "== 96"}, FAIL, "cpus 192; expected cpus"),
        ("p5.48xlarge", {"cpus": "== 96"}, NA, "the manifest's sizes are for p5.48xlarge, this is"),
    ],
)
def test_sizes_are_those_of_the_manifest_s_own_type(made_on: str, rule: Any, verdict: Verdict, words: str) -> None:
    platform = {"vendor": "Amazon EC2", "product": "g5.2xlarge", "serial": ""}
    result = evaluated("sizes", rule, made_on=made_on, platform=platform)
    assert result.verdict is verdict, result.message
    assert words in result.message


@pytest.mark.parametrize(("less_mib", "verdict"), [(-4096, PASS), (0, PASS), (2, PASS), (700, PASS), (32 * 1024, FAIL)])
def test_what_a_kernel_keeps_of_the_memory_differs_and_is_no_deviation(less_mib: int, verdict: Verdict) -> None:
    whole_kib = 2000 * 1024 * 1024  # a few MiB less are one GiB less in whole numbers
    rules = golden(manifest_text(node("good", boot=boot(memory_kib=whole_kib), platform=P5))).sizes
    result = evaluated(
        "sizes",
        {"memory_gib": rules["memory_gib"]},
        boot=boot(memory_kib=whole_kib - less_mib * 1024),
        platform=P5,
    )
    assert result.verdict is verdict, result.message


def nvme(model: str, transport: str = "pcie") -> dict[str, Any]:
    """The controller of a disk."""
    return {"name": "nvme0", "model": model, "state": "live", "transport": transport, "disks": []}


@pytest.mark.parametrize(
    ("vendor", "disks", "words"),
    [
        ("NVIDIA", [nvme("SAMSUNG MZQL23T8")], "nvme_disks 1; expected nvme_disks >= 2"),
        ("NVIDIA", [nvme("SAMSUNG MZQL23T8"), nvme("KIOXIA KCM6")], ""),
        ("NVIDIA", [nvme("SAMSUNG MZQL23T8"), nvme("Linux", "tcp")], "nvme_disks 1; expected nvme_disks >= 2"),
        ("Amazon EC2", [nvme("Amazon Elastic Block Store")] * 2, "nvme_disks 0; expected nvme_disks >= 2"),
    ],
)
def test_the_disks_of_a_machine_are_of_any_model_outside_ec2(vendor: str, disks: Any, words: str) -> None:
    platform = {"vendor": vendor, "product": "", "serial": ""}
    result = evaluated("sizes", {"nvme_disks": ">= 2"}, platform=platform, nvme={"controllers": disks})
    assert (result.verdict, result.message) == (FAIL if words else PASS, words)
