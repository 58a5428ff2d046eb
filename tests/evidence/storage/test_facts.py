"""Lustre's and the mounts' reports are read as they are, and nonsense is ignored."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import comparable, is_network, is_read_only
from clusterproof.plugins.evidence.storage.facts_lustre import (
    CheckpointFolder,
    LustreClient,
    LustreTarget,
    parse_lfs_df,
)
from clusterproof.plugins.evidence.storage.facts_mounts import Mount
from tests.builders.evaluated import expect, verdict_of
from tests.builders.examples import examples
from tests.builders.recordings import boot, node
from tests.builders.runs import Runs
from tests.builders.samples import sample
from tests.evidence.nonsense import JSON

GIB = 1024.0**2  # in KiB
COLLECTORS = ["lustre", "lustre_space", "nvme", "neuron", "neuron_ls", "mounts"]
UNBALANCED = """UUID                       bytes        Used   Available Use% Mounted on
testfs-MDT0000_UUID         4.4G      214.5M        3.9G   4% /mnt/testfs[MDT:0]
testfs-OST0000_UUID         2.0T      751.3G        1.1T  37% /mnt/testfs[OST:0]
testfs-OST0001_UUID         2.0T        1.9T       55.1M  99% /mnt/testfs[OST:1]
OST0002             : inactive device
filesystem summary:        11.8T        5.5T        5.7T  46% /mnt/lustre
"""
INODES = """UUID                      Inodes       IUsed       IFree IUse% Mounted on
testfs-MDT0000_UUID      1000000      900000      100000  90% /mnt/testfs[MDT:0]
"""


def targets(output: str) -> dict[str, LustreTarget]:
    return {row["name"]: LustreTarget(row) for row in parse_lfs_df(output)}


def test_few_free_inodes_are_seen_beside_a_count_in_units() -> None:
    (target,) = targets(INODES.replace("1000000      900000      100000  90%", "1.6M  1.6M  800  100%")).values()
    assert target.inodes_used_percent > 99


def test_one_full_ost_is_seen_however_empty_the_whole_is() -> None:
    by_name = targets(UNBALANCED)
    assert {name: target.kind for name, target in by_name.items()} == {
        "testfs-MDT0000": "mdt",
        "testfs-OST0000": "ost",
        "testfs-OST0001": "ost",
        "OST0002": "ost",
    }
    assert round(by_name["testfs-OST0000"].used_percent) == 40
    assert by_name["testfs-OST0001"].used_percent > 99
    assert [name for name, target in by_name.items() if not target.active] == ["OST0002"]


def test_inodes_and_space_of_a_target_come_together() -> None:
    (mdt,) = [target for name, target in targets(UNBALANCED + INODES).items() if "MDT" in name]
    assert mdt.inodes_used_percent == 90.0
    assert mdt.total_kib == pytest.approx(4.4 * GIB)


@pytest.mark.parametrize(
    ("file", "count"),
    [("lustre/fsx-guide-attach-s3-posix-permissions-lfs-df.txt", 2), ("lustre/fsx-guide-performance-lfs-df.txt", 3)],
)
def test_real_lfs_df_is_read(file: str, count: int) -> None:
    by_name = targets(sample(file).text)
    assert len(by_name) == count
    assert all(target.active and target.used_percent < 1 for target in by_name.values())


FSX = {"path": "/fsx", "type": "lustre", "source": "10.1.2.3@tcp:/x", "options": "rw", "alive": "yes"}


@pytest.mark.parametrize(
    ("line", "verdict", "message"),
    [
        ("OST0001   : inactive device", Verdict.FAIL, "OST0001: inactive on this node; expected active"),
        ("{} : Resource temporarily unavailable", Verdict.FAIL, "lfs df reports Resource temporarily unavailable"),
        (
            "{} 1.1T 4.5M 1.1T 0% /fsx[OST:1] DR",
            Verdict.CONCERN,
            "mountname-OST0001: lfs df marks it degraded, read-only",
        ),
        ("{} 1.1T 4.5M 1.1T 0% /fsx[OST:1] f", Verdict.PASS, ""),
    ],
)
def test_what_lfs_df_says_in_place_of_a_targets_numbers_or_behind_them(
    line: str, verdict: Verdict, message: str
) -> None:
    capture = sample("lustre/fsx-guide-performance-lfs-df.txt").text
    text = re.sub(r"(mountname-OST0001_UUID) .*", lambda match: line.format(match[1]), capture)
    space = {"targets": parse_lfs_df(text), "left_out": 0}
    result = verdict_of("storage.lustre_ost_fill", lustre_space=space, mounts={"mounts": [FSX]})
    expect(result, verdict, message)


COMPOSITE = """/fsx/ckpt
  lcm_layout_gen:    0
  lcm_mirror_count:  1
  lcm_entry_count:   3
    lcme_id:             N/A
      stripe_count:  1       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1
      stripe_count:  8       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1
      stripe_count:  16       stripe_size:   1048576       pattern:       raid0       stripe_offset: -1
