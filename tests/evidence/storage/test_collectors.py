"""What the collectors of Lustre, NVMe disks and Neuron devices read from real and odd files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.probed import PATIENT, collect_under, host_root, probe_node, read_under
from tests.testbed.image import File
from tests.testbed.lustre import FILE_SYSTEM, INSTANCE, imported, ost
from tests.testbed.needs import needs_nodes
from tests.testbed.neuron import LS, healthy_trn1
from tests.testbed.node import entered, healthy_p5, with_file

NOBODY = 65534
OST0 = f"{FILE_SYSTEM}-OST0000-osc-{INSTANCE}"
NEURON = "sys/devices/virtual/neuron_device"


@pytest.mark.long
@pytest.mark.parametrize("collector", ["lustre", "lustre_space", "neuron"])
def test_what_a_host_has_nothing_of_is_absent(tmp_path: Path, collector: str) -> None:
    assert collect_under(host_root(tmp_path, {"sys/module/ena/initstate": "live\n"}), collector).status is Status.ABSENT


@pytest.mark.long
def test_a_host_without_nvme_has_no_controller(tmp_path: Path) -> None:
    report = read_under(host_root(tmp_path, {"proc/1/mountinfo": ""}), "nvme")
    assert report == {"controllers": []}


@pytest.mark.long
def test_every_one_of_very_many_controllers_is_reported_with_all_its_disks(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"proc/1/mountinfo": ""}
    for number in range(300):
        files |= controller(f"nvme{number}", f"nvme{number}n1")
    for number in range(100):
        files[f"sys/class/nvme/nvme0/nvme0n{number + 1}/x"] = ""
    controllers = read_under(host_root(tmp_path, files), "nvme")["controllers"]
    assert len(controllers) == 300
    assert [len(entry["disks"]) for entry in controllers if entry["name"] == "nvme0"] == [100]


@pytest.mark.long
@pytest.mark.parametrize("root", ["proc/fs/lustre", "sys/kernel/debug/lustre", "sys/fs/lustre"])
def test_an_import_is_found_wherever_the_clients_version_has_it(tmp_path: Path, root: str) -> None:
    files = {f"{root}/osc/{OST0}/import": imported(OST0, "EVICTED"), "sys/fs/lustre/health_check": "healthy\n"}
    report = read_under(host_root(tmp_path, files), "lustre")
    assert [(client["name"], client["state"]) for client in report["clients"]] == [(OST0, "EVICTED")]


@pytest.mark.long
@pytest.mark.parametrize("root", ["proc/fs/lustre", "sys/kernel/debug/lustre", "sys/fs/lustre"])
def test_the_cache_of_each_mount_is_read_wherever_the_clients_version_has_it(tmp_path: Path, root: str) -> None:
    files = {f"{root}/llite/fs{mount}-ffff{mount}/max_cached_mb": f"{mount}\n" for mount in (1, 2)}
    files |= {f"{root}/llite/fs1-ffff1/read_ahead_stats": "hits 7 samples [pages]\n", "sys/module/lustre/version": "2"}
    first, second = read_under(host_root(tmp_path, files), "lustre")["caches"]
    assert first == {"name": "fs1-ffff1", "max_cached_mb": "1", "read_ahead_stats": "hits 7 samples [pages]"}
    assert (second["max_cached_mb"], second["read_ahead_stats"]["error"]) == ("2", "ENOENT")


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "error"),
    [("import:\n    name: x\n", "EINVAL"), (b"\xff\xfe\x00", "EINVAL"), ("", "ENOENT"), ("x: state: FULL", "EINVAL")],
)
def test_an_import_without_a_state_is_an_error_in_its_place(tmp_path: Path, text: str | bytes, error: str) -> None:
    files = {f"proc/fs/lustre/osc/{OST0}/import": text, f"sys/fs/lustre/osc/{OST0}/max_dirty_mb": "lots\n"}
    (client,) = read_under(host_root(tmp_path, files), "lustre")["clients"]
    assert client["state"]["error"] == error
    assert client["max_dirty_mb"] == "lots"


@pytest.mark.long
def test_an_import_that_is_deactivated_says_so_whatever_its_state(tmp_path: Path) -> None:
    text = "import:\n    state: NEW\n    import_flags: [ invalid, deactive, replayable ]\n"
    (client,) = read_under(host_root(tmp_path, {f"proc/fs/lustre/osc/{OST0}/import": text}), "lustre")["clients"]
    assert client["state"] == "DEACTIVATED"


@pytest.mark.long
def test_of_too_many_clients_some_are_left_out_and_counted(tmp_path: Path) -> None:
    files = {f"sys/fs/lustre/osc/fs-OST{index:04x}-osc-ffff/active": "0\n" for index in range(1030)}
    report = read_under(host_root(tmp_path, files), "lustre_space")
    assert (len(report["targets"]), report["left_out"]) == (1024, 6)


@pytest.mark.long
def test_an_inactive_target_has_no_numbers_and_an_older_client_has_them_in_proc(tmp_path: Path) -> None:
    numbers = {"kbytestotal": "100", "kbytesfree": "40", "kbytesavail": "30", "filestotal": "10", "filesfree": "9"}
    files = {f"proc/fs/lustre/osc/{OST0}/{name}": text for name, text in numbers.items()}
    files["sys/fs/lustre/osc/fs-OST0001-osc-ffff/active"] = "0\n"
    inactive, older = read_under(host_root(tmp_path, files), "lustre_space")["targets"]
    assert inactive == {"kind": "ost", "name": "fs-OST0001", "active": False}
    assert older == {
        "kind": "ost",
        "name": f"{FILE_SYSTEM}-OST0000",
        "active": True,
        "total_kib": 100,
        "free_kib": 40,
        "available_kib": 30,
        "inodes": 10,
        "inodes_free": 9,
    }


@needs_nodes
def test_an_import_that_may_not_be_read_costs_its_own_evidence_only() -> None:
    image = with_file(healthy_p5(), ost(1, "import"), File(imported("x", "FULL"), 0o600))
    with entered(image) as node:
        report = probe_node(node, ["lustre"], PATIENT, user=NOBODY).collectors["lustre"].value
    states = {client["name"].split("-osc-")[0]: client["state"] for client in report["clients"]}
    assert states[f"{FILE_SYSTEM}-OST0001"]["error"] == "EACCES"
    assert states[f"{FILE_SYSTEM}-OST0002"] == "IDLE"


def disk(name: str, device: str, *holders: str) -> dict[str, str | bytes]:
    """A block device, and what is built on it."""
    files: dict[str, str | bytes] = {f"sys/class/block/{name}/{'size'}": "2048\n"}
    files[f"sys/class/block/{name}/dev"] = f"{device}\n"
    return files | {f"sys/class/block/{name}/holders/{holder}/x": "" for holder in holders}


def controller(name: str, block: str) -> dict[str, str | bytes]:
    here = f"sys/class/nvme/{name}"
    return {f"{here}/model": "M   \n", f"{here}/serial": "S\n", f"{here}/state": "live\n", f"{here}/{block}/x": ""}


@pytest.mark.long
def test_a_disk_is_mounted_where_its_partition_array_or_volume_is(tmp_path: Path) -> None:
    files = (
        controller("nvme0", "nvme0n1")
        | controller("nvme1", "nvme1c1n1")
        | controller("nvme2", "nvme2n1")
        | disk("nvme0n1", "259:0")
        | disk("nvme0n1p1", "259:1", "md0")
        | disk("md0", "9:0", "dm-0")
        | disk("dm-0", "252:0")
        | disk("nvme1n1", "259:2")
        | disk("nvme2n1", "259:3", "dm-1")
        | disk("dm-1", "252:1", "nvme2n1")  # a cycle: nonsense, but no reason to loop for ever
    )
    files["sys/class/block/nvme0n1/nvme0n1p1/partition"] = "1\n"
    files["proc/1/mountinfo"] = (
        "30 1 252:0 / /scratch rw - xfs /dev/mapper/vg-lv rw\n"
        "31 1 252:0 /kubelet /var/lib/kubelet rw - xfs /dev/mapper/vg-lv rw\n"
        "32 1 0:50 / /pool rw - btrfs /dev/nvme1n1 rw\n"
    )
    controllers = read_under(host_root(tmp_path, files), "nvme")["controllers"]
    disks = [disk for entry in controllers for disk in entry["disks"]]
    assert [(disk["name"], disk["kib"], disk["used_by"], disk["mounted"]) for disk in disks] == [
        ("nvme0n1", 1024, ["nvme0n1p1", "md0", "dm-0"], ["/scratch", "/var/lib/kubelet"]),
        ("nvme1n1", 1024, [], ["/pool"]),
        ("nvme2n1", 1024, ["dm-1"], []),
    ]
    assert controllers[0]["model"] == "M"


@pytest.mark.long
def test_a_mount_that_a_user_made_or_that_a_container_is_run_from_is_nobody_elses(tmp_path: Path) -> None:
    fuse = "rw,nosuid,nodev - fuse.sshfs somebody@elsewhere:/x rw,user_id={},group_id=0"
    files = {
        "proc/1/mountinfo": (
            "30 1 259:1 / / rw - ext4 /dev/root rw\n"
            f"31 1 0:61 / /home/u/x {fuse.format(1000)}\n"
            f"32 1 0:62 / /data {fuse.format(0)}\n"
            "33 1 259:4 / /var/lib/containerd rw - xfs /dev/md0 rw\n"
            "34 1 259:5 / /var/lib/containerd/of/one rw - xfs /dev/md1 rw\n"
        )
    }
    report = read_under(host_root(tmp_path, files), "mounts")
    assert [mount["path"] for mount in report["mounts"]] == ["/", "/data", "/var/lib/containerd"]


def test_an_nvme_controller_without_a_driver_is_not_an_absent_one() -> None:
    dark = {"address": "0000:00:1f.0", "vendor": "1d0f", "device": "cd01", "class": "010802", "driver": ""}
    collectors = {
        "nvme": Collected(Status.READ, {"controllers": [], "left_out": 0}),
        "pci": Collected(Status.READ, {"devices": [dark]}),
    }
    node = nodes(Cluster("one", "local", (Target("a"),)), {"a": NodeEvidence("a", collectors)})["a"]
    result = evaluate(node_checks()["storage.nvme_state"], node)
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message == "no NVMe controller has a driver; on the PCI bus: 0000:00:1f.0"
    for function_of, verdict in (("", Verdict.FAIL), ("0000:00:1e.0", Verdict.PASS)):
        dark["function_of"] = function_of
        assert evaluate(node_checks()["host.device_drivers"], node).verdict is verdict
    del dark["function_of"]  # an older recording
    assert evaluate(node_checks()["host.device_drivers"], node).verdict is Verdict.INCOMPLETE


@pytest.mark.long
def test_neuron_devices_are_reported_by_index_whatever_else_is_there(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{NEURON}/neuron10/core_count": "8\n",
        f"{NEURON}/neuron10/connected_devices": "2\n",
        f"{NEURON}/neuron2/core_count": "many\n",
        f"{NEURON}/neuron2/connected_devices": "10, x, 99999999, 3\n",
        f"{NEURON}/neuron2/stats/hardware/sram_ecc_uncorrected/total": "5\n",
        f"{NEURON}/neuron2/stats/hardware/mem_ecc_uncorrected": b"\xff",
        f"{NEURON}/power/control": "auto\n",
        "sys/module/neuron/version": "2.26.5.0\n",
        "sys/bus/pci/devices/0000:10:1b.0/vendor": "0x1d0f\n",
        "sys/bus/pci/devices/0000:10:1b.0/device": "0x7164\n",
        "sys/bus/pci/devices/0000:10:19.0/vendor": "0x1d0f\n",
        "sys/bus/pci/devices/0000:10:19.0/device": "0xefa1\n",
    }
    report = read_under(host_root(tmp_path, files), "neuron")
    assert (report["driver"], report["on_bus"]) == ("2.26.5.0", 1)
    second, tenth = report["devices"]
    assert (second["index"], second["cores"], second["connected"]) == (2, "many", [10, 3])
    assert (second["sram_ecc_uncorrected"], second["mem_ecc_uncorrected"]) == (5, "\ufffd")
    assert second["mem_ecc_repairable_uncorrected"]["error"] == "ENOENT"
    assert (tenth["index"], tenth["cores"], tenth["connected"]) == (10, 8, [2])


@needs_nodes
def test_neuron_ls_is_found_where_its_package_puts_it() -> None:
    with entered(healthy_trn1()) as node:
        collected = probe_node(node, ["neuron_ls"], PATIENT, user=NOBODY).collectors["neuron_ls"]
    assert LS == "/opt/aws/neuron/bin/neuron-ls"
    assert (collected.status, collected.value["exit"]) == (Status.READ, 0)
    assert '"neuron_device": 15' in collected.value["output"]
