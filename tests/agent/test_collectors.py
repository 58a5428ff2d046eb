"""Each collector's values on real nodes made of namespaces: as root or another user, and under another root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.evidence import Status
from tests.builders.probed import PATIENT, SOON, collect, probe, probe_node, value
from tests.testbed.image import File
from tests.testbed.needs import needs_nodes
from tests.testbed.node import (
    Node,
    entered,
    healthy_cpu,
    healthy_p5,
    with_file,
    with_service,
    with_tool,
    without_module,
    without_pci,
)

NOBODY = 65534
LIMITS: dict[str, object] = {"memlock": None, "nofile": 1048576, "nproc": None, "stack": 8388608}
FOR_EVER = "while :; do sleep 1; done"


@pytest.fixture(scope="module")
def p5() -> Iterator[Node]:
    with entered(healthy_p5()) as node:
        yield node


@needs_nodes
def test_every_collector_of_a_healthy_gpu_node_answers(p5: Node) -> None:
    evidence = probe_node(p5, collector_names(), PATIENT)
    assert {name: collector.status.value for name, collector in evidence.collectors.items()} == dict.fromkeys(
        collector_names(), "read"
    ) | dict.fromkeys(("imex", "kubelet", "neuron", "neuron_ls"), "absent")
    values = {name: collector.value for name, collector in evidence.collectors.items()}
    assert values["boot"] | {"now": 0, "memory_kib": 0} == {
        "uptime_s": 86400.5,
        "boot_id": "3f1c9a52-6d0e-4b77-9c1d-5a2e8f704b16",
        "hostname": "node001",
        "kernel": "6.8.0-1021-aws",
        "os": "Ubuntu 22.04.5 LTS",
        "memory_kib": 0,
        "cpus": values["boot"]["cpus"],
        "now": 0,
        "uid": 0,
    }
    assert values["platform"]["product"] == "p5.48xlarge"
    assert values["nvml"]["count"] == 8
    assert len(values["pci"]["devices"]) == 8 + 32 + 4 + 2
    assert len(values["rdma"]["devices"]) == len(values["rdma"]["uverbs"]) == 32
    assert values["libfabric"]["output"].count("domain: ") == 64
    assert values["fabric_manager"]["output"].endswith("580.126.09\n")
    assert values["processes"]["blocked"] == []
    cpus = Path("/proc/self/status").read_text().partition("Cpus_allowed_list:\t")[2].partition("\n")[0]
    assert values["limits"] == {
        "login": LIMITS,
        "daemons": dict.fromkeys(("slurmd", "containerd"), LIMITS | {"memory": None, "cpus": cpus}),
    }


@needs_nodes
def test_a_node_without_gpus_says_what_is_absent() -> None:
    with entered(healthy_cpu()) as node:
        collectors = probe_node(node, collector_names(), PATIENT).collectors
    absent = {name: collector.detail for name, collector in collectors.items() if collector.status is not Status.READ}
    of_others = {
        "efa_counters",
        "fabric_manager",
        "imex",
        "kubelet",
        "libfabric",
        "neuron",
        "neuron_ls",
        "nvml",
        "nvml_inforom",
    }
    assert set(absent) == of_others
    assert absent["libfabric"].startswith("no fi_info on PATH or in ")
    assert absent["nvml"].startswith("no libnvidia-ml.so.1 ")
    assert collectors["rdma"].value["devices"] == []
    assert [device["driver"] for device in collectors["pci"].value["devices"]] == ["nvme", "ena"]


@needs_nodes
def test_another_root_gives_the_same(p5: Node) -> None:
    inside = probe_node(p5, collector_names(), PATIENT).collectors
    outside = probe(collector_names(), ProbeOptions(host_root=str(p5.root), collector_s=30.0)).collectors
    of_the_process = {
        "boot",
        "container",
        "cpus",
        "ebs",
        "efa_counters",
        "ena_counters",
        "imds",
        "kernel",
        "kernel_limits",
        "limits",
        "mounts",
        "naming",
        "nvme",
        "nvml",
        "nvml_inforom",
        "processes",
    }
    for name in set(collector_names()) - of_the_process:
        assert outside[name].value == inside[name].value, name
    assert outside["nvml"].value["init"]["error"] == "DRIVER_NOT_LOADED"  # the library finds no driver outside a node
    for key in ("uptime_s", "boot_id", "kernel", "os", "memory_kib"):
        assert outside["boot"].value[key] == inside["boot"].value[key], key
    assert outside["limits"].value["daemons"] == inside["limits"].value["daemons"]
    assert sorted(m["path"] for m in outside["mounts"].value["mounts"]) == ["/", "/dev/shm", "/opt/dlami/scratch"]
    assert {m["alive"] for m in outside["mounts"].value["mounts"]} == {"yes"}


@needs_nodes
def test_tools_of_another_root_are_for_root(p5: Node) -> None:
    collector = probe(["libfabric"], ProbeOptions(host_root=str(p5.root), collector_s=30.0), user=NOBODY).collectors[
        "libfabric"
    ]
    assert collector.status in (Status.DENIED, Status.ABSENT)  # absent: this user may not even list that root


@needs_nodes
def test_nothing_is_written_on_the_node(p5: Node) -> None:
    before = p5.written()
    probe_node(p5, collector_names(), PATIENT)
    assert p5.written() == before


@needs_nodes
def test_a_file_that_is_written_is_seen(p5: Node) -> None:
    before = p5.written()
    p5.run(["sh", "-c", "echo >/tmp/left; echo >/etc/left"])
    assert {line.split()[0] for line in p5.written() - before} == {"/tmp/left", "/etc/left"}


@needs_nodes
def test_pci_reports_links_and_drivers(p5: Node) -> None:
    devices = probe_node(p5, ["pci"], PATIENT).collectors["pci"].value["devices"]
    assert next(device for device in devices if device["class"] == "030200") == {
        "address": "0000:53:00.0",
        "vendor": "10de",
        "device": "2330",
        "class": "030200",
        "path": ["pci0000:00"],
        "width": 16,
        "width_max": 16,
        "speed": "32.0 GT/s PCIe",
        "speed_max": "32.0 GT/s PCIe",
        "port_width_max": None,
        "port_speed_max": "",
        "driver": "nvidia",
        "power": "",
        "function_of": "",
        "numa": 0,
        "errors": {"correctable": None, "nonfatal": None, "fatal": None},
    }
    assert {device["device"] for device in devices if device["vendor"] == "1d0f"} == {"efa2", "8061", "ec20"}


@needs_nodes
def test_rdma_reports_ports_and_modules() -> None:
    image = without_module(healthy_p5(), "gdrdrv")
    image = with_file(image, "/sys/class/infiniband/rdmap79s0/ports/1/state", "1: DOWN\n")
    rdma = value(image, "rdma")
    port = {"port": 1, "state": "1: DOWN", "physical_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)"}
    assert next(device for device in rdma["devices"] if device["name"] == "rdmap79s0") == {
        "name": "rdmap79s0",
        "vendor": "1d0f",
        "device": "efa2",
        "driver": "efa",
        "firmware": "",
        "p2p": "NVIDIA",
        "gdr": None,
        "board": "",
        "ports": [port | {"link_layer": "Unspecified", "link_downed": None, "symbol_errors": None, "counters": {}}],
    }
    assert "gdrdrv" not in rdma["modules"]
    assert {"efa", "ib_core", "ib_uverbs", "nvidia"} <= set(rdma["modules"])


@needs_nodes
def test_a_gpu_that_left_the_bus_is_not_reported() -> None:
    assert len(value(without_pci(healthy_p5(), "0000:53:00.0"), "pci")["devices"]) == 8 + 32 + 4 + 2 - 1


@needs_nodes
def test_a_value_that_may_not_be_read_is_an_error_in_its_place() -> None:
    image = with_file(healthy_p5(), "/sys/class/dmi/id/product_serial", File("secret", 0o400))
    platform = value(image, "platform", user=NOBODY)
    assert platform["product"] == "p5.48xlarge"
    assert platform["serial"]["error"] == "EACCES"


@needs_nodes
def test_a_tool_that_hangs_is_killed_with_its_collector() -> None:
    image = with_tool(healthy_p5(), "nv-fabricmanager", f"#!/bin/sh\ntrap : TERM\n{FOR_EVER}\n")
    with entered(image) as node:
        collector = probe_node(node, ["fabric_manager"], SOON).collectors["fabric_manager"]
        left = node.run(["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout.decode().split()
    assert collector.status is Status.TIMED_OUT
    assert collector.detail == "nv-fabricmanager --version: no answer within 1 s"
    assert "nv-fabricmanage" not in left


@needs_nodes
def test_a_tool_returns_its_exit_status_and_both_outputs() -> None:
    script = "#!/bin/sh\necho out; echo err >&2; yes | head -c 200000; exit 61\n"
    collected = value(with_tool(healthy_p5(), "nv-fabricmanager", script), "fabric_manager")
    assert collected["exit"] == 61
    assert collected["output"].startswith("out\nerr\ny\n")
    assert len(collected["output"]) == 200_000 + len("out\nerr\n")


@needs_nodes
def test_services_have_their_state_under_each_name_and_what_failed() -> None:
    image = with_service(healthy_p5(), "slurmd", active="failed", sub="failed")
    services = value(image, "services")
    assert services["services"]["slurmd"] == {
        "load": "loaded",
        "active": "failed",
        "sub": "failed",
        "enabled": "enabled",
        "restarts": 0,
        "active_s": 86_340.5,
    }
    assert services["services"]["sshd"] == services["services"]["ssh"]
    assert services["services"]["dcgm"]["load"] == "not-found"
    assert services["failed"] == ["slurmd.service"]


@needs_nodes
def test_services_have_what_systemd_restarts_and_how_often_it_has() -> None:
    image = with_service(healthy_p5(), "exporter", active="activating", sub="auto-restart")
    services = value(with_service(image, "slurmd", restarts=7, since_s=86_380), "services")
    assert (services["services"]["slurmd"]["restarts"], services["services"]["slurmd"]["active_s"]) == (7, 20.5)
    assert services["services"]["dcgm"]["active_s"] is None
    assert (services["failed"], services["restarting"]) == ([], ["exporter.service"])


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo System has not been booted with systemd as init system >&2; exit 1", Status.ABSENT),
        ("echo Failed to get properties: Access denied >&2; exit 1", Status.DENIED),
        ("echo Failed to connect to bus >&2; exit 1", Status.BROKE),
        ("echo LoadState=loaded", Status.BROKE),
    ],
)
@needs_nodes
def test_a_systemctl_that_prints_nothing_is_no_evidence(script: str, status: Status) -> None:
    image = with_tool(healthy_cpu(), "/usr/local/bin/systemctl", f"#!/bin/sh\n{script}\n")
    assert collect(image, "services").status is status
