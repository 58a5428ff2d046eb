"""Checks of mounts, Lustre and NVMe disks on evidence that no fault of the testbed produces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, said
from tests.builders.recordings import boot, node

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
UNREAD = {"error": "EIO", "text": ""}
EC2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}


def mount(path: str = "/data", kind: str = "ext4", source: str = "/dev/sdb", options: str = "rw", **data: Any) -> Any:
    """A mounted file system that answers."""
    sizes = {"total_kib": 100, "free_kib": 90, "inodes": 100, "inodes_free": 90}
    return {"path": path, "type": kind, "source": source, "options": options, "alive": "yes", **sizes, **data}


LUSTRE = mount("/fsx", "lustre", "10.0.0.1@tcp:/fsx", "rw,noatime,flock")
NFS = mount("/home", "nfs4", "fs-1.fsx.us-west-2.amazonaws.com:/home", "rw,hard,nconnect=16")


def line(path: str, options: str = "defaults", kind: str = "ext4", *, mounted: bool = True) -> dict[str, Any]:
    """A line of /etc/fstab."""
    return {"path": path, "type": kind, "options": options, "mounted": mounted}


def evaluated(
    check: str, *mounts: Mapping[str, Any], fstab: Any = (), policy: Policy = NO_POLICY, **collectors: Any
) -> Result:
    """A check's result on a node with these mounts and that /etc/fstab."""
    data = {"mounts": list(mounts), "fstab": list(fstab) if isinstance(fstab, tuple) else fstab}
    evidence = node("gpu001", **{"boot": boot(), "platform": EC2, "mounts": data} | collectors)
    return said(f"storage.{check}", evidence, policy=policy)


@pytest.mark.parametrize(
    ("own", "others", "verdict", "words"),
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
    own: list[Any], others: list[list[Any]], verdict: Verdict, words: str
) -> None:
    first, *rest = (
        node(name, boot=boot(), platform=EC2, mounts={"mounts": mounts, "fstab": []})
        for name, mounts in (("gpu001", own), *((f"g{number}", each) for number, each in enumerate(others)))
    )
    expect(said("storage.mount_uniform", first, *rest), verdict, words)


@pytest.mark.parametrize(
    ("alive", "verdict", "words"),
    [
        ("yes", PASS, ""),
        ("hung", FAIL, "/data: ext4 from /dev/sdb hangs; expected an answer"),
        ("ESTALE", FAIL, "/data: ext4 from /dev/sdb says ESTALE; expected an answer"),
        ("hidden", INCOMPLETE, "/data: not visible under --host-root: ext4 from /dev/sdb"),
        ("slow", INCOMPLETE, "/data: ext4 from /dev/sdb was not probed in time: the node is too busy"),
        ("covered", INCOMPLETE, "/data: a user has mounted a file system over ext4 from /dev/sdb"),
    ],
)
def test_a_mount_answers(alive: str, verdict: Verdict, words: str) -> None:
    expect(evaluated("mounts_alive", mount(alive=alive)), verdict, words)


@pytest.mark.parametrize("alive", ["EACCES", "EPERM"])
@pytest.mark.parametrize(
    ("uid", "verdict", "words"),
    [
        (1000, INCOMPLETE, "/data: ext4 from /dev/sdb may not be read ({}); run as root, or with --sudo"),
        (0, FAIL, "/data: ext4 from /dev/sdb says {}; expected an answer"),
    ],
)
def test_a_mount_that_only_root_may_read_fails_only_root(uid: int, verdict: Verdict, words: str, alive: str) -> None:
    of_user = evaluated("mounts_alive", mount(alive=alive), boot={**boot(), "uid": uid})
    expect(of_user, verdict, words.format(alive))


def test_a_server_to_which_a_user_walked_is_a_concern_where_it_hangs() -> None:
    walked = {**mount(kind="nfs4", alive="hung"), "is_automatic": True, "is_due": False}
    expect(evaluated("mounts_alive", walked), CONCERN, "nfs4 from /dev/sdb, mounted by autofs, hangs")


def test_of_a_mount_that_answers_soon_nothing_else_is_needed() -> None:
    unread = {"error": "EIO", "text": ""}
    answered = {"path": "/data", "alive": "yes", "read_s": 0.01, "type": unread, "is_automatic": unread}
    expect(evaluated("mounts_alive", answered), PASS, "")


