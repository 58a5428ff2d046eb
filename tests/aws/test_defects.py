"""The defects of the script that this suite replaces (perf-snapshot.sh; D1 to D14): the suite has none of them.

Two are missing, as no check works this way: D2 (iowait parsed from iostat's text) and D3 (the EFA installer's version
parsed from the first words of a file).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.aws.mounted_fsx import source_of
from clusterproof.plugins.evidence.nodes import nodes
from tests.aws.cluster_faults import listed
from tests.aws.cluster_runs import CHECKS, messages, verdicts
from tests.aws.clusters import NAME, instance_id, with_cluster
from tests.aws.service import Service
from tests.aws.systems_manager import SystemsManager
from tests.builders.evaluated import probed, results
from tests.builders.runs import ROOT, Runs
from tests.faults import BY_NAME
from tests.faults.fault import p5
from tests.faults.infiniband import infiniband
from tests.faults.kernel_log import XID
from tests.faults.network import efa_names
from tests.faults.proof import peers
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5, with_file, with_kernel_line, with_nvml, with_tool, without_efa, without_file
from tests.testbed.software import EFA_RECORD

pytest_plugins = ["pytester"]
GPUS = range(8)


def evaluated(image: NodeImage, instance_type: str = "") -> dict[str, Result]:
    """The result of every check on a fake node."""
    return results(probed(image), instance_type=instance_type)


def on_all_gpus(image: NodeImage, **values: object) -> NodeImage:
    for gpu in GPUS:
        image = with_nvml(image, gpu=gpu, **values)
    return image


SILENCES: dict[str, Callable[[str, Sequence[str]], bytes]] = {
    "nothing at all": lambda _target, _words: b"",
    "EOF without a terminal": lambda _target, _words: b"Cannot perform start session: EOF\n",
    "empty JSON": lambda _target, _words: b"{}\n",
}


@pytest.mark.parametrize("run", SILENCES.values(), ids=SILENCES)
def test_d1_a_node_that_reports_nothing_passes_no_check(
    runs: Runs, service: Service, manager: SystemsManager, run: Callable[[str, Sequence[str]], bytes]
) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 1)})
    manager.run = run
    folders = [str(ROOT / "checks" / folder) for folder in ("node", "gpu", "network", "host", "storage")]
    ran = runs.run("--cluster", NAME, "--results", str(runs.results_file), *folders)
    of_node = {result.check: result.verdict for result in runs.results if not result.is_of_cluster}
    assert of_node.pop("node.reachable") is Verdict.FAIL
    assert set(of_node.values()) == {Verdict.INCOMPLETE}
    assert len(of_node) > 30
    assert ran.ret == 1


@needs_nodes
def test_d2_time_that_cpus_wait_for_storage_is_seen() -> None:
    by_check = results(probed(BY_NAME["CPUs that wait for I/O"].put(healthy_p5())))
    assert by_check["host.iowait"].verdict is Verdict.CONCERN


@needs_nodes
def test_d3_the_installers_own_line_is_read_and_libfabrics_version_is_none() -> None:
    result = results(probed(healthy_p5()))["software.efa_installer_string"]
    assert result.verdict is Verdict.PASS
    mistaken = healthy_p5()
    mistaken = with_file(mistaken, EFA_RECORD, "# EFA installer version: 2.3.1amzn2.0\n")
    assert results(probed(mistaken))["software.efa_installer_string"].verdict is Verdict.FAIL


@needs_nodes
def test_d4_rdma_devices_that_are_no_efa_do_not_stand_for_those_that_are_missing() -> None:
    image = healthy_p5()
    image = without_efa(image, efa_names(image)[4])
    other = {path: content for path, content in infiniband().sys.items() if "0000:17:00.0" in path or "mlx5_0" in path}
    result = results(probed(replace(image, sys=image.sys | other)), peers=peers(p5))["network.efa_count"]
    assert result.verdict is Verdict.FAIL
    assert "31" in result.observed
    assert "32" in result.expected


@needs_nodes
@pytest.mark.parametrize(
    ("fault", "check", "attached", "says"),
    [
        ("a GPU that failed before the driver saw it", "gpu.gpu_count", None, Verdict.FAIL),
        ("an EFA device that is missing", "network.efa_count", 32, Verdict.FAIL),
        ("an EFA device that is missing", "network.efa_count", 31, Verdict.CONCERN),  # so it was launched
        ("an EFA device that is missing", "network.efa_count", None, Verdict.CONCERN),  # perhaps it was
    ],
)
def test_d5_counts_are_held_against_the_instance_type(
    fault: str, check: str, attached: int | None, says: Verdict
) -> None:
    evidence = probed(BY_NAME[fault].put(healthy_p5()))
    target = Target(evidence.node, instance_type="p5.48xlarge", efa_attached=attached)
    node = nodes(Cluster("fakes", "local", (target,)), {evidence.node: evidence})[evidence.node]
    assert evaluate(node_checks()[check], node).verdict is says


@needs_nodes
def test_d6_types_without_nvlink_and_gpus_in_mig_mode_are_not_called_healthy() -> None:
    unsupported = on_all_gpus(healthy_p5(), nvlinks=0)
    assert evaluated(unsupported, instance_type="g6e.48xlarge")["gpu.nvlink_active"].verdict is Verdict.NOT_APPLICABLE
    partitioned = on_all_gpus(unsupported, mig_mode=True)
    assert evaluated(partitioned)["gpu.nvlink_active"].verdict is Verdict.NOT_APPLICABLE
    assert evaluated(unsupported)["gpu.nvlink_active"].verdict is Verdict.FAIL  # a p5 has them


@needs_nodes
def test_d7_gpus_with_ecc_off_are_not_called_healthy() -> None:
    off = "error NOT_SUPPORTED"
    image = on_all_gpus(healthy_p5(), ecc_enabled=False, ecc_uncorrected_dram=off, ecc_uncorrected_sram=off)
    by_check = evaluated(image)
    assert by_check["gpu.no_uncorrected_ecc"].verdict is Verdict.CONCERN
    assert by_check["gpu.ecc_mode"].verdict is Verdict.CONCERN


@needs_nodes
def test_d8_a_lifetime_counter_is_no_fault_until_the_driver_says_that_it_is() -> None:
    once = evaluated(with_nvml(healthy_p5(), gpu=2, ecc_aggregate_uncorrected_sram=1))
    assert {once["gpu.sram_threshold"].verdict, once["gpu.no_uncorrected_ecc"].verdict} == {Verdict.PASS}
    exceeded = evaluated(with_nvml(healthy_p5(), gpu=2, sram_threshold_exceeded=True))
    assert exceeded["gpu.sram_threshold"].verdict is Verdict.FAIL


@needs_nodes
@pytest.mark.parametrize(
    ("xid", "verdict"),
    [
        ("13, pid=7, name=python3, Graphics Exception", Verdict.PASS),
        ("43, pid=7, name=python3, Ch 00000008", Verdict.PASS),
        ("79, GPU has fallen off the bus.", Verdict.FAIL),
    ],
)
def test_d9_an_xid_is_evaluated_by_its_meaning(xid: str, verdict: Verdict) -> None:
    image = with_kernel_line(healthy_p5(), XID.format(bus="53", text=xid), at_s=10_000)
    assert evaluated(image)["gpu.no_xid"].verdict is verdict


@needs_nodes
def test_d10_a_kernel_log_that_may_not_be_read_is_not_an_empty_one() -> None:
    refused = "#!/bin/sh\necho 'read kernel buffer failed: Operation not permitted' >&2\nexit 1\n"
    image = with_tool(with_tool(without_file(healthy_p5(), "/dev/kmsg"), "dmesg", refused), "journalctl", refused)
    by_check = evaluated(image)
    assert {by_check["gpu.no_xid"].verdict, by_check["gpu.no_sxid"].verdict} == {Verdict.INCOMPLETE}


@needs_nodes
def test_d11_fabric_manager_is_due_on_a_p5_and_not_on_an_nvl72_tray() -> None:
    stopped = BY_NAME["fabric manager stopped"].put(healthy_p5())
    assert evaluated(stopped, instance_type="p5.48xlarge")["gpu.fabric_manager"].verdict is Verdict.FAIL
    tray = evaluated(stopped, instance_type="p6e-gb200.36xlarge")
    assert tray["gpu.fabric_manager"].verdict is Verdict.NOT_APPLICABLE


def test_d12_nodes_behind_the_first_page_are_seen(runs: Runs, service: Service) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 240)})

    def ill(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["InstanceId"] == instance_id("workers-230"):
                row["InstanceStatus"] = {"Status": "Failure", "Message": ""}

    listed(service, ill)
    runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS, "-k", "test_nodes_running or single_az")
    assert verdicts(runs) == {"control_plane.nodes_running": Verdict.FAIL, "control_plane.single_az": Verdict.PASS}
    assert f"{instance_id('workers-230')} (workers) is Failure" in messages(runs)


@pytest.mark.parametrize(
    ("kind", "source", "system"),
    [
        ("lustre", "10.1.71.197@tcp:/oyuutbev", {"LustreConfiguration": {"MountName": "oyuutbev"}}),
        ("lustre", "172.31.14.250@tcp:/fsx", {"LustreConfiguration": {"MountName": "fsx"}}),
        (
            "nfs4",
            "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com:/fsx",
            {"DNSName": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com", "OpenZFSConfiguration": {}},
        ),
    ],
)
def test_d13_real_mounts_are_known_for_the_file_systems_that_they_are(
    kind: str, source: str, system: dict[str, object]
) -> None:
    parsed = source_of(kind, source)
    assert parsed
    assert parsed.is_of({"FileSystemId": "fs-0123456789abcdef0", **system})
    assert not parsed.is_of({"FileSystemId": "fs-0fedcba9876543210", "LustreConfiguration": {"MountName": "other"}})


def test_d14_the_probe_is_one_line_that_nothing_can_collapse(
    runs: Runs, service: Service, manager: SystemsManager
) -> None:
    with_cluster(service, {"workers": ("ml.p5.48xlarge", 1)})
    commands: list[str] = []
    start = manager.start_session

    def collapsing(request: dict[str, Any]) -> Any:
        (command,) = request["Parameters"]["command"]
        commands.append(command)
        return start({**request, "Parameters": {"command": [" ".join(command.split("\n"))]}})

    service.serves("StartSession", collapsing)
    runs.run("--cluster", NAME, "--results", str(runs.results_file), str(ROOT / "checks" / "node"))
    assert [command.count("\n") for command in commands] == [0]
    assert verdicts(runs)["node.reachable"] is Verdict.PASS
