"""Checks of an image, of the node itself and of logs on evidence that no fault of a node produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, gpu, node, nvml

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
EC2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}
UNREAD = {"error": "EACCES", "text": ""}
GPU = {"class": "030200", "vendor": "10de", "device": "2330", "address": "0000:53:00.0", "numa": 0}
IMAGE = {
    "cloud_init": {"errors": []},
    "left": [],
    "keys": {},
    "under_way": [],
    "programs": {},
    "toolkit": [],
    "enroot": False,
    "plugins": [],
    "first_boot": 1_000_000,
    "identity": [],
    "modules": [],
}


def evaluated(
    check: str, instance_type: str = "p5.48xlarge", occasion: str = "preflight", expect: Any = None, **collectors: Any
) -> Result:
    reports = {
        "boot": boot(),
        "platform": EC2 if instance_type else {"vendor": "", "product": "", "serial": ""},
        "pci": {"devices": []},
        "rdma": {"devices": []},
        "nvml": nvml(),
    } | collectors
    return result_of(
        check, node("gpu001", **reports), occasion=occasion, instance_type=instance_type, expect=expect or {}
    )


def file(size: Any = 10, **values: Any) -> dict[str, Any]:
    return {"path": "/f", "bytes": size, **values}


@pytest.mark.parametrize(
    ("changed", "verdict", "message"),
    [
        ({}, PASS, ""),
        ({"cloud_init": None}, INCOMPLETE, "cloud-init wrote no result"),
        (
            {"cloud_init": {"errors": ["no network"]}},
            FAIL,
            "cloud-init: no network; expected none of these in an image",
        ),
        ({"left": [file()]}, FAIL, "left behind: /f"),
        ({"left": [file(UNREAD)]}, INCOMPLETE, "/f: "),
        ({"keys": UNREAD}, INCOMPLETE, "keys"),
        ({"keys": {"fedora": {"keys": 1, "commands": 0}}}, PASS, ""),
        ({"keys": {"centos": {"keys": 2, "commands": 0}}}, FAIL, "2 keys may log in as centos, cloud-init gives 1"),
        ({"keys": {"eve": {"keys": 1, "commands": 0}}}, FAIL, "1 keys may log in as eve, cloud-init gives 0"),
        ({"identity": [{"path": "/etc/machine-id", "written": 1}]}, FAIL, "older than the instance: /etc/machine-id"),
        ({"identity": [{"path": "/etc/machine-id", "written": 1_000_001}]}, PASS, ""),
        ({"identity": [{"path": "/etc/machine-id", "written": 1}], "first_boot": None}, PASS, ""),
        ({"identity": [{"path": "/etc/machine-id", "written": UNREAD}]}, INCOMPLETE, "/etc/machine-id: "),
    ],
)
def test_an_image_holds_nothing_of_the_machine_that_it_was_made_on(
    changed: dict[str, Any], verdict: Verdict, message: str
) -> None:
    expect(evaluated("software.image_clean", image={**IMAGE, **changed}), verdict, message)


def test_without_containers_there_is_nothing_to_start_them_with() -> None:
    expect(evaluated("software.container_runtime", image=IMAGE), NA, "no container runtime here")


@pytest.mark.parametrize(
    ("programs", "verdict", "message"),
    [
        ({}, FAIL, "/etc/enroot without enroot; expected complete container runtimes"),
        ({"enroot": "/usr/bin/enroot"}, PASS, ""),
        (UNREAD, INCOMPLETE, "programs could not be read"),
    ],
)
def test_enroot_is_missing_where_no_other_runtime_is_there(programs: Any, verdict: Verdict, message: str) -> None:
    image = {**IMAGE, "programs": programs, "enroot": True}
    expect(evaluated("software.container_runtime", image=image), verdict, message)


DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


def software(*names: str) -> dict[str, Any]:
    return {"container": "", "components": {}, "toolkits": [], "libraries": {name: [file()] for name in names}}


@pytest.mark.parametrize(
    ("names", "devices", "instance_type", "occasion", "verdict", "message"),
    [
        (DRIVER, [GPU], "p5.48xlarge", "preflight", PASS, ""),
        (
            DRIVER[:1],
            [GPU],
            "p5.48xlarge",
            "preflight",
            FAIL,
            "no libnvidia-ml.so.1; expected each library to exist and not to be empty",
        ),
        (DRIVER[:1], [GPU], "p9.metal", "preflight", FAIL, "no libnvidia-ml.so.1"),  # the bus shows a GPU
        ((), [], "p9.metal", "preflight", NA, "no GPU on this node"),
        ((), [], "trn1.32xlarge", "preflight", NA, "no GPU on this node"),
        (DRIVER, [], "trn1.32xlarge", "preflight", PASS, ""),
        ((*DRIVER, "libnccl.so.2"), [GPU], "p5.48xlarge", "ami", FAIL, "no libnccl-net.so; expected"),
        ((*DRIVER, "libnccl.so.2", "libnccl-net.so"), [GPU], "p5.48xlarge", "ami", PASS, ""),
    ],
)
def test_libraries_are_due_where_there_are_gpus(
    names: Any, devices: Any, instance_type: str, occasion: str, verdict: Verdict, message: str
) -> None:
    result = evaluated(
        "software.libraries_load",
        instance_type,
        occasion,
        {"efa": 32} if occasion == "ami" else None,
        versions=software(*names),
        pci={"devices": devices},
    )
    expect(result, verdict, message)


def test_a_driver_in_a_container_has_no_library_on_the_host() -> None:
    none = {**software(), "libraries": {name: [] for name in DRIVER}}
    libraries: dict[str, Any] = {"versions": none, "pci": {"devices": [GPU]}}
    result = evaluated("software.libraries_load", **libraries)
    expect(result, NA, "NVML answers and the host's loader finds no library of the driver, which may be in a container")
    hung = {"nvml": Collected(Status.TIMED_OUT, detail="did not answer within 15 s")}
    expect(evaluated("software.libraries_load", **{**libraries, **hung}), INCOMPLETE, "NVML did not answer within 15 s")
    unread = {**none, "libraries": {DRIVER[0]: []}}  # that of libnvidia-ml is not known to be absent
    for collectors in (
        {"nvml": {"init": "error DRIVER_NOT_LOADED"}},
        {"versions": {**none, "libraries": {DRIVER[0]: [file()], DRIVER[1]: []}}},
        {"versions": unread},
    ):
        assert evaluated("software.libraries_load", **{**libraries, **collectors}).verdict is FAIL
    assert evaluated("software.libraries_load", occasion="ami", **libraries).verdict is FAIL
    empty = {**none, "libraries": {**none["libraries"], "libnccl.so.2": [file(0)]}}
    expect(evaluated("software.libraries_load", **{**libraries, "versions": empty}), FAIL, "libnccl.so.2: /f is empty")


@pytest.mark.parametrize(
    ("check", "collectors", "message"),
    [
        ("libraries_load", {"pci": {}, "versions": software()}, "no libcuda.so.1, no"),
        ("libraries_load", {"pci": {"devices": [GPU]}, "rdma": {}, "versions": software(*DRIVER)}, "no libnccl.so.2"),
        ("container_runtime", {"pci": {}, "image": {**IMAGE, "programs": {"dockerd": "/x"}}}, "dockerd without"),
        (
            "efa_installer_string",
            {"rdma": {}, "versions": {"components": {"efa_installer": {"version": "2.3.1amzn2.0"}}}},
            "which is a version of libfabric",
        ),
    ],
)
def test_a_type_says_what_is_due_where_the_devices_are_unread(
    check: str, collectors: dict[str, Any], message: str
) -> None:
    due = {"efa": 32} if check == "efa_installer_string" else None
    result = evaluated(f"software.{check}", "p5.48xlarge", "ami", due, **collectors)
    assert result.verdict is FAIL, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("why", "detail", "verdict", "message"),
    [
        (Unreached.REFUSED, "port 22", FAIL, "port 22; expected an answer from the probe"),
        (Unreached.REFUSED, "", FAIL, "no more is known; expected an answer from the probe"),
        (Unreached.BUSY, "a job has it", INCOMPLETE, "a job has it; expected a place on the node for a moment"),
        (Unreached.DRAINED, "a job has it", INCOMPLETE, "a job has it; expected a place on the node for a moment"),
    ],
)
def test_the_reason_why_a_node_was_not_reached_is_reported(
    why: Unreached, detail: str, verdict: Verdict, message: str
) -> None:
    expect(result_of("node.reachable", NodeEvidence("gpu001", unreached=why, detail=detail)), verdict, message)


@pytest.mark.parametrize(
    ("status", "verdict", "message"),
    [
        (Status.READ, PASS, ""),
        (Status.CUT, INCOMPLETE, "cut from the answer: mounts (no reason given); expected whole answers"),
        (Status.UNCOLLECTED, INCOMPLETE, "the capture lacks mounts; expected every kind of evidence"),
        (Status.TIMED_OUT, CONCERN, "no answer from mounts; expected one from every kind of evidence"),
        (Status.BROKE, CONCERN, "no answer from mounts; expected one"),
    ],
)
def test_what_did_not_come_is_named(status: Status, verdict: Verdict, message: str) -> None:
    evidence = node("gpu001", boot=boot(), mounts=Collected(status, {} if status is Status.READ else None))
    expect(result_of("node.evidence_complete", evidence), verdict, message)


@pytest.mark.parametrize(
    ("too_long", "message"),
    [
        (True, "cut from the answer: mounts, nvml; expected whole answers, as with --ssm-output s3://BUCKET"),
        (False, "cut from the answer: mounts, nvml (as it is); expected whole answers"),
    ],
)
def test_the_bucket_of_ssm_is_named_only_where_ssm_has_cut_an_answer(too_long: bool, message: str) -> None:
    cut = Collected(Status.CUT, detail="as it is", too_long=too_long)
    result = result_of("node.evidence_complete", node("gpu001", boot=boot(), mounts=cut, nvml=cut))
    assert (result.verdict, result.message) == (INCOMPLETE, message)


@pytest.mark.parametrize(
    ("check", "instance_type", "message"),
    [
        ("gpu.gpu_count", "trn1.32xlarge", "trn1.32xlarge has no GPU"),
        ("gpu.gpu_count", "", "this node has no GPU"),
        ("gpu.peermem", "g5.2xlarge", "g5.2xlarge has neither an EFA device"),
        ("gpu.peermem", "", "this node has neither an EFA device"),
    ],
)
def test_a_node_without_a_device_says_so_of_its_type_or_itself(check: str, instance_type: str, message: str) -> None:
    none: dict[str, list[str]] = {"names": [], "physical": []}
    expect(evaluated(check, instance_type, expect={"gpus": 0, "efa": 0}, interfaces=none), NA, message)


def test_the_driver_of_a_node_without_gpus_is_not_waited_for() -> None:
    absent = {"init": {"error": "LIBRARY_NOT_FOUND", "text": "no library"}, "init_s": 99.0}
    expect(evaluated("gpu.driver_answers_in_time", "trn1.32xlarge", nvml=absent), NA, "")


def test_a_kernel_without_a_version_says_nothing_about_dma_buf() -> None:
    modules = {"devices": [], "modules": ["gdrdrv"], "nvidia_taint": "OE"}
    result = evaluated("gpu.peermem", expect={"efa": 32}, boot=boot("custom"), rdma=modules)
    expect(result, INCOMPLETE, "the kernel release is 'custom'; expected a version number")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["NVRM: Xid (PCI:0000:53:00): 79, pid=7, name=python3, GPU has fallen off the bus."], "in process python3: "),
        (["NVRM: Xid (PCI:0000:53:00): 79, pid=7, name=python3, GPU has fallen off the bus."] * 3, ", 3 times"),
    ],
)
def test_an_xid_is_reported_with_its_number_and_its_process(lines: list[str], message: str) -> None:
    records = [[100.0 + at, line] for at, line in enumerate(lines)]
    result = evaluated("gpu.no_xid", kernel_log={"lines": records, "truncated": False}, nvml=nvml(gpu(0)))
    expect(result, FAIL, message)