@pytest.mark.parametrize(
    ("kind", "read_s", "verdict", "words"),
    [
        ("lustre", 0.49, PASS, ""),
        ("lustre", 0.5, CONCERN, "/data: lustre from /dev/sdb took 0.5 s to answer; expected less than 0.5 s"),
        ("nfs4", 1.82, CONCERN, "took 1.8 s to answer"),
        ("ext4", 1.82, PASS, ""),
        ("lustre", None, PASS, ""),
    ],
)
def test_a_file_system_that_others_serve_answers_soon(
    kind: str, read_s: float | None, verdict: Verdict, words: str
) -> None:
    expect(evaluated("mounts_alive", {**mount(kind=kind), "read_s": read_s}), verdict, words)


@pytest.mark.any_user
@pytest.mark.parametrize(("is_due", "verdict"), [(True, CONCERN), (False, PASS), (None, PASS)])
def test_a_slow_server_to_which_a_user_walked_is_no_concern(is_due: bool | None, verdict: Verdict) -> None:
    walked = {**mount(kind="nfs4"), "read_s": 1.82, "is_automatic": True, "is_due": is_due}
    expect(evaluated("mounts_alive", walked), verdict, "took 1.8 s to answer" if is_due else "")


@pytest.mark.parametrize(
    ("mounts", "fstab", "policy", "verdict", "words"),
    [
        ([mount()], (line("/data"),), NO_POLICY, PASS, ""),
        ([], (line("/data", mounted=False),), NO_POLICY, FAIL, "not mounted: /data (ext4, in /etc/fstab)"),
        ([], (line("/data", "noauto", mounted=False),), NO_POLICY, PASS, ""),
        ([mount("/fsx")], (), Policy(mounts=("/fsx",)), PASS, ""),
        ([mount()], (), Policy(mounts=("/fsx",)), FAIL, "not mounted: /fsx (expected by the policy)"),
    ],
)
def test_what_is_to_be_mounted_is(mounts: Any, fstab: Any, policy: Policy, verdict: Verdict, words: str) -> None:
    expect(evaluated("mounts_expected", *mounts, fstab=fstab, policy=policy), verdict, words)


@pytest.mark.parametrize(
    ("mounted", "fstab", "verdict", "words"),
    [
        (LUSTRE, (), PASS, ""),
        (LUSTRE, UNREAD, INCOMPLETE, "fstab"),
        (LUSTRE, (line("/fsx", "noatime,flock,_netdev", "lustre"),), PASS, ""),
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
    mounted: Any, fstab: Any, verdict: Verdict, words: str
) -> None:
    expect(evaluated("mount_options", mounted, fstab=fstab), verdict, words)


@pytest.mark.parametrize(
    ("mounted", "fstab", "verdict", "words"),
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
    ],
)
def test_what_is_to_be_written_to_can_be(mounted: Any, fstab: Any, verdict: Verdict, words: str) -> None:
    expect(evaluated("mounts_writable", mounted, fstab=fstab), verdict, words)


def client(kind: str, state: str = "FULL", **tuning: Any) -> dict[str, Any]:
    """A connection as FSx recommends it."""
    advised = {"max_rpcs_in_flight": 64, "max_mod_rpcs_in_flight": 50, "max_dirty_mb": 64, "lru_max_age_ms": 600000}
    return {"kind": kind, "name": f"fsx-{kind}", "state": state, **advised, **tuning}


def lustre(*clients: Mapping[str, Any], health: str = "healthy") -> dict[str, Any]:
    modules = {"ptlrpcd_per_cpt_max": 32, "credits": 2560}
    return {"version": "2.15", "health": health, "left_out": 0, "modules": modules, "clients": list(clients)}


@pytest.mark.parametrize(
    ("data", "verdict", "words"),
    [
        (lustre(), PASS, ""),
        (lustre(health="LBUG"), FAIL, "LBUG; expected healthy"),
        (Collected(Status.ABSENT, detail="no lctl"), INCOMPLETE, "/fsx is Lustre; lustre: not on this node (no lctl)"),
    ],
)
def test_a_lustre_client_says_that_it_is_healthy(data: Any, verdict: Verdict, words: str) -> None:
    expect(evaluated("lustre_health", LUSTRE, lustre=data), verdict, words)


def target(kind: str, **data: Any) -> dict[str, Any]:
    """An empty OST or MDT."""
    sizes = {"total_kib": 1000, "free_kib": 1000, "available_kib": 1000, "inodes": 1000, "inodes_free": 1000}
    return {"kind": kind, "name": f"fsx-{kind}0", "active": True, **sizes, **data}


