"""Checks of mounts on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node
from tests.checks.storage.given import EC2, LUSTRE, NFS, evaluated, mount

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
UNREAD = {"error": "EIO", "text": ""}


def line(path: str, options: str = "defaults", kind: str = "ext4", *, mounted: bool = True) -> dict[str, Any]:
    """A line of /etc/fstab."""
    return {"path": path, "type": kind, "options": options, "mounted": mounted}


@pytest.mark.parametrize(
    ("own", "others", "verdict", "message"),
    [
        ([mount()], [[]], NA, "1 of its group reported it; 2 are needed to compare"),
        ([mount()], [[], [mount()]], PASS, ""),
        ([], [[mount()], [mount(kind="xfs")]], PASS, ""),
        ([mount()], [[mount(kind="xfs")]], CONCERN, "/data type differs from node to node (ext4 on gpu001, xfs on g0)"),
        ([mount()], [[], [], [], [mount(kind="xfs")]], CONCERN, "/data type differs from node to node"),
        ([mount()], [[], [], [mount(kind="xfs")], [mount(kind="xfs")]], CONCERN, "expected xfs as on 2 of 3 nodes"),
    ],
)
def test_a_mount_is_compared_with_the_nodes_that_have_it(
    own: list[Any], others: list[list[Any]], verdict: Verdict, message: str
) -> None:
    first, *rest = (
        node(name, boot=boot(), platform=EC2, mounts={"mounts": mounts, "fstab": []})
        for name, mounts in (("gpu001", own), *((f"g{number}", each) for number, each in enumerate(others)))
    )
    expect(result_of("storage.mount_uniform", first, *rest), verdict, message)


@pytest.mark.parametrize(
    ("alive", "verdict", "message"),
    [
        ("yes", PASS, ""),
        ("hung", FAIL, "/data: ext4 from /dev/sdb hangs; expected an answer"),
        ("ESTALE", FAIL, "/data: ext4 from /dev/sdb says ESTALE; expected an answer"),
        ("hidden", INCOMPLETE, "/data: not visible under --host-root: ext4 from /dev/sdb"),
        ("slow", INCOMPLETE, "/data: ext4 from /dev/sdb was not probed in time: the node is too busy"),
        ("covered", INCOMPLETE, "/data: a user has mounted a file system over ext4 from /dev/sdb"),
    ],
)
def test_a_mount_answers(alive: str, verdict: Verdict, message: str) -> None:
    expect(evaluated("mounts_alive", mount(alive=alive)), verdict, message)


@pytest.mark.parametrize("alive", ["EACCES", "EPERM"])
@pytest.mark.parametrize(
    ("uid", "verdict", "message"),
    [
        (1000, INCOMPLETE, "/data: ext4 from /dev/sdb may not be read ({}); run as root, or with --sudo"),
        (0, FAIL, "/data: ext4 from /dev/sdb says {}; expected an answer"),
    ],
)
def test_a_mount_that_only_root_may_read_fails_only_root(uid: int, verdict: Verdict, message: str, alive: str) -> None:
    of_user = evaluated("mounts_alive", mount(alive=alive), boot={**boot(), "uid": uid})
    expect(of_user, verdict, message.format(alive))


def test_a_server_to_which_a_user_walked_is_a_concern_where_it_hangs() -> None:
    walked = {**mount(kind="nfs4", alive="hung"), "is_automatic": True, "is_due": False}
    expect(evaluated("mounts_alive", walked), CONCERN, "nfs4 from /dev/sdb, mounted by autofs, hangs")


def test_a_mount_that_answers_soon_needs_nothing_else() -> None:
    unread = {"error": "EIO", "text": ""}
    answered = {"path": "/data", "alive": "yes", "read_s": 0.01, "type": unread, "is_automatic": unread}
    expect(evaluated("mounts_alive", answered), PASS, "")


@pytest.mark.parametrize(
    ("kind", "read_s", "verdict", "message"),
    [
        ("lustre", 0.49, PASS, ""),
        ("lustre", 0.5, CONCERN, "/data: lustre from /dev/sdb took 0.5 s to answer; expected less than 0.5 s"),
        ("nfs4", 1.82, CONCERN, "took 1.8 s to answer"),
        ("ext4", 1.82, PASS, ""),
        ("lustre", None, PASS, ""),
    ],
)
def test_a_file_system_that_others_serve_answers_soon(
    kind: str, read_s: float | None, verdict: Verdict, message: str
) -> None:
    expect(evaluated("mounts_alive", {**mount(kind=kind), "read_s": read_s}), verdict, message)


@pytest.mark.any_user
@pytest.mark.parametrize(("is_due", "verdict"), [(True, CONCERN), (False, PASS), (None, PASS)])
def test_a_slow_server_to_which_a_user_walked_is_no_concern(is_due: bool | None, verdict: Verdict) -> None:
    walked = {**mount(kind="nfs4"), "read_s": 1.82, "is_automatic": True, "is_due": is_due}
    expect(evaluated("mounts_alive", walked), verdict, "took 1.8 s to answer" if is_due else "")


@pytest.mark.parametrize(
    ("mounts", "fstab", "policy", "verdict", "message"),
    [
        ([mount()], (line("/data"),), NO_POLICY, PASS, ""),
        ([], (line("/data", mounted=False),), NO_POLICY, FAIL, "not mounted: /data (ext4, in /etc/fstab)"),
        ([], (line("/data", "noauto", mounted=False),), NO_POLICY, PASS, ""),
        ([mount("/fsx")], (), Policy(mounts=("/fsx",)), PASS, ""),
        ([mount()], (), Policy(mounts=("/fsx",)), FAIL, "not mounted: /fsx (expected by the policy)"),
    ],
)
def test_what_is_to_be_mounted_is(mounts: Any, fstab: Any, policy: Policy, verdict: Verdict, message: str) -> None:
    expect(evaluated("mounts_expected", *mounts, fstab=fstab, policy=policy), verdict, message)


@pytest.mark.parametrize(
    ("options", "mounted", "message"),
    [
        ("noauto,_netdev", False, "not mounted: /data (mounted on most nodes of the group); expected"),
        ("noauto,x-systemd.automount", True, ""),
        ("noauto,x-systemd.automount", False, ""),  # df lists it only once somebody has used it
        ("_netdev", False, "not mounted: /data (lustre, in /etc/fstab); expected"),
    ],
)
def test_what_most_nodes_have_mounted_is_expected_whatever_fstab_does_at_boot(
    options: str, mounted: bool, message: str
) -> None:
    fstab = [line("/data", options, "lustre", mounted=mounted)]
    have = [[], *[[mount(kind="lustre")]] * 4]
    nodes = [node(f"n{at}", boot=boot(), mounts={"mounts": own, "fstab": fstab}) for at, own in enumerate(have)]
    expect(result_of("storage.mounts_expected", *nodes), FAIL if message else PASS, message)


@pytest.mark.parametrize(
    ("is_due", "is_automatic", "message"),
    [
        (False, True, ""),  # a home that autofs mounts where its user has a job
        (True, True, "not mounted: /home/alice (mounted on most nodes of the group); expected"),
        (False, UNREAD, "not mounted: /home/alice (mounted on most nodes of the group); expected"),
    ],
)
def test_a_node_need_not_have_what_autofs_mounts_on_others_on_access(
    is_due: bool, is_automatic: Any, message: str
) -> None:
    home = {**mount("/home/alice", "nfs4", "nas:/alice"), "is_due": is_due, "is_automatic": is_automatic}
    nodes = [
        node(f"n{at}", boot=boot(), mounts={"mounts": own, "fstab": []}) for at, own in enumerate([[], *[[home]] * 4])
    ]
    expect(result_of("storage.mounts_expected", *nodes), FAIL if message else PASS, message)


@pytest.mark.parametrize(
    ("mounted", "fstab", "verdict", "message"),
    [
        (LUSTRE, (), PASS, ""),
        (LUSTRE, UNREAD, INCOMPLETE, "fstab"),
        (LUSTRE, (line("/fsx", "noatime,flock,_netdev", "lustre"),), PASS, ""),
        (NFS, (line("/home", "hard,nconnect=16", "nfs4"),), PASS, ""),  # systemd waits for the network by the type
        (LUSTRE, (line("/fsx", "noatime,flock", "lustre"),), CONCERN, "no _netdev in /etc/fstab; expected _netdev"),
        (LUSTRE, (line("/other", "noatime,flock", "lustre"),), PASS, ""),
        ({**LUSTRE, "options": "rw,flock"}, (), CONCERN, "no noatime; expected noatime"),
        ({**LUSTRE, "options": "rw,noatime"}, UNREAD, INCOMPLETE, "concern: /fsx: no flock; expected flock"),
        (NFS, (), PASS, ""),
        ({**NFS, "options": "rw,soft,nconnect=16"}, (), CONCERN, "soft; expected hard"),
        ({**NFS, "options": "rw,softerr,nconnect=16"}, (), CONCERN, "soft; expected hard"),
        ({**NFS, "options": "rw,hard"}, (), CONCERN, "one TCP connection; expected nconnect=16"),
        ({**NFS, "type": "nfs", "options": "rw,hard"}, (), CONCERN, "one TCP connection; expected nconnect=16"),
        ({**NFS, "source": "fs-1.efs.amazonaws.com:/", "options": "rw,hard"}, (), PASS, ""),
        (mount(), UNREAD, NA, "ext4 is neither Lustre nor NFS"),
    ],
)
def test_a_network_file_system_has_the_options_that_it_needs(
    mounted: Any, fstab: Any, verdict: Verdict, message: str
) -> None:
    expect(evaluated("mount_options", mounted, fstab=fstab), verdict, message)


@pytest.mark.parametrize(
    ("mounted", "fstab", "verdict", "message"),
    [
        (mount(), (), PASS, ""),
        (mount(options="rw,emergency_ro"), (), FAIL, "refused by the kernel since: an error; expected read-write"),
        (mount(options="rw,relatime,shutdown"), (), FAIL, "refused by the kernel since: an error; expected read-write"),
        (mount(options="ro"), (line("/data"),), FAIL, "ext4 read-only; expected read-write, as in /etc/fstab"),
        (
            mount(options="ro"),
            (line("/data", "ro"),),
            NA,
            "mounted read-only, and /etc/fstab does not require read-write",
        ),
        (mount(options="ro"), (line("/other"),), NA, "mounted read-only, and /etc/fstab does not require read-write"),
        (mount(options="ro"), (), NA, "mounted read-only, and /etc/fstab does not require read-write"),
        (mount(kind="erofs", options="rw,relatime,ro"), (), NA, "erofs is an image, to which nothing can be written"),
        (mount("/", "squashfs", options="rw,ro"), (line("/", kind="squashfs"),), NA, "squashfs is an image, to which"),
    ],
)
def test_what_is_to_be_written_to_can_be(mounted: Any, fstab: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("mounts_writable", mounted, fstab=fstab), verdict, message)
