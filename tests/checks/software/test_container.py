"""Checks of what a job gets in its container, on evidence that no fault of a node produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, gpu, node, nvml

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
DEVICES, LOADED = "software.container_devices", "software.container_libraries"
CONTROLS = {"/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
TWO_OF_EIGHT = {"/dev/nvidia0": "", "/dev/nvidia1": ""}
SIX_REFUSED = {f"/dev/nvidia{number}": "EPERM" for number in range(2, 8)}
EIGHT = {f"/dev/nvidia{number}": "" for number in range(8)}
NOT_THERE = {"path": "", "mount": "", "text": "no such file", "unread": "", "is_there": False}


CUDA, ML, GDRAPI = "libcuda.so.1", "libnvidia-ml.so.1", "libgdrapi.so.2"


NIC = {"address": "0000:01:00.0", "vendor": "1d0f", "device": "ec20", "class": "020000", "driver": "ena"}


def on_bus(number: int, driver: str = "nvidia") -> dict[str, Any]:
    address = f"0000:{number + 16:02x}:00.0"
    return {"address": address, "vendor": "10de", "device": "2330", "class": "030200", "driver": driver}


def loaded(path: str, text: str = "", mount: str = "/") -> dict[str, Any]:
    return {"path": path, "mount": mount, "text": text, "unread": "", "is_there": True}


BOTH = {CUDA: loaded("/lib/libcuda.so.580.126.09"), ML: loaded("/lib/libnvidia-ml.so.580.126.09")}


def job(
    devices: dict[str, str],
    libraries: dict[str, Any],
    gpus: int = 8,
    asked: dict[str, int] | None = None,
    verbs: int = 0,
    kind: str = "",
    mig: bool = False,
    begins_with: int | None = None,
) -> NodeEvidence:
    """The evidence of a job that gets these."""
    efa = {"name": "rdmap0s0", "vendor": "1d0f", "device": "efa2", "ports": []}
    return node(
        "gpu001",
        boot=boot(),
        pci={"devices": [NIC, *(on_bus(number) for number in range(gpus))]},
        rdma={"devices": [efa] if verbs else [], "modules": []},
        nvml=nvml(gpu(0, mig_mode=mig, name="NVIDIA H100 80GB HBM3")),
        platform={"vendor": "Supermicro", "product": ""},
        versions={"container": kind, "components": {"driver": {"version": "580.126.09", "from": "/sys"}}},
        container={
            "devices": [
                {"path": path, "refused": why.partition(" ")[0], "driver": why.partition(" ")[2]}
                for path, why in devices.items()
            ],
            "verbs": [f"uverbs{number}" for number in range(verbs)],
            "gpus_asked": asked or {},
            "cuda_begins_with": begins_with,
            "libraries": {CUDA: NOT_THERE, ML: NOT_THERE, GDRAPI: NOT_THERE} | libraries,
        },
    )


@pytest.mark.parametrize(
    ("devices", "more", "verdict", "message"),
    [
        ({}, {"gpus": 0, "expect": {"gpus": 0}}, NA, "the node has no GPU"),
        ({}, {"gpus": 0, "expect": {}}, INCOMPLETE, "the instance type is unknown; give --"),
        ({}, {"gpus": 0, "expect": {"gpus": 8}}, FAIL, "node: the kernel shows none of its GPUs; expected 8"),
        (CONTROLS | EIGHT, {}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT, {}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT, {"asked": {"SLURM_GPUS_ON_NODE": 2}}, PASS, ""),
        (
            CONTROLS | TWO_OF_EIGHT,
            {"asked": {"SLURM_GPUS_ON_NODE": 4}},
            FAIL,
            "runtime: 2 GPUs have a device file here; expected 4",
        ),
        (CONTROLS | TWO_OF_EIGHT, {"asked": {"SLURM_GPUS_ON_NODE": 4}, "mig": True}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT | SIX_REFUSED, {}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT | SIX_REFUSED, {"asked": {"SLURM_GPUS_ON_NODE": 2}, "kind": "docker"}, PASS, ""),
        (
            CONTROLS | TWO_OF_EIGHT | SIX_REFUSED,
            {"kind": "docker"},
            FAIL,
            "runtime: the device cgroup refuses /dev/nvidia2, /dev/nvidia3, /dev/nvidia4 and 3 more",
        ),
        (EIGHT, {}, FAIL, "runtime: no /dev/nvidiactl and no /dev/nvidia-uvm here"),
        (CONTROLS | EIGHT | {"/dev/nvidiactl": "EPERM"}, {}, FAIL, "the device cgroup refuses /dev/nvidiactl"),
        (CONTROLS | EIGHT | {"/dev/infiniband/uverbs0": "EBUSY"}, {}, INCOMPLETE, "/dev/infiniband/uverbs0 (EBUSY)"),
        (CONTROLS | EIGHT, {"verbs": 1}, FAIL, "runtime: 0 of the node's 1 network devices have their file"),
        (CONTROLS | EIGHT | {"/dev/infiniband/uverbs0": ""}, {"verbs": 2}, CONCERN, "1 of the node's 2 network"),
        (CONTROLS | TWO_OF_EIGHT | {"/dev/infiniband/uverbs0": ""}, {"verbs": 2}, PASS, ""),
        ({"/dev/neuron0": "EACCES"}, {"gpus": 0}, FAIL, "runtime: this user may not open /dev/neuron0"),
        ({"/dev/neuron0": ""}, {"gpus": 0}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT, {"verbs": 1}, CONCERN, "NCCL falls back to TCP between nodes"),
        (CONTROLS | EIGHT | {"/dev/nvidia9": "EIO nvidia"}, {}, PASS, ""),
        (CONTROLS | {"/dev/nvidia0": "EIO nvidia"}, {}, FAIL, "node: the driver refuses /dev/nvidia0 (EIO)"),
        (CONTROLS | {"/dev/nvidia0": "EIO"}, {}, FAIL, "runtime: no loaded driver has the device of /dev/nvidia0"),
        (CONTROLS | {"/dev/nvidia0": "EIO vcs"}, {}, FAIL, "runtime: no loaded driver has the device of /dev/nvidia0"),
        (
            CONTROLS | EIGHT | {"/dev/nvidia-uvm": " mem"},
            {},
            FAIL,
            "no loaded driver has the device of /dev/nvidia-uvm (/dev/null or its like is in its place)",
        ),
        (CONTROLS | EIGHT | {"/dev/nvidia-uvm": " nvidia-uvm", "/dev/nvidia0": " nvidia-frontend"}, {}, PASS, ""),
        (
            CONTROLS | {"/dev/nvidia0": " no device"},
            {},
            FAIL,
            "no loaded driver has the device of /dev/nvidia0 (a plain file is in its place)",
        ),
        (CONTROLS | EIGHT | {"/dev/infiniband/uverbs0": " infiniband_verbs"}, {"verbs": 1}, PASS, ""),
        (CONTROLS | EIGHT | {"/dev/gdrdrv": " gdrdrv"}, {}, PASS, ""),
        ({"/dev/neuron0": " neuron"}, {"gpus": 0}, PASS, ""),
        (CONTROLS | {"/dev/nvidia0": "EMFILE nvidia"}, {}, INCOMPLETE, "could not be opened just now: /dev/nvidia0"),
        (CONTROLS | EIGHT | {"/dev/gdrdrv": "EPERM"}, {}, FAIL, "the device cgroup refuses /dev/gdrdrv"),
        (CONTROLS | TWO_OF_EIGHT, {"begins_with": 1}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT, {"begins_with": 4, "mig": True}, PASS, ""),
        (CONTROLS | {"/dev/nvidia0": "", "/dev/nvidia1": "EBUSY"}, {"begins_with": 1}, PASS, ""),
        (CONTROLS | TWO_OF_EIGHT, {"begins_with": 4}, FAIL, "CUDA_VISIBLE_DEVICES begins with 4, and hides all 2 GPUs"),
        (CONTROLS | TWO_OF_EIGHT, {"begins_with": -1}, FAIL, "CUDA_VISIBLE_DEVICES names no GPU, and hides all 2 GPUs"),
    ],
)
def test_a_job_is_due_the_devices_that_it_asked_for(
    devices: dict[str, str], more: dict[str, Any], verdict: Verdict, message: str
) -> None:
    evidence = job(devices, {}, **{name: value for name, value in more.items() if name != "expect"})
    result = result_of(DEVICES, evidence, occasion="job", expect=more.get("expect", {"gpus": 8}))
    expect(result, verdict, message)


def test_a_bus_that_shows_other_devices_is_not_said_to_show_nothing() -> None:
    result = result_of(DEVICES, job({}, {}, gpus=0), occasion="job", expect={"gpus": 8})
    assert result.message == "node: the kernel shows none of its GPUs; expected 8"


def test_network_devices_that_a_job_does_not_get_are_said_once() -> None:
    result = result_of(DEVICES, job(CONTROLS | EIGHT, {}, verbs=1), occasion="job", expect={"gpus": 8})
    assert result.message.count("network devices") == 1, result.message


@pytest.mark.parametrize("pci", [None, {"devices": []}])
def test_a_container_that_shows_no_pci_bus_says_nothing_of_the_nodes_gpus(pci: Any) -> None:
    evidence = job({}, {}, gpus=0)
    collectors = {name: value for name, value in evidence.collectors.items() if name != "pci"}
    shown = {} if pci is None else {"pci": Collected(Status.READ, pci)}
    result = result_of(DEVICES, replace(evidence, collectors=collectors | shown), occasion="job", expect={"gpus": 8})
    expect(result, FAIL, "no GPU has a device file here, and nothing here shows the PCI bus; expected 8")
    assert "node:" not in result.message


@pytest.mark.parametrize(
    ("opened", "refused", "message"),
    [
        ({"/dev/nvidia0": ""}, {"/dev/nvidia1": "EPERM"}, "the device cgroup refuses /dev/nvidia1"),
        ({}, {"/dev/nvidia0": "EACCES", "/dev/nvidia1": "EACCES"}, "this user may not open /dev/nvidia0, /dev/nvidia1"),
    ],
)
def test_a_gpu_that_is_refused_has_its_device_file(
    opened: dict[str, str], refused: dict[str, str], message: str
) -> None:
    result = result_of(DEVICES, job(CONTROLS | opened | refused, {}, asked={"SLURM_GPUS_ON_NODE": 2}), occasion="job")
    expect(result, FAIL, message)
    assert "have a device file" not in result.message


@pytest.mark.parametrize("missing", ["pci", "rdma", "versions", "nvml"])
def test_what_the_cgroup_refuses_is_said_whatever_else_is_unknown(missing: str) -> None:
    evidence = job(CONTROLS | dict.fromkeys(EIGHT, "EPERM"), {})
    left = {name: value for name, value in evidence.collectors.items() if name != missing}
    expect(result_of(DEVICES, replace(evidence, collectors=left), occasion="job"), FAIL, "the device cgroup refuses")


@pytest.mark.parametrize("missing", ["rdma", "versions"])
def test_a_library_that_does_not_load_is_said_whatever_else_is_unknown(missing: str) -> None:
    evidence = job(CONTROLS | EIGHT, BOTH | {"libnccl.so.2": loaded("", "file too short")})
    left = {name: value for name, value in evidence.collectors.items() if name != missing}
    expect(result_of(LOADED, replace(evidence, collectors=left), occasion="job"), FAIL, "file too short")


def without(evidence: NodeEvidence, key: str, *, of_each: str = "") -> NodeEvidence:
    """The same without a key of the container collector's value, or of each item in a list or table there."""
    report = evidence.collectors["container"].value
    things = report[of_each].values() if isinstance(report.get(of_each), dict) else report.get(of_each, ())
    kept = [{name: value for name, value in thing.items() if name != key} for thing in things]
    if of_each and isinstance(report[of_each], dict):
        report = {**report, of_each: dict(zip(report[of_each], kept, strict=True))}
    elif of_each:
        report = {**report, of_each: kept}
    else:
        report = {name: value for name, value in report.items() if name != key}
    container = replace(evidence.collectors["container"], value=report)
    return replace(evidence, collectors={**evidence.collectors, "container": container})


