"""What one device, library or file does not report hides no fault of another, and no fault that is known without it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, gpu, node, nvml
from tests.checks.network.given import mlx5, port, rails
from tests.testbed.outputs import nccl_log

P5 = "p5.48xlarge"
UNREAD = {"error": "UNKNOWN", "text": ""}
GPU = {"vendor": "10de", "device": "2330", "class": "030200", "driver": "nvidia", "numa": 0, "function_of": ""}
SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)
LOCAL = {"model": "Amazon EC2 NVMe Instance Storage", "state": "live", "transport": "pcie"}
IMAGE = {
    "cloud_init": {"errors": []},
    "left": [],
    "keys": {},
    "under_way": [],
    "programs": {"containerd": "/usr/bin/containerd"},
    "toolkit": [1],
    "enroot": False,
    "plugins": [],
    "first_boot": 1_000_000,
    "identity": [],
    "modules": [],
}


def on_bus(*, unread: str = "vendor", **of_third: Any) -> dict[str, Any]:
    """Eight GPUs, of which the first lacks a value, and the third differs in others."""
    devices = [{**GPU, "address": f"0000:{0x53 + at:02x}:00.0", "numa": numa} for at, numa in enumerate(SOCKETS)]
    devices[2] |= of_third
    devices[0] = {key: value for key, value in devices[0].items() if key != unread}
    return {"devices": devices}


def disks(*odd: dict[str, Any]) -> dict[str, Any]:
    """Eight local disks, the first of which differ."""
    mounted = {"used_by": [], "mounted": ["/scratch"], "kib": 1}
    every = [{"name": f"nvme{at}", **LOCAL, "disks": [{**mounted, "name": f"nvme{at}n1"}]} for at in range(8)]
    return {"controllers": [{**disk, **(odd[at] if at < len(odd) else {})} for at, disk in enumerate(every)]}


def uverbs(count: int) -> list[dict[str, Any]]:
    """So many EFA devices."""
    return [{"name": f"rdmap{at}s0", "vendor": "1d0f", "device": "efa2", "ports": []} for at in range(count)]


NARROW_NIC: dict[str, Any] = {
    "vendor": "15b3",
    "class": "020700",
    "device": "1021",
    "width": 8,
    "width_max": 16,
    "port_width_max": 16,
}
NIC_LINK: dict[str, Any] = {
    "speed": "32.0 GT/s PCIe",
    "speed_max": "32.0 GT/s PCIe",
    "port_speed_max": "32.0 GT/s PCIe",
    "power": "",
}
ALLOWANCE = {"interfaces": [{"name": UNREAD, "counters": {"conntrack_allowance_exceeded": [30000, 30000]}}]}
DOWN = mlx5(0, port(state="1: DOWN", physical_state="3: LinkErrorRecovery"))
SWITCH = {"address": "0000:dc:00.0", "vendor": "10de", "device": "22a3", "class": "068000", "driver": ""}
NO_DRIVER = {"init": "DRIVER_NOT_LOADED", "init_s": 0.1, "driver": None, "count": 0, "gpus": []}
GONE = [gpu(0, pci="0000:53:00.0"), gpu(1, pci="0000:54:00.0"), gpu(2, pci="0000:aa:00.0")]
HUGE = {
    "total_kib": 2**31,
    "huge_pages": [{"size_kib": 2**20, "pages": 1000, "free": 1000}, {"size_kib": 2048, "pages": 9, "free": UNREAD}],
}
WAITS = {"wait": "nv_wait", "stack": ["os_acquire_mutex [nvidia]"], "age_s": 2000.0}
IN_D = [
    {"pid": 1, "name": "a", **WAITS, "blocked_s": UNREAD},
    {"pid": 2, "name": "b", **WAITS, "blocked_s": None},
    {"pid": 3, "name": UNREAD, **WAITS, "blocked_s": 900.0},
]
LUSTRE = {"version": "2.15", "health": "healthy", "left_out": 0, "modules": {}}
MANY_MOUNTS = {
    "mounts": {"mounts": [{"path": "/", "type": "ext4"}], "left_out": 3},
    "lustre": {**LUSTRE, "clients": [{"kind": kind, "name": "fsx", "state": "DISCONN"} for kind in ("mdc", "osc")]},
}
FEW_NICS = (
    "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 16 nics)\nNCCL INFO Using network Libfabric\n"
)
TWO_LOGS = nccl_tests.read(nccl_log(network=f"{FEW_NICS}NCCL INFO Using network Socket\n"))
CORES = [{"index": at, "cores": 4 if at == 1 else 8, "model": "Trainium2", "serial": f"0{at}"} for at in range(3)]
NEURON = {"boot": boot(uptime_s=30.0), "neuron": {"devices": CORES, "on_bus": 16}}
LIBRARIES = {"libnccl.so.2": [{"path": "/usr/lib/libnccl.so.2", "bytes": 0}]}
VERSIONS = {"container": "", "libraries": LIBRARIES}
MISSING_PLUGIN = [{"path": "/usr/lib/slurm/x.so", "bytes": 0, "need": "required"}]

RAN_OUT = {"gpu": "3", "status": "fail", "messages": [{"text": "row remapping has failed", "severity": UNREAD}]}
UNKNOWN_END = {"gpu": "2", "status": UNREAD, "messages": []}
DIAG = {"version": "4.1", "exit": 0, "complete": True, "runtime_error": "", "gpus": 8}


def diag(*tests: object) -> dict[str, Any]:
    """Two runs of DCGM's diagnostic, the second with these tests, of the first nothing is known."""
    return {"dcgm_diag": {"logs": [{**DIAG, "tests": UNREAD}, {**DIAG, "tests": list(tests)}]}}


