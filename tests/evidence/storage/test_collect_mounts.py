"""Reports of the mount collectors on real kernels' mounts, including users' mounts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.evidence.storage import collect_mounts
from tests.builders.probed import PATIENT, host_root, probe, probe_node, read_under
from tests.testbed.lustre import MOUNT
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_p5, with_tmpfs

pytestmark = pytest.mark.long

FUSE = "rw,nosuid,nodev - fuse.x x rw,user_id=1000,group_id=1000,allow_other"
NFS = "rw - nfs4 10.0.0.7:/x rw,hard"


def mounted(root: Path, lines: list[str], fstab: str = "", **options: Any) -> list[dict[str, Any]]:
    """The report on these mounts, `PATH REST`, in mount order."""
    info = "".join(f"{30 + n} 1 0:{60 + n} / {line}\n" for n, line in enumerate(lines))
    host_root(root, {"proc/1/mountinfo": info, "etc/fstab": fstab})
    chosen = ProbeOptions(host_root=str(root), collector_s=30.0, **options)
    mounts: list[dict[str, Any]] = probe(["mounts"], chosen).collectors["mounts"].value["mounts"]
    return mounts


@pytest.mark.parametrize(
    ("lines", "is_covered"),
    [
        ([f"/fsx {NFS}"], False),
        ([f"/fsx {NFS}", f"/fsx {FUSE}"], True),
        ([f"/fsx {FUSE}", f"/fsx {NFS}"], False),  # below it
        ([f"/fsx {NFS}", f"/fsx/home/u {FUSE}"], False),
        ([f"/fsx {NFS}", f"/fsxx {FUSE}", f"/f {FUSE}"], False),
        ([f"/mnt/fsx {NFS}", f"/mnt {FUSE}"], True),
        ([f"/fsx {NFS}", f"/fsx {FUSE.replace('1000', '0')}"], False),  # root's
    ],
)
def test_a_file_system_over_which_a_user_has_mounted_his_own_is_not_touched(
    tmp_path: Path, lines: list[str], is_covered: bool
) -> None:
    (entry,) = (mount for mount in mounted(tmp_path, lines) if mount["path"].endswith("/fsx"))
    assert (entry["alive"] == "covered") is is_covered


@pytest.mark.parametrize(
    ("type_", "is_mounted"), [("lustre", False), ("fuse.sshfs", True)], ids=["not his", "perhaps the one of fstab"]
)
def test_what_a_user_has_mounted_is_not_what_fstab_asks_for(tmp_path: Path, type_: str, is_mounted: bool) -> None:
    fstab = f"10.1.2.3@tcp:/x /fsx {type_} _netdev 0 0\n"
    files = {"proc/1/mountinfo": f"30 1 0:60 / /fsx {FUSE}\n", "etc/fstab": fstab}
    (entry,) = read_under(host_root(tmp_path, dict(files)), "mounts")["fstab"]
    assert entry["mounted"] is is_mounted


@pytest.mark.parametrize(
    ("link", "target", "path", "is_mounted"),
    [
        ("scratch", "/mnt/scratch", "/scratch", "/mnt/scratch"),
        ("scratch", "mnt/../mnt/scratch", "/scratch/", "/mnt/scratch"),
        ("data", "/mnt", "/data/scratch", "/mnt/scratch"),
        ("scratch", "/mnt/other", "/scratch", ""),
        ("scratch", "/scratch", "/scratch", ""),
        ("mnt/scratch/link", "/mnt/scratch", "/mnt/scratch/link", ""),  # on a file system that may hang
        ("home/u/link", "/mnt/scratch", "/home/u/link", ""),  # on a user's, which he may have hang
    ],
)
def test_a_file_system_is_mounted_where_a_path_in_fstab_leads_by_links(
    tmp_path: Path, link: str, target: str, path: str, is_mounted: str
) -> None:
    mounts = f"30 1 0:60 / /mnt/scratch {NFS}\n31 1 0:61 / /home/u {FUSE}\n"
    root = host_root(tmp_path, {"proc/1/mountinfo": mounts, "mnt/scratch/x": "", "home/u/x": ""})
    (root / "etc").mkdir()
    (root / "etc/fstab").write_text(f"10.0.0.7:/x {path} nfs4 _netdev 0 0\n")
    (root / link).symlink_to(target)
    (entry,) = read_under(root, "mounts")["fstab"]
    assert (entry["mounted"], entry["path"]) == (bool(is_mounted), is_mounted or path)


def test_the_clusters_own_come_before_all_that_users_bring_about(tmp_path: Path) -> None:
    walked = [f"/net/host{number} {NFS}" for number in range(100)]
    users = [f"/home/u{number} {FUSE}" for number in range(100)]
    own = [f"/{name} {NFS}" for name in ("byhand", "unit", "policy", "fstab")]
    host_root(tmp_path, {"etc/systemd/system/unit.mount": "[Unit]\n[Mount]\nWhat=10.0.0.7:/x\nWhere=/unit/\n"})
    autofs = "/net rw - autofs -hosts rw,fd=7,indirect"
    mounts = mounted(
        tmp_path, [*users, autofs, *walked, *own], "10.0.0.7:/x /fstab nfs4 _netdev\n", mounts=("/policy",)
    )
    assert len(mounts) == 104
    first = [(mount["path"], mount["is_due"], mount["is_automatic"]) for mount in mounts[:5]]
    assert first[:3] == [("/unit", True, False), ("/policy", True, False), ("/fstab", True, False)]
    assert first[3:] == [("/byhand", False, False), ("/net/host0", False, True)]


def test_a_file_system_that_autofs_has_mounted_at_its_own_path_came_by_access_too(tmp_path: Path) -> None:
    direct = "/data rw - autofs auto.direct rw,fd=7,direct"
    own, data = mounted(tmp_path, [direct, f"/data {NFS}", f"/database {NFS}"])
    assert [(mount["path"], mount["is_automatic"]) for mount in (own, data)] == [("/database", False), ("/data", True)]


def test_what_somebody_has_plugged_in_is_passed_over_unless_the_cluster_asks_for_it(tmp_path: Path) -> None:
    lines = ["/media/u/image rw - ext4 /dev/loop3 rw", "/media/data rw - ext4 /dev/sdb1 rw"]
    mounts = mounted(tmp_path, lines, "/dev/sdb1 /media/data ext4 defaults\n")
    assert [mount["path"] for mount in mounts] == ["/media/data"]


ID = "0b6f9f3a" * 8


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/kubelet/pods/5d6b0c1e/volumes/kubernetes.io~nfs/data",
        "/mnt/k8s-disks/0/kubelet/pods/5d6b0c1e/volumes/kubernetes.io~nfs/data",  # as EKS keeps it on local disks
        "/var/snap/microk8s/common/var/lib/kubelet/plugins/kubernetes.io/csi/nfs/globalmount",
        f"/var/lib/docker/containers/{ID}/mounts/shm",
        f"/opt/dlami/nvme/docker/data-root/containers/{ID}/mounts/shm",  # as HyperPod's lifecycle scripts have it
        f"/run/containers/storage/overlay-containers/{ID}/userdata/shm",  # CRI-O
        "/var/lib/juicefs/volume/pvc-1f2e-abcdef",  # of its CSI driver: as a pod asks for it, though root mounts it
        "/runtime-mnt/juicefs/default/set/juicefs-fuse",  # Fluid
        f"/run/k3s/containerd/io.containerd.grpc.v1.cri/sandboxes/{ID}/shm",
    ],
)
def test_what_containers_mount_is_passed_over_wherever_their_runtime_keeps_it(tmp_path: Path, path: str) -> None:
    mounts = mounted(tmp_path, [f"/mnt/k8s-disks/0 {NFS}", f"/var/lib/kubelet {NFS}", f"{path} {NFS}"])
    assert [mount["path"] for mount in mounts] == ["/mnt/k8s-disks/0", "/var/lib/kubelet"]


def test_a_file_system_whose_disk_is_gone_does_not_answer_from_memory(tmp_path: Path) -> None:
    files = {
        "proc/1/mountinfo": (
            "30 1 8:1 / /there rw - ext4 /dev/sda1 rw\n"
            "31 1 259:1 / /gone rw - ext4 /dev/nvme1n1 rw\n"
            "32 1 0:61 / /shared rw - nfs4 10.0.0.7:/x rw\n"
        ),
        "sys/dev/block/8:1/size": "1",
    }
    alive = {mount["path"]: mount["alive"] for mount in read_under(host_root(tmp_path, files), "mounts")["mounts"]}
    assert alive["/gone"] == "ENODEV"
    assert "ENODEV" not in (alive["/there"], alive["/shared"])


@pytest.mark.parametrize(("is_mounted", "alive"), [(True, "yes"), (False, "hidden")])
def test_a_subvolume_of_btrfs_is_visible_where_something_is_mounted_as_its_number_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mounted: bool, alive: str
) -> None:
    host_root(tmp_path, {"proc/1/mountinfo": "30 1 0:60 /@data /data rw - btrfs /dev/sda2 rw,subvol=/@data\n"})
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: is_mounted and path == f"{tmp_path}/data")
    (entry,) = collect_mounts.read(Node(str(tmp_path)))["mounts"]  # type: ignore[index]
    assert (entry["alive"], bool(entry["total_kib"])) == (alive, is_mounted)


def test_a_checkpoint_folder_lies_on_the_nearest_mount_above_it(tmp_path: Path) -> None:
    mountinfo = (
        "30 1 259:1 / / rw - ext4 /dev/root rw\n"
        "31 1 0:61 / /fsx rw - lustre 10.0.0.9@tcp:/a rw\n"
        "32 1 0:62 / /fsx/local rw - xfs /dev/nvme1n1 rw\n"
    )
    lfs = host_root(tmp_path, {"proc/1/mountinfo": mountinfo})
    folders = ("/fsx-old/a", "/fsx/local/b", "/c")
    options = ProbeOptions(host_root=str(lfs), collector_s=30.0, checkpoints=folders)
    striping = probe(["striping"], options).collectors["striping"].value
    assert [(folder["path"], folder["type"]) for folder in striping["folders"]] == [
        ("/fsx-old/a", "ext4"),
        ("/fsx/local/b", "xfs"),
        ("/c", "ext4"),
    ]
    on_lustre = probe(["striping"], ProbeOptions(host_root=str(lfs), collector_s=30.0, checkpoints=("/fsx",)))
    assert on_lustre.collectors["striping"].status is Status.ABSENT


@needs_nodes
def test_a_fake_nodes_real_mounts_come_after_those_that_it_only_believes_in() -> None:
    with entered(with_tmpfs(healthy_p5(), "/fsx", "4m")) as node:
        report = probe_node(node, ["mounts"], PATIENT).collectors["mounts"].value
        lines = node.run(["python3", "-c", "import os; print(os.read(os.open('/proc/self/mountinfo', 0), 4096))"])
    types = {mount["path"]: mount["type"] for mount in report["mounts"]}
    assert (types["/fsx"], types["/opt/dlami/nvme"]) == ("tmpfs", "ext4")
    assert MOUNT.encode() in lines.stdout