@pytest.mark.parametrize(
    ("key", "of_each", "check", "message"),
    [
        ("driver", "devices", DEVICES, "runtime: the device cgroup refuses /dev/nvidia0; expected each file here"),
        ("gpus_asked", "", DEVICES, "runtime: the device cgroup refuses /dev/nvidia0; expected each file here"),
        ("verbs", "", DEVICES, "runtime: the device cgroup refuses /dev/nvidia0; expected each file here"),
        ("refused", "devices", LOADED, "libcuda.so.1 is of driver 535.54.03"),
        ("devices", "", LOADED, "libcuda.so.1 is of driver 535.54.03"),
        ("is_there", "libraries", LOADED, "libcuda.so.1 is of driver 535.54.03"),
        ("text", "libraries", LOADED, "libcuda.so.1 is of driver 535.54.03"),
    ],
)
def test_what_else_was_not_reported_hides_no_finding(key: str, of_each: str, check: str, message: str) -> None:
    old = {**BOTH, CUDA: loaded("/lib/libcuda.so.535.54.03")}
    evidence = job({**CONTROLS, "/dev/nvidia0": "EPERM nvidia"}, old, asked={"SLURM_GPUS_ON_NODE": 1})
    expect(result_of(check, without(evidence, key, of_each=of_each), occasion="job"), FAIL, message)