"""


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ("/fsx/a\nstripe_count:  1 stripe_size:   1048576 pattern:       0 stripe_offset: -1\n", 1),
        ("stripe_count:  -1 stripe_size:   0", -1),
        ("lmm_stripe_count:  4\nlmm_stripe_size:   1048576", 4),
        (COMPOSITE, 16),
    ],
)
def test_the_stripe_count_of_a_folder_is_the_largest_of_its_layout(output: str, count: int) -> None:
    assert CheckpointFolder({"path": "/fsx/a", "type": "lustre", "exit": 0, "output": output}).stripe_count == count


def test_folders_that_the_node_was_not_asked_of_are_no_pass() -> None:
    evidence = node("gpu001", striping={"folders": []})
    own = Node(Target("gpu001"), evidence, policy=Policy(checkpoints=("/fsx/ckpt",)))
    result = evaluate(node_checks()["storage.lustre_striping"], own)
    assert (result.verdict, result.observed) == (Verdict.INCOMPLETE, "the striping of /fsx/ckpt was not collected")


TEST_OF_FOLDERS = """
    import pytest

    @pytest.mark.prolog
    def test_asked(node):
        assert [folder.path for folder in node.checkpoint_folders] == ["/nowhere/ckpt", "/tmp"]
"""


def test_a_run_asks_the_probe_of_the_policys_folders(runs: Runs) -> None:
    runs.checks(test_asked=TEST_OF_FOLDERS)
    policy = runs.folder / "site.toml"
    policy.write_text('[mounts]\ncheckpoints = ["/nowhere/ckpt", "/tmp"]\n')
    ended = runs.run("--cluster=local", f"--policy={policy}", f"--results={runs.results_file}")
    assert [result.message for result in runs.results] == [""], ended.outlines


@examples(200)
@given(st.text(max_size=300) | st.text(alphabet="UID_OSTM0123[]:%. GK\n", max_size=300))
def test_no_text_breaks_lfs_df(text: str) -> None:
    for target in targets(f"{UNBALANCED}{text}").values():
        assert target.kind in ("ost", "mdt")
    assert len(targets(UNBALANCED + text)) >= 4


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("oyuutbev-OST0003-osc-ffff8e2d4b1c7000", "oyuutbev-OST0003"),
        ("oyuutbev-MDT0000-mdc-0x1234abcd", "oyuutbev-MDT0000"),
        ("10.1.71.197@tcp", "10.1.71.197@tcp"),
        ("my-osc-fs-OST0000-osc-ffff0000", "my-osc-fs-OST0000"),
    ],
)
def test_a_client_is_called_by_its_target(name: str, label: str) -> None:
    assert LustreClient({"name": name}).label == label


@pytest.mark.parametrize(
    ("options", "read_only"),
    [("rw,relatime", False), ("ro,relatime", True), ("rw,relatime,ro", True), ("rw,errors=remount-ro", False),
     ("rw,emergency_ro", True), ("rw,shutdown", True), ("", False)],
)  # fmt: skip
def test_a_mount_is_read_only_by_its_own_options_or_its_file_systems(options: str, read_only: bool) -> None:
    assert is_read_only(Mount({"options": options})) is read_only


def test_what_only_one_node_can_have_is_not_compared() -> None:
    nfs = {"path": "/home", "type": "nfs4", "source": "server:/home", "alive": "yes"}
    own = Mount({**nfs, "options": "rw,hard,clientaddr=10.0.0.20,addr=10.0.0.7"})
    other = Mount({**nfs, "options": "rw,hard,clientaddr=10.0.0.21,addr=10.0.0.8"})
    assert comparable(own) == comparable(other)
    assert comparable(own)["/home options"] == "hard,rw"


def test_file_systems_that_others_serve_are_known() -> None:
    assert all(map(is_network, ("lustre", "nfs", "nfs4", "cifs", "fuse.sshfs", "wekafs", "ceph")))
    assert not any(map(is_network, ("ext4", "xfs", "tmpfs", "overlay", "nfsd", "zfs")))


MOUNTED = {"mounts": [{"path": "/fsx", "type": "lustre", "source": "10.0.0.9@tcp:/a", "options": "rw"}], "fstab": []}
LUSTRE_CHECKS = (
    "lustre_client_cache",
    "lustre_health",
    "lustre_clients",
    "lustre_ost_fill",
    "lustre_mdt_inodes",
    "lustre_tuning",
)


@pytest.mark.parametrize("name", LUSTRE_CHECKS)
@pytest.mark.parametrize(
    ("mounts", "verdict"),
    [(MOUNTED, Verdict.INCOMPLETE), ({"mounts": [], "fstab": []}, Verdict.NOT_APPLICABLE)],
)
def test_without_a_client_lustre_is_a_question_only_where_it_is_mounted(
    name: str, mounts: dict[str, Any], verdict: Verdict
) -> None:
    absent = Collected(Status.ABSENT, detail="no Lustre client")
    evidence = node("gpu001", boot=boot(), mounts=mounts, lustre=absent, lustre_space=absent)
    result = evaluate(node_checks()[f"storage.{name}"], Node(Target("gpu001", instance_type="p5.48xlarge"), evidence))
    assert result.verdict is verdict, result.message


@pytest.mark.long
@examples(100)
@given(collector=st.sampled_from(COLLECTORS), data=JSON, kind=st.sampled_from(["trn1.32xlarge", "p5.48xlarge", ""]))
def test_no_nonsense_of_disks_and_devices_breaks_a_check(collector: str, data: Any, kind: str) -> None:
    own = Node(Target("trn001", instance_type=kind), NodeEvidence("trn001", {collector: Collected(Status.READ, data)}))
    for name, check in node_checks().items():
        if name.startswith(("storage.", "neuron.")):
            assert "the check itself broke" not in evaluate(check, own).message
