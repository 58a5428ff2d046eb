"""Devices before which their collector hung: what others said is evaluated, and of these nothing is claimed."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import results
from tests.faults.proof import healthy, peers
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5

pytestmark = [needs_nodes, pytest.mark.long]

DETAIL = "it: no answer within 5 s"
HUNG = {"node.evidence_complete", "gpu.driver_answers_in_time"}
# What holds whatever the devices would have said: how many there are, modules and versions of drivers, EFA by its
# names, the model of GPUs by those that were read.
KNOWN = {
    "nvml": {"gpu.fabric_manager", "gpu.gpu_count"},
    "nvml of some": {"gpu.imex", "gpu.imex_domain", "gpu.imex_nodes", "gpu.rack_trays", "gpu.rack_uniform"}
    | {"software.container_devices"},
    "rdma": {"gpu.gpu_driver", "gpu.peermem", "host.efa_huge_pages", "software.container_devices"}
    | {f"network.{name}" for name in ("efa_count", "efa_modules", "efa_counters")}
    | {f"network.{name}" for name in ("ib_count", "ib_ports", "ib_link_layer", "ib_errors")}
    | {"software.efa_installer_string"},
}
LISTS = {"nvml": ("gpus", "index"), "rdma": ("devices", "name"), "nvme": ("controllers", "name")}
LISTS |= {"interfaces": ("physical", "name")}


def hung(collector: str, share: float | None, status: Status = Status.TIMED_OUT) -> NodeEvidence:
    """A healthy node on which that collector came to this share of its devices; None: nothing of it is known."""
    data = healthy(healthy_p5)
    value: dict[str, Any] | None = None
    if share is not None:
        key, by = LISTS[collector]
        every = data.collectors[collector].value[key]
        known = {key: every[: int(share * len(every))], f"all_{key}": [{by: device[by]} for device in every]}
        value = {**data.collectors[collector].value, **known}
    return replace(data, collectors={**data.collectors, collector: Collected(status, value, DETAIL)})


@pytest.mark.parametrize("collector", LISTS)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_no_check_passes_or_accuses_devices_that_were_never_read(collector: str, share: float) -> None:
    others = peers(healthy_p5)
    nothing = results(hung(collector, None), peers=others)
    said = results(hung(collector, share), peers=others)
    well = {Verdict.PASS, Verdict.NOT_APPLICABLE}
    passed = {name for name in said if said[name].verdict in well and nothing[name].verdict not in well}
    known = KNOWN.get(collector, set()) | (KNOWN.get(f"{collector} of some", set()) if share else set())
    assert passed <= known
    accused = {name for name, result in said.items() if result.verdict in (Verdict.FAIL, Verdict.CONCERN)}
    assert accused <= HUNG


def test_what_was_never_read_says_what_hung() -> None:
    said = results(hung("nvml", 0.5), peers=peers(healthy_p5))["gpu.no_uncorrected_ecc"]
    assert (said.verdict, DETAIL in said.message) == (Verdict.INCOMPLETE, True)


def test_a_driver_that_crashed_is_not_said_to_answer_in_time() -> None:
    said = results(hung("nvml", 0.5, Status.BROKE), peers=peers(healthy_p5))
    assert said["gpu.driver_answers_in_time"].verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("names", [5, "gpus", [5], [["name"]], {"name": 1}, [{"index": "x"}] * 9, [{}] * 100_000])
@pytest.mark.parametrize("read", [[], None, 5, "x", {}])
def test_names_of_no_sense_pass_no_check_and_break_none(names: object, read: object) -> None:
    data = hung("nvml", 0)
    value = {**data.collectors["nvml"].value, "gpus": read, "all_gpus": names}
    data = replace(data, collectors={**data.collectors, "nvml": Collected(Status.TIMED_OUT, value, DETAIL)})
    said = results(data)["gpu.no_uncorrected_ecc"]
    assert said.verdict is Verdict.INCOMPLETE, said.message