@pytest.mark.parametrize(
    ("libraries", "more", "verdict", "words"),
    [
        (BOTH, {}, PASS, ""),
        ({}, {"devices": {}, "gpus": 0}, NA, "no GPU here, and none of these libraries"),
        ({}, {"devices": {}}, NA, "no GPU here, and none of these libraries"),
        ({}, {}, FAIL, "runtime: no libcuda.so.1 and no libnvidia-ml.so.1, but the container has GPUs"),
        (BOTH | {CUDA: loaded("/lib/libcuda.so.1")}, {}, PASS, ""),
        (BOTH | {CUDA: loaded("/usr/local/cuda/compat/libcuda.so.590.48.01")}, {}, PASS, ""),
        (BOTH | {CUDA: loaded("/usr/local/cuda/compat/libcuda.so.580.95.05")}, {}, FAIL, "is of driver 580.95.05"),
        (BOTH | {CUDA: loaded("/opt/conda/cuda-compat/libcuda.so.590.44.01")}, {}, PASS, ""),
        (
            BOTH | {ML: loaded("/lib/libnvidia-ml.so.535.54.03", mount="/lib")},
            {},
            FAIL,
            "runtime: libnvidia-ml.so.1 is of driver 535.54.03 (/lib/libnvidia-ml.so.535.54.03); expected 580.126.09",
        ),
        (
            BOTH | {"libnccl.so.2": loaded("", "GLIBC_2.99' not\nfound")},
            {},
            FAIL,
            "image: libnccl.so.2 does not load: GLIBC_2.99' not found; expected it to load",
        ),
        (BOTH | {CUDA: loaded("", "no") | {"unread": "why"}}, {}, INCOMPLETE, "libcuda.so.1 was not loaded: why"),
        (BOTH | {"libnccl-net.so": NOT_THERE}, {}, PASS, ""),
        (BOTH | {"libnccl-net.so": NOT_THERE}, {"verbs": 1}, CONCERN, "image: no libnccl-net.so where the loader"),
        ({"libnccl-net.so": NOT_THERE, CUDA: loaded("/x")}, {"devices": {}, "verbs": 1}, PASS, ""),
    ],
)
def test_libraries_are_the_images_or_the_runtimes(
    libraries: dict[str, Any], more: dict[str, Any], verdict: Verdict, words: str
) -> None:
    expect(
        result_of(LOADED, job(**{"devices": CONTROLS | EIGHT, "libraries": libraries, **more}), occasion="job"),
        verdict,
        words,
    )


@pytest.mark.parametrize(
    ("devices", "verdict", "message"),
    [
        (CONTROLS | EIGHT | {"/dev/infiniband/uverbs0": "EPERM"}, FAIL, "the device cgroup refuses /dev/infiniband/uv"),
        (CONTROLS | {"/dev/nvidia0": "ENXIO nvidia"}, FAIL, "node: the driver refuses /dev/nvidia0 (ENXIO)"),
        (EIGHT, INCOMPLETE, "path could not be read"),  # it may be one of those that CUDA opens first
        (CONTROLS, INCOMPLETE, "path could not be read"),  # it may be a GPU's
    ],
)
def test_a_device_file_of_unread_path_hides_no_other_and_may_be_any(
    devices: dict[str, str], verdict: Verdict, message: str
) -> None:
    evidence = job(devices | {"/dev/x": ""}, BOTH, verbs=1, asked={"SLURM_GPUS_ON_NODE": 1})
    evidence.collectors["container"].value["devices"][-1]["path"] = {"error": "EIO", "text": ""}
    result = result_of(DEVICES, evidence)
    assert (result.verdict, message in result.message) == (verdict, True), result.message
    assert ("; expected" in result.message) is (verdict is FAIL)
