"""Compatible and incompatible versions, other nodes' versions, and nonsensical evidence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import compatibility, instance_types
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.software.version import parse
from tests.builders.evaluated import among, results
from tests.builders.examples import examples
from tests.builders.recordings import node

PASS, FAIL, CONCERN, INCOMPLETE, NA = (
    Verdict.PASS,
    Verdict.FAIL,
    Verdict.CONCERN,
    Verdict.INCOMPLETE,
    Verdict.NOT_APPLICABLE,
)
NCCLS = {"docker": "2.27.7", "enroot": "2.26.2"}  # by kind of container
MIXED: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def captured(manager: str, driver: str, **others: object) -> NodeEvidence:
    """A node of which only files with the versions of driver and fabric manager were captured."""
    components = {"driver": {"version": driver, "from": "/proc/driver/nvidia/version"}}
    versions = {"container": "", "components": components, "toolkits": [], "libraries": {}}
    output = {"exit": 0, "output": f"Fabric Manager version is : {manager}"}
    return node("gpu001", versions=versions, fabric_manager=output, **others)


def evidence(name: str = "gpu001", container: str = "", **versions: object) -> NodeEvidence:
    """A node that reported these versions, and no other software."""
    components = {
        name: {"version": version, "from": "/file"} if isinstance(version, str) else version
        for name, version in versions.items()
    }
    report = {"container": container, "components": components, "toolkits": [], "libraries": {}}
    return node(name, versions=report, rdma={"devices": [], "nvidia_taint": "OE"}, pci={"devices": []})


def evaluated(own: NodeEvidence, check: str, *peers: NodeEvidence, policy: Policy = NO_POLICY) -> Result:
    return results(own, peers=peers, policy=policy, instance_type="p5.48xlarge")[f"software.{check}"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        ({"driver": "580.126.09", "cuda": "13.0.1"}, PASS),
        ({"driver": "580.126.09", "cuda": "13.1.0"}, CONCERN),
        ({"driver": "575.57.08", "cuda": "13.0.1"}, FAIL),
        ({"driver": "525.60.13", "cuda": "12.0.0"}, PASS),
        ({"driver": "525.60.13", "cuda": "12.9.1"}, CONCERN),
        ({"driver": "520.61.05", "cuda": "12.0.0"}, FAIL),
        ({"driver": "450.80.02", "cuda": "11.8.0"}, PASS),
        ({"driver": "580.126.09", "cuda": "15.0.0"}, PASS),  # newer than the catalogue, which has nothing against it
        ({"driver": "580.126.09", "libcuda": "580.126.09"}, PASS),
        ({"driver": "580.126.09", "libcuda": "580.95.05"}, FAIL),
        ({"efa_installer": "1.29.0", "aws_ofi_nccl": "1.7.2-aws"}, FAIL),
        ({"efa_installer": "1.29.0", "aws_ofi_nccl": "1.7.3-aws"}, PASS),
        ({"efa_installer": "1.28.0", "aws_ofi_nccl": "1.7.0"}, PASS),
        ({"efa_installer": "1.25.0", "aws_ofi_nccl": "1.5.0"}, FAIL),
        ({"efa_installer": "1.19.0", "aws_ofi_nccl": "1.1.0"}, PASS),  # no pair is published
        ({"driver": {"error": "EACCES", "text": "denied"}, "cuda": "13.0.1"}, INCOMPLETE),
        ({"kernel": "6.8.0-1021-aws"}, NA),
    ],
)
def test_versions_fit_together_as_the_catalogue_says(versions: dict[str, object], verdict: Verdict) -> None:
    assert evaluated(evidence("gpu001", "", **versions), "version_compat").verdict is verdict


def test_a_clash_outranks_a_version_that_could_not_be_read() -> None:
    own = evidence(driver="570.133.20", cuda="13.0.1", libcuda={"error": "EIO", "text": "broken"})
    assert evaluated(own, "version_compat").verdict is FAIL


@pytest.mark.parametrize(
    ("manager", "others", "message"),
    [
        ("570.133.20", {}, "fabric manager 570.133.20 with driver 580.126.09; expected the same version"),
        ("580.126.09", {}, ""),
        ("570.133.20", {"nvml": {"driver": "580.126.09", "gpus": []}}, ""),  # gpu.fabric_manager compares these
    ],
)
def test_fabric_manager_is_compared_with_the_driver_of_the_kernel_where_nvml_names_none(
    manager: str, others: dict[str, object], message: str
) -> None:
    result = evaluated(captured(manager, "580.126.09", **others), "version_compat")
    assert ("fabric manager" in result.message) == bool(message)
    assert (result.verdict is FAIL) == bool(message)
    assert message in result.message


def test_each_clash_is_said_with_what_is_expected() -> None:
    own = evidence(driver="570.133.20", cuda="13.0.1", efa_installer="1.44.0", aws_ofi_nccl="1.6.0")
    first, other = evaluated(own, "version_compat").message.splitlines()
    assert first.startswith("CUDA 13.0.1 with driver 570.133.20; expected driver ")
    assert other.startswith("EFA installer 1.44.0 with aws-ofi-nccl 1.6.0; expected aws-ofi-nccl ")


@pytest.mark.parametrize(
    ("model", "needed"),
    [
        ("B200", "open"),
        ("GB300", "open"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "open"),
        ("NVIDIA GH200 480GB", "open"),
        ("H100", ""),
    ],
)
def test_grace_hopper_and_blackwell_need_the_open_kernel_module(model: str, needed: str) -> None:
    assert compatibility.kernel_module_needed(model) == needed


@pytest.mark.parametrize("installed", [{}, {"efa_installer": "1.44.0"}])
def test_what_is_not_installed_is_said_where_nothing_can_be_compared(installed: dict[str, str]) -> None:
    result = evaluated(evidence(**installed), "version_compat")
    assert (result.verdict, result.message) == (NA, "nothing to compare: NVIDIA's driver is not installed here")


def test_every_kernel_module_of_the_catalogue_is_of_a_gpu_model_that_there_is() -> None:
    models = {row.gpu_model for row in instance_types().values()}
    assert {model for model in models if model and compatibility.kernel_module_needed(model)} == {
        *("B200", "B300", "GB200", "GB300"),
        *("RTX PRO Server 6000", "RTX PRO 4500"),
    }


def test_every_toolkit_needs_a_driver_at_least_as_new_as_its_cuda() -> None:
    toolkits = [(12, minor) for minor in (0, 1, 2, 3, 4, 5, 6, 8, 9)] + [(13, 0), (13, 1)]
    drivers = [parse(compatibility.own_driver(cuda)).numbers for cuda in toolkits]
    assert drivers == sorted(drivers)
    assert all(
        parse(compatibility.oldest_driver(cuda[:1])).numbers <= own for cuda, own in zip(toolkits, drivers, strict=True)
    )


def test_hosts_are_compared_with_hosts_and_containers_with_containers() -> None:
    hosts = [evidence(f"host{number}", driver="580.126.09") for number in range(3)]
    inside = [evidence(f"pod{number}", "docker", driver="580.126.09", nccl="2.27.7") for number in range(3)]
    odd = evidence("pod9", "docker", driver="580.126.09", nccl="2.26.2")
    result = evaluated(odd, "version_drift", *hosts, *inside)
    assert (result.verdict, result.message) == (CONCERN, "nccl 2.26.2; expected 2.27.7 as on 3 of 4 nodes")
    assert evaluated(hosts[0], "version_drift", *hosts[1:], *inside, odd).verdict is PASS


def test_containers_of_one_kind_are_not_compared_with_those_of_another() -> None:
    inside = [evidence(f"{kind}{number}", kind, nccl=nccl) for kind, nccl in NCCLS.items() for number in range(3)]
    group = among(inside[0], peers=inside[1:], instance_type="p5.48xlarge").group
    verdicts = {node.name: evaluate(node_checks()["software.version_drift"], node).verdict for node in group.nodes}
    assert verdicts == dict.fromkeys(verdicts, PASS)


def test_a_version_that_one_node_cannot_read_is_no_difference() -> None:
    peers = [evidence(f"gpu{number}", nccl="2.27.7") for number in range(3)]
    assert evaluated(evidence("gpu9", nccl={"error": "EIO", "text": ""}), "version_drift", *peers).verdict is PASS


def test_a_difference_is_said_beside_a_package_database_that_could_not_be_read() -> None:
    peers = [evidence(f"gpu{number}", driver="580.126.09", enroot="3.5.0-1") for number in range(3)]
    unread = {"error": "EIO", "text": "broken"}
    assert (
        evaluated(evidence("gpu9", driver="580.126.09", packages=unread), "version_drift", *peers).verdict is INCOMPLETE
    )
    result = evaluated(evidence("gpu9", driver="570.133.20", packages=unread), "version_drift", *peers)
    assert [(finding.verdict, finding.message) for finding in result.findings] == [
        (INCOMPLETE, "the package database could not be read (EIO)"),
        (CONCERN, "driver 570.133.20; expected 580.126.09 as on 3 of 4 nodes"),
    ]


def test_a_manifest_that_is_kept_passes() -> None:
    policy = Policy(versions={"cuda": "== 12.9", "EFA-installer": ">= 1.43, < 1.50", "nccl": "!= 2.26"})
    own = evidence(cuda="12.9.1", efa_installer="1.44.0", nccl="2.27.7-1+cuda12.9")
    assert evaluated(own, "versions_expected", policy=policy).verdict is PASS


@pytest.mark.long
def test_a_row_of_the_manifest_whose_component_cannot_be_read_is_incomplete() -> None:
    own = evidence(driver={"error": "EACCES", "text": "denied"})
    assert evaluated(own, "drivers_expected", policy=Policy(versions={"driver": "== 580"})).verdict is INCOMPLETE


def test_a_component_is_not_missing_where_the_package_database_cannot_be_read() -> None:
    own = evidence(packages={"error": "EACCES", "text": "denied"})
    assert evaluated(own, "versions_expected", policy=Policy(versions={"enroot": ">= 3"})).verdict is INCOMPLETE


@pytest.mark.long
@given(versions=MIXED, image=MIXED, components=MIXED, libraries=MIXED)
@examples(60)
def test_nonsense_breaks_no_check_and_lets_none_of_software_pass(
    versions: object, image: object, components: object, libraries: object
) -> None:
    collected = versions if isinstance(versions, dict) else {}
    collected = {"components": components, "libraries": libraries, "container": "", "toolkits": [], **collected}
    by_check = results(node("gpu001", versions=collected, image=image), instance_type="p5.48xlarge")
    ours = [result for name, result in by_check.items() if name.startswith("software.")]
    assert not [result.message for result in ours if "the check itself broke" in result.message]


UNREAD = {"error": "EACCES", "text": "/root: Permission denied"}
CLEAN: dict[str, Any] = {
    "cloud_init": {"errors": []},
    "left": [],
    "keys": {},
    "under_way": [],
    "first_boot": None,
    "identity": [],
}
OLD = {"path": "/etc/machine-id", "written": 1_000}


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ({}, PASS),
        ({"left": [{"path": "/root/.aws/credentials", "bytes": UNREAD}]}, INCOMPLETE),
        ({"left": [{"path": "/var/crash", "bytes": UNREAD}]}, INCOMPLETE),
        ({"keys": {"root": UNREAD}}, INCOMPLETE),
        ({"first_boot": 1_000_000, "identity": [OLD]}, FAIL),
        ({"first_boot": 1_200, "identity": [OLD]}, PASS),
        ({"first_boot": None, "identity": [OLD]}, PASS),
        ({"first_boot": 1_000_000, "identity": [OLD | {"written": UNREAD}]}, INCOMPLETE),
        ({"first_boot": UNREAD}, INCOMPLETE),
        ({"keys": {"root": UNREAD}, "left": [{"path": "/home/a/.bash_history", "bytes": 9}]}, FAIL),
        ({"left": [{"path": "/root/.ssh/id_rsa", "bytes": UNREAD}, {"path": "/var/crash/a", "bytes": 9}]}, FAIL),
    ],
)
def test_what_may_not_be_looked_at_is_neither_clean_nor_left_behind(data: dict[str, object], verdict: Verdict) -> None:
    of_ec2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}
    result = evaluated(node("gpu001", image=CLEAN | data, platform=of_ec2), "image_clean")
    assert result.verdict is verdict, result.message
