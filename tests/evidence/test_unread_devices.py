"""Devices at which their collector hung: the others' reports are evaluated, and nothing is claimed about these."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import results
from tests.builders.probed import SOON, probe_node
from tests.faults.proof import healthy, peers
from tests.faults.roce import roce
from tests.testbed.lustre import ost
from tests.testbed.needs import needs_hung_mount, needs_nodes
from tests.testbed.node import entered, healthy_p5, with_file, with_hung_mount

pytestmark = [needs_nodes, pytest.mark.long]

DETAIL = "it: no answer within 5 s"
HUNG = {"node.evidence_complete", "gpu.driver_answers_in_time"}
# Results that do not depend on the devices' answers: how many there are, what the kernel knows without asking them,
# modules and driver versions, EFA by name, the model of the GPUs that were read.
KNOWN = {
    "nvml": {"gpu.fabric_manager", "gpu.gpu_count"},
    "nvml of some": {"gpu.imex", "gpu.imex_domain", "gpu.imex_nodes", "gpu.rack_trays", "gpu.rack_uniform"}
    | {"software.container_devices"},
    "rdma": {"gpu.gpu_driver", "gpu.peermem", "host.efa_huge_pages", "software.container_devices"}
    | {f"network.{name}" for name in ("efa_count", "efa_modules", "efa_counters")}
    | {f"network.{name}" for name in ("ib_count", "ib_ports", "ib_link_layer", "ib_errors", "ib_lost_packets")}
    | {"software.efa_installer_string"},
    "lustre": {"storage.lustre_client_cache", "storage.lustre_health"},
    "pci": {"gpu.nvswitch_count", "gpu.gpu_driver", "gpu.gpu_paths", "host.c_states", "host.device_drivers"}
    | {"network.efa_count", "gpu.pcie_switches", "gpu.gpu_numa", "host.numa", "network.nic_numa"}
    | {f"software.{name}" for name in ("container_devices", "libraries_load", "container_runtime")},
    "pci_config": {"gpu.pcie_acs", "gpu.pcie_iommu"},
}
LISTS = {"nvml": ("gpus", "index"), "rdma": ("devices", "name"), "nvme": ("controllers", "name")}
LISTS |= {
    "interfaces": ("physical", "name"),
    "lustre": ("clients", "kind name"),
    "lustre_space": ("targets", "kind name"),
}
LISTS |= {"pci": ("devices", "address vendor device class path driver function_of numa")}
LISTS |= {"efa_counters": ("devices", "name"), "ena_counters": ("interfaces", "name"), "ebs": ("volumes", "name")}
LISTS |= {"logs": ("folders", "name"), "pci_config": ("functions", "address kind model path iommu")}


def hung(collector: str, share: float | None, status: Status = Status.TIMED_OUT) -> NodeEvidence:
    """A healthy node on which that collector got through this share of its devices; None: through none."""
    evidence = healthy(healthy_p5)
    value: dict[str, Any] | None = None
    if share is not None:
        key, by = LISTS[collector]
        every = evidence.collectors[collector].value[key]
        known = {
            key: every[: int(share * len(every))],
            f"all_{key}": [{name: device[name] for name in by.split()} for device in every],
        }
        value = {**evidence.collectors[collector].value, **known}
    return replace(evidence, collectors={**evidence.collectors, collector: Collected(status, value, DETAIL)})


def accuses(result: Result) -> bool:
    """Whether any of its messages is about a fault."""
    return not {result.verdict, *(finding.verdict for finding in result.findings)}.isdisjoint(
        (Verdict.FAIL, Verdict.CONCERN)
    )


def gaps(result: Result) -> list[str]:
    """What it could not find out."""
    return [finding.line for finding in result.findings if finding.verdict is Verdict.INCOMPLETE]


@pytest.mark.parametrize("collector", LISTS)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_no_check_passes_or_accuses_devices_that_were_never_read(collector: str, share: float) -> None:
    others = peers(healthy_p5)
    nothing = results(hung(collector, None), peers=others)
    by_check = results(hung(collector, share), peers=others)
    well = {Verdict.PASS, Verdict.NOT_APPLICABLE}
    passed = {name for name in by_check if by_check[name].verdict in well and nothing[name].verdict not in well}
    known = KNOWN.get(collector, set()) | (KNOWN.get(f"{collector} of some", set()) if share else set())
    assert passed <= known
    assert {name for name, result in by_check.items() if accuses(result)} <= HUNG


def test_what_was_never_read_says_what_hung() -> None:
    result = results(hung("nvml", 0.5), peers=peers(healthy_p5))["gpu.no_uncorrected_ecc"]
    assert (result.verdict, DETAIL in result.message) == (Verdict.INCOMPLETE, True)


@pytest.mark.parametrize("collector", LISTS)
def test_nothing_that_was_never_read_is_said_to_be_unreported(collector: str) -> None:
    known = {line for result in results(healthy(healthy_p5)).values() for line in gaps(result)}
    lines = {line for result in results(hung(collector, 0.5)).values() for line in gaps(result)} - known
    assert [line for line in lines if "not reported" in line] == []
    assert any("was not read" in line and DETAIL in line for line in lines)


def test_ports_of_roce_that_were_never_read_may_be_the_rails() -> None:
    evidence = healthy(roce)
    ports = [{**port, "rate": "25 Gb/sec (1X EDR)", "gids": []} for port in evidence.collectors["roce"].value["ports"]]
    names = [{key: port[key] for key in ("device", "model", "port")} for port in ports]
    value = {"ports": ports[:2], "all_ports": names}
    evidence = replace(evidence, collectors={**evidence.collectors, "roce": Collected(Status.TIMED_OUT, value, DETAIL)})
    assert not accuses(results(evidence)["network.roce_settings"])


def test_a_driver_that_crashed_is_not_said_to_answer_in_time() -> None:
    by_check = results(hung("nvml", 0.5, Status.BROKE), peers=peers(healthy_p5))
    assert by_check["gpu.driver_answers_in_time"].verdict is Verdict.INCOMPLETE


@needs_hung_mount
@pytest.mark.parametrize(
    ("collector", "key", "hangs"),
    [
        ("pci", "devices", "/sys/devices/pci0000:00/0000:64:00.0/power"),
        ("lustre", "clients", ost(2, "")),
        ("lustre_space", "targets", ost(2, "")),
    ],
)
def test_a_device_that_hangs_hides_nothing_of_those_before_it(collector: str, key: str, hangs: str) -> None:
    image = with_file(healthy_p5(), f"{hangs}/runtime_status", "active\n")
    known = healthy(healthy_p5).collectors[collector].value[key]
    with entered(with_hung_mount(image, hangs.rstrip("/"))) as node:
        evidence = probe_node(node, [collector], SOON).collectors[collector]
    read = evidence.value[key]
    assert evidence.status is Status.TIMED_OUT
    assert 0 < len(read) < len(known)
    assert [{**whole, **device} for device, whole in zip(read, known, strict=False)] == read
    names = evidence.value[f"all_{key}"]
    assert [{**whole, **named} for named, whole in zip(names, known, strict=True)] == known


@pytest.mark.parametrize("names", [5, "gpus", [5], [["name"]], {"name": 1}, [{"index": "x"}] * 9, [{}] * 100_000])
@pytest.mark.parametrize("read", [[], None, 5, "x", {}])
def test_names_of_no_sense_pass_no_check_and_break_none(names: object, read: object) -> None:
    evidence = hung("nvml", 0)
    value = {**evidence.collectors["nvml"].value, "gpus": read, "all_gpus": names}
    evidence = replace(evidence, collectors={**evidence.collectors, "nvml": Collected(Status.TIMED_OUT, value, DETAIL)})
    result = results(evidence)["gpu.no_uncorrected_ecc"]
    assert result.verdict is Verdict.INCOMPLETE, result.message
