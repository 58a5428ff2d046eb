"""A healthy node of any GPU model passes every check that applies to it: idle, busy, partitioned."""

from __future__ import annotations

from functools import cache

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import probed, results
from tests.faults.proof import peers_of
from tests.testbed.gpus import MODELS, healthy_gpu_node
from tests.testbed.needs import needs_nodes

HAS_MIG = ("A100-40", "A100-80", "H100", "H200", "B200", "GB200", "GB300")
STATES = [(model, False, loaded) for model in MODELS for loaded in (False, True)] + [
    (model, True, loaded) for model in HAS_MIG for loaded in (False, True)
]
AT_WORK = {"gpu.no_leftover_processes": Verdict.CONCERN}  # only before and after a job is it known to be a leftover
NOT_IN_THE_CATALOGUE = {  # EC2 publishes no numbers for these types
    "GB200": ("network.efa_rate", "storage.nvme_scratch"),
    "GB300": ("network.efa_rate", "storage.nvme_scratch", "host.cpus_online", "host.memory_size"),
}
# Checks that do not apply to a model, and why.
NO_DCGM_LOG = {"gpu.dcgm_diag"}
NO_PCIE_SWITCH = {"gpu.pcie_acs", "gpu.pcie_iommu", "gpu.pcie_settings", "gpu.pcie_switches"}  # as far as EC2 shows
NO_FABRIC = {"gpu.fabric_state", "gpu.fabric_uniform"}  # before Hopper, GPUs do not register with a fabric
NO_NVSWITCH = {"gpu.fabric_manager", "gpu.nvswitch_count"}  # or they belong to the rack
OFF_THE_BUS = {"gpu.nvswitch_count"}
NO_RACK = {"gpu.imex", "gpu.imex_domain", "gpu.imex_nodes", "gpu.rack_trays", "gpu.rack_uniform"}
NO_GPUDIRECT = {"gpu.peermem"}
NO_NVLINK = NO_FABRIC | NO_NVSWITCH | NO_GPUDIRECT | {"gpu.nvlink_active", "gpu.nvlink_errors"}
OLD_DRIVER = {"gpu.recovery_action"}
NO_MIG = {"gpu.mig_uniform"}
NOT_APPLICABLE = {
    "V100": NO_RACK | NO_FABRIC | NO_NVSWITCH | NO_GPUDIRECT | OLD_DRIVER | NO_MIG,
    "T4": NO_RACK | NO_NVLINK | OLD_DRIVER | NO_MIG,
    "A100-40": NO_RACK | NO_FABRIC,
    "A100-80": NO_RACK | NO_FABRIC | OLD_DRIVER,
    "A10G": NO_RACK | NO_NVLINK | OLD_DRIVER | NO_MIG,
    "L4": NO_RACK | NO_NVLINK | NO_MIG,
    "L40S": NO_RACK | NO_NVLINK | NO_MIG,
    "H100": NO_RACK,
    "H200": NO_RACK,
    "B200": NO_RACK | OFF_THE_BUS,
    "GB200": NO_NVSWITCH,
    "GB300": NO_NVSWITCH | NO_GPUDIRECT,  # the catalogue does not cover its GPUDirect RDMA
}
WITH_MIG = NO_FABRIC | {"gpu.nvlink_active", "gpu.nvlink_errors", "gpu.row_remap"}  # the driver does not report them


@cache
def evaluated(model: str, mig: bool, loaded: bool) -> dict[str, Result]:
    evidence = probed(healthy_gpu_node(model, mig=mig, loaded=loaded))
    return results(evidence, peers=peers_of(evidence))


@needs_nodes
@pytest.mark.parametrize(("model", "mig", "loaded"), STATES)
def test_a_healthy_node_has_nothing_to_complain_of(model: str, mig: bool, loaded: bool) -> None:
    by_check = evaluated(model, mig, loaded)
    not_well = {
        name: result
        for name, result in by_check.items()
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    }
    expected = (AT_WORK if loaded else {}) | dict.fromkeys(NOT_IN_THE_CATALOGUE.get(model, ()), Verdict.INCOMPLETE)
    assert {name: result.verdict for name, result in not_well.items()} == expected, [
        result.message for result in not_well.values()
    ]


@needs_nodes
@pytest.mark.parametrize(("model", "mig"), [(model, mig) for model, mig, loaded in STATES if not loaded])
def test_what_does_not_apply_is_what_the_model_lacks_or_the_driver_does_not_report(model: str, mig: bool) -> None:
    gpus = {name: result for name, result in evaluated(model, mig, False).items() if result.subsystem == "gpu"}
    left_out = {name for name, result in gpus.items() if result.verdict is Verdict.NOT_APPLICABLE}
    assert left_out == NO_DCGM_LOG | NO_PCIE_SWITCH | NOT_APPLICABLE[model] | (WITH_MIG if mig else set())


@needs_nodes
@pytest.mark.parametrize("model", HAS_MIG)
def test_what_mig_hides_is_said_to_be_hidden_by_mig(model: str) -> None:
    by_check = evaluated(model, True, False)
    assert [name for name in WITH_MIG if "MIG is on" not in by_check[name].message] == []