@pytest.mark.parametrize(
    ("check", "collectors", "target", "words"),
    [
        ("gpu.gpu_driver", {"pci": on_bus(driver="nouveau")}, {}, "nouveau holds 0000:55:00.0"),
        (
            "gpu.nvswitch_count",
            {"pci": {"devices": [*on_bus()["devices"], SWITCH]}, "nvml": NO_DRIVER},
            {"instance_type": ""},
            "no driver is bound to 0000:dc:00.0",
        ),
        (
            "network.nic_link",
            {"pci": on_bus(**NARROW_NIC, **NIC_LINK)},
            {},
            "PCIe x8 at 32 GT/s on 0000:55:00.0",
        ),
        (
            "gpu.gpu_count",
            {"pci": {"devices": on_bus(unread="class")["devices"][:2]}, "nvml": nvml(*GONE)},
            {"expect": {"gpus": 3}},
            "the PCI bus does not show GPU 2 at 0000:aa:00.0",
        ),
        (
            "gpu.pcie_lanes",
            {
                "pci": on_bus(width=8, width_max=16),
                "nvml": nvml(gpu(2, pci="0000:55:00.0", pcie_width=8, pcie_width_max=UNREAD)),
            },
            {},
            "PCIe x8; expected x16",
        ),
        ("software.libraries_load", {"pci": on_bus(), "versions": VERSIONS}, {}, "/usr/lib/libnccl.so.2 is empty"),
        (
            "software.libraries_load",
            {"pci": on_bus(unread=""), "versions": {**VERSIONS, "libraries": {}}},
            {"occasion": "ami"},
            "no libcuda.so.1, no libnvidia-ml.so.1, no libnccl.so.2; expected each library",
        ),
        (
            "software.libraries_load",
            {"pci": Collected(Status.TIMED_OUT), "versions": {**VERSIONS, "libraries": {}}},
            {"expect": {"gpus": 8}},
            "no libcuda.so.1, no libnvidia-ml.so.1; expected each library",
        ),
        (
            "software.container_runtime",
            {"pci": on_bus(), "image": {**IMAGE, "plugins": MISSING_PLUGIN}},
            {},
            "Slurm requires /usr/lib/slurm/x.so",
        ),
        (
            "software.image_clean",
            {"image": {**IMAGE, "identity": [{"path": "/etc/machine-id", "written": 0}]}},
            {"occasion": "ami"},
            "older than the instance: /etc/machine-id",
        ),
        ("storage.nvme_scratch", {"nvme": disks({"model": None}, {"disks": []})}, {}, "no disk on nvme1"),
        (
            "host.c_states",
            {"pci": on_bus(), "cpus": {"idle_states": [{"name": "C6", "latency_us": 190, "disabled": False}]}},
            {},
            "enabled: C6 (190 µs to wake)",
        ),
        ("host.hugepages", {"memory": HUGE}, {}, "1000 GiB reserved and unused"),
        ("host.d_state", {"processes": {"blocked": IN_D, "blocked_left_out": 0}}, {}, "b (pid 2)"),
        ("host.d_state", {"processes": {"blocked": IN_D, "blocked_left_out": 0}}, {}, "a process (pid 3, 900 s in nv"),
        ("storage.lustre_clients", MANY_MOUNTS, {}, "osc is DISCONN"),
        ("network.nccl_transport", TWO_LOGS, {"expect": {"efa": 32}}, "NCCL used EFA with 16 of 32 devices"),
        ("neuron.device_count", NEURON, {"instance_type": "trn2.48xlarge"}, "Neuron device 1 has 4 cores; expected 8"),
        (
            "network.efa_counters",
            {
                "rdma": {"devices": uverbs(1)},
                "efa_counters": {
                    "seconds": UNREAD,
                    "devices": [{"name": "rdmap0s0", "counters": {"no_completion_cmds": [1, 3], "rx_drops": [0, 9]}}],
                },
            },
            {},
            "2 commands without completion; expected 0",
        ),
        (
            "gpu.dcgm_diag",
            diag({"name": "a", "results": UNREAD}, {"name": "memory", "results": [UNKNOWN_END, RAN_OUT]}),
            {},
            "memory on GPU 3: fail: row remapping has failed; expected every test to pass",
        ),
        ("network.ib_ports", {"rdma": {"devices": [{**DOWN, "name": UNREAD}]}}, {}, "port 1 is 1: DOWN; expected 4"),
        ("network.ib_errors", {"rdma": rails({"symbol_errors": UNREAD}), "boot": {}}, {}, "symbol_errors could not be"),
        ("network.ena_allowance", {"ena_counters": ALLOWANCE}, {}, "an interface: conntrack_allowance_exceeded 30000"),
        (
            "storage.ebs_limits",
            {"ebs": {"volumes": [{"name": UNREAD, "serial": "vol05", "volume_iops_us": 10**12}]}},
            {},
            "a volume (vol-05): above the volume's IOPS for 1000000 s",
        ),
        (
            "storage.ebs_limits",
            {"ebs": {"volumes": [{"name": "nvme0", "volume_iops_us": UNREAD}]}, "boot": {}},
            {},
            "volume_iops_us could not be read",
        ),
        (
            "storage.nvme_scratch",
            {"nvme": disks({"name": UNREAD, "disks": []})},
            {},
            "no disk on a controller; expected",
        ),
        (
            "storage.nvme_scratch",
            {"nvme": disks({"disks": [{"used_by": [], "mounted": [], "kib": 1, "name": UNREAD}]})},
            {},
            "not mounted: a disk; expected every local disk",
        ),
        (
            "neuron.nccom",
            {"nccom": {"logs": [{"command": "nccom-test", "problems": [], "exit": 1, "rows": UNREAD}]}},
            {"instance_type": "trn1.32xlarge"},
            "nccom-test exited with status 1",
        ),
        (
            "software.modules_expected",
            {"rdma": {"modules": [], "devices": []}, "image": {**IMAGE, "modules": ["gdrdrv"]}},
            {"policy": Policy(modules={"gdrdrv": "loaded"})},
            "module gdrdrv is installed; expected loaded",
        ),
        (
            "software.drivers_expected",
            {"versions": {"container": "", "components": {}, "packages": {}}},
            {"policy": Policy(versions={"efa": "== 2"}), "expect": {"efa": 32}},
            "no efa; expected efa == 2",
        ),
        ("network.efa_count", {"rdma": {"devices": uverbs(31)}}, {"expect": {"efa": 32}}, "31 EFA devices"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and " " not in value else "",
)
def test_a_fault_is_named_beside_what_is_unread(
    check: str, collectors: dict[str, Any], target: dict[str, Any], words: str
) -> None:
    given = {"instance_type": P5, **target}
    result = result_of(check, node("gpu001", **{"boot": boot(), **collectors}), **given)
    assert words in result.message
    assert result.verdict in (Verdict.FAIL, Verdict.INCOMPLETE)


def test_a_gpu_on_another_numa_node_than_elsewhere_is_named_beside_one_that_names_none() -> None:
    nodes = [node(f"n{number}", pci=on_bus(unread="", numa=0 if number else 1)) for number in range(4)]
    nodes[0].collectors["pci"].value["devices"][0].pop("numa")
    result = result_of("gpu.gpu_numa", *nodes)
    assert "NUMA node of 0000:55:00.0 1; expected 0 as on 3 of 4 nodes" in result.message
    assert "on each" not in result.message


def test_a_gpu_that_the_bus_has_lost_is_named_where_a_capture_lists_another_device_twice() -> None:
    first, second, *_ = on_bus(unread="")["devices"]
    twice = node("gpu001", boot=boot(), pci={"devices": [first, second, first]}, nvml=nvml(*GONE))
    result = result_of("gpu.gpu_count", twice, instance_type=P5, expect={"gpus": 3})
    assert result.verdict is Verdict.FAIL
    assert "the PCI bus does not show GPU 2 at 0000:aa:00.0" in result.message