@pytest.mark.parametrize(
    ("check", "data", "verdict", "words"),
    [
        ("lustre_ost_fill", target("ost"), PASS, ""),
        ("lustre_ost_fill", target("ost", active=False), FAIL, "inactive on this node; expected active"),
        (
            "lustre_ost_fill",
            target("ost", free_kib=100, available_kib=100),
            CONCERN,
            "90 % full; expected less than 85",
        ),
        ("lustre_ost_fill", target("ost", free_kib=10, available_kib=10), FAIL, "99 % full; expected less than 95"),
        (
            "lustre_ost_fill",
            {**target("ost"), "kind": None, "name": "fsx-OST0000", "active": False},
            FAIL,
            "inactive on this",
        ),
        (
            "lustre_ost_fill",
            {**target("ost"), "kind": None, "name": "fsx-OST0000"},
            INCOMPLETE,
            "kind was not reported",
        ),
        ("lustre_mdt_inodes", target("mdt"), PASS, ""),
        ("lustre_mdt_inodes", target("mdt", active=False), FAIL, "inactive on this node; expected active"),
        ("lustre_mdt_inodes", target("mdt", inodes_free=100), CONCERN, "90 % of its inodes used; expected less than"),
        ("lustre_mdt_inodes", target("mdt", inodes_free=10), FAIL, "99 % of its inodes used; expected less than"),
    ],
)
def test_a_target_has_room(check: str, data: Any, verdict: Verdict, words: str) -> None:
    expect(evaluated(check, LUSTRE, lustre_space={"targets": [data], "left_out": 0}), verdict, words)


def folder(path: str = "/fsx/ckpt", kind: str = "lustre", stripes: int = 1) -> dict[str, Any]:
    return {"path": path, "type": kind, "exit": 0, "output": f"  stripe_count:  {stripes}  stripe_size: 1048576\n"}


@pytest.mark.parametrize(
    ("folders", "osts", "asked", "verdict", "words"),
    [
        ([folder()], 4, ("/fsx/ckpt",), CONCERN, "stripe count below 2 on /fsx/ckpt; expected at least 2, or -1"),
        ([folder(stripes=4)], 4, ("/fsx/ckpt",), PASS, ""),
        ([folder(stripes=-1)], 4, ("/fsx/ckpt",), PASS, ""),
        ([folder()], 1, ("/fsx/ckpt",), PASS, ""),  # there is only one
        ([folder()], 4, (), NA, "the policy names no checkpoint folder"),
        (
            [folder()],
            4,
            ("/fsx/ckpt", "/ckpt"),
            INCOMPLETE,
            "the striping of /ckpt was not collected; expected evidence",
        ),
        ([folder(kind="ext4")], 4, ("/fsx/ckpt",), NA, "none of the policy's checkpoint folders is on Lustre"),
    ],
)
def test_checkpoints_lie_on_several_osts(
    folders: Any, osts: int, asked: tuple[str, ...], verdict: Verdict, words: str
) -> None:
    space = {"targets": [target("ost") | {"name": f"ost{number}"} for number in range(osts)], "left_out": 0}
    data = {"striping": {"folders": folders}, "lustre_space": space}
    expect(evaluated("lustre_striping", LUSTRE, policy=Policy(checkpoints=asked), **data), verdict, words)


OLD = {"lru_max_age_ms": 3900000}
FEW = {"max_rpcs_in_flight": 8}


@pytest.mark.parametrize(
    ("clients", "machine", "verdict", "words"),
    [
        ([client("osc"), client("mdc")], {}, PASS, ""),
        ([client("osc", "FULL", **OLD), client("mdc")], {}, CONCERN, "lru_max_age 3900000 ms; expected at most 600000"),
        ([client("osc", "FULL", **OLD), client("mdc")], {"memory_kib": 2**25}, PASS, ""),
        ([client("osc", "FULL", **FEW), client("mdc")], {}, CONCERN, "osc_max_rpcs_in_flight 8; expected 32"),
        ([client("osc"), client("mdc", "FULL", **FEW)], {}, CONCERN, "mdc_max_rpcs_in_flight 8; expected 64"),
        ([client("osc", "FULL", **FEW), client("mdc")], {"cpus": 8}, PASS, ""),
    ],
)
def test_a_large_client_is_tuned_as_fsx_advises(clients: Any, machine: Any, verdict: Verdict, words: str) -> None:
    expect(evaluated("lustre_tuning", LUSTRE, lustre=lustre(*clients), boot=boot(**machine)), verdict, words)


def test_fsx_s_advice_is_not_for_other_machines() -> None:
    outside = {"vendor": "NVIDIA", "product": "DGXH100", "serial": ""}
    result = evaluated(
        "lustre_tuning", LUSTRE, lustre=lustre(client("osc", "FULL", **FEW), client("mdc")), platform=outside
    )
    expect(result, NA, "the recommendation is for FSx, but /fsx is mounted outside EC2")
