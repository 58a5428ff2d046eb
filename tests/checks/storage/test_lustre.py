"""Checks of Lustre's client, targets and striping on evidence that no fault of the testbed produces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.builders.recordings import boot
from tests.checks.storage.given import LUSTRE, evaluated

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


def client(kind: str, state: str = "FULL", **tuning: Any) -> dict[str, Any]:
    """A connection with FSx's recommended settings."""
    advised = {"max_rpcs_in_flight": 64, "max_mod_rpcs_in_flight": 50, "max_dirty_mb": 64, "lru_max_age_ms": 600000}
    return {"kind": kind, "name": f"fsx-{kind}", "state": state, **advised, **tuning}


def lustre(*clients: Mapping[str, Any], health: str = "healthy") -> dict[str, Any]:
    modules = {"ptlrpcd_per_cpt_max": 32, "credits": 2560}
    return {"version": "2.15", "health": health, "left_out": 0, "modules": modules, "clients": list(clients)}


@pytest.mark.parametrize(
    ("data", "verdict", "message"),
    [
        (lustre(), PASS, ""),
        (lustre(health="LBUG"), FAIL, "LBUG; expected healthy"),
        (Collected(Status.ABSENT, detail="no lctl"), INCOMPLETE, "/fsx is Lustre; lustre: not on this node (no lctl)"),
    ],
)
def test_a_lustre_client_says_that_it_is_healthy(data: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("lustre_health", LUSTRE, lustre=data), verdict, message)


CACHE = {"name": "fsx-ffff8e2d", "max_cached_mb": "users: 2\nmax_cached_mb: 1000\nused_mb: 900", "read_ahead_stats": ""}
HITS = (
    "snapshot_time  17 secs.nsecs\nhits  30 samples [pages]\nmisses  10 samples [pages]\nhits zero  5 samples [pages]"
)
LITTLE = "max_cached_mb of /fsx (fsx) is 1000: the client caches at most 1000 MiB with 4004 MiB of memory"
DENIED = {"error": "EACCES", "text": ""}


@pytest.mark.parametrize(
    ("caches", "memory_mib", "verdict", "message"),
    [
        ([CACHE], 4000, PASS, ""),
        ([CACHE], 4004, CONCERN, f"{LITTLE}; expected at least 1001 (25 % of the memory)"),
        ([{**CACHE, "max_cached_mb": "1000"}], 4004, CONCERN, LITTLE),
        ([{**CACHE, "max_cached_mb": "0"}], 4004, CONCERN, "max_cached_mb of /fsx (fsx) is 0"),
        (
            [{**CACHE, "read_ahead_stats": HITS}],
            4004,
            CONCERN,
            f"{LITTLE}; read-ahead had 30 hits and 10 misses; expected at least 1001",
        ),
        ([{**CACHE, "read_ahead_stats": DENIED}], 4004, CONCERN, LITTLE),
        ([{**CACHE, "read_ahead_stats": DENIED}], 4000, PASS, ""),
        ([{**CACHE, "name": "other-fs-ffff"}], 4004, CONCERN, "max_cached_mb of other-fs is 1000"),
        (
            [{**CACHE, "max_cached_mb": "users: 5"}],
            4004,
            INCOMPLETE,
            "max_cached_mb of fsx is not understood: 'users: 5'",
        ),
        ([{**CACHE, "max_cached_mb": DENIED}, CACHE], 4004, INCOMPLETE, f"concern: {LITTLE}"),
        ([], 4004, INCOMPLETE, "/fsx is Lustre, and its client reports no cache"),
    ],
)
def test_a_lustre_client_may_cache_a_share_of_its_memory(
    caches: Any, memory_mib: int, verdict: Verdict, message: str
) -> None:
    own: dict[str, Any] = {"lustre": {**lustre(), "caches": caches}, "boot": boot(memory_kib=memory_mib * 1024)}
    expect(evaluated("lustre_client_cache", LUSTRE, **own), verdict, message)


def test_the_cache_of_no_lustre_does_not_apply() -> None:
    absent = Collected(Status.ABSENT, detail="no Lustre client")
    expect(evaluated("lustre_client_cache", lustre=absent), NA, "no Lustre file system is mounted")


def target(kind: str, **values: Any) -> dict[str, Any]:
    """An empty OST or MDT."""
    sizes = {"total_kib": 1000, "free_kib": 1000, "available_kib": 1000, "inodes": 1000, "inodes_free": 1000}
    return {"kind": kind, "name": f"fsx-{kind}0", "active": True, **sizes, **values}


@pytest.mark.parametrize(
    ("check", "data", "verdict", "message"),
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
def test_a_target_has_room(check: str, data: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated(check, LUSTRE, lustre_space={"targets": [data], "left_out": 0}), verdict, message)


RETIRED = {"targets": [target("ost", active=False), target("ost", name="fsx-ost1")], "left_out": 0}


def test_an_ost_that_is_inactive_on_all_nodes_is_retired_and_no_fault_of_one() -> None:
    result = evaluated("lustre_ost_fill", LUSTRE, alike=2, lustre_space=RETIRED)
    expect(result, CONCERN, "fsx-ost0: inactive as on 3 of 3 nodes; expected active, or removed")


def test_an_inactive_target_keeps_no_job_from_a_node_as_a_retired_one_is_so_on_all() -> None:
    result = evaluated("lustre_ost_fill", LUSTRE, occasion="prolog", lustre_space=RETIRED)
    expect(result, CONCERN, "fsx-ost0: inactive on this node; expected active, or removed")


def test_a_connection_that_an_administrator_has_deactivated_need_not_be_up() -> None:
    clients = lustre(client("osc", "DEACTIVATED"), client("osc"), client("mdc"))
    expect(evaluated("lustre_clients", LUSTRE, lustre=clients), PASS, "")


def folder(path: str = "/fsx/ckpt", kind: object = "lustre", stripes: int = 1) -> dict[str, Any]:
    return {"path": path, "type": kind, "exit": 0, "output": f"  stripe_count:  {stripes}  stripe_size: 1048576\n"}


@pytest.mark.parametrize(
    ("folders", "osts", "asked", "verdict", "message"),
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
        (
            [folder(kind={"error": "EIO", "text": ""}), folder("/fsx/b")],
            4,
            ("/fsx/ckpt", "/fsx/b"),
            INCOMPLETE,
            "concern: stripe count below 2 on /fsx/b",
        ),
        ([folder(kind="ext4")], 4, ("/fsx/ckpt",), NA, "none of the policy's checkpoint folders is on Lustre"),
    ],
)
def test_checkpoints_lie_on_several_osts(
    folders: Any, osts: int, asked: tuple[str, ...], verdict: Verdict, message: str
) -> None:
    space = {"targets": [target("ost") | {"name": f"ost{number}"} for number in range(osts)], "left_out": 0}
    reports: dict[str, Any] = {"striping": {"folders": folders}, "lustre_space": space}
    expect(evaluated("lustre_striping", LUSTRE, policy=Policy(checkpoints=asked), **reports), verdict, message)


OLD = {"lru_max_age_ms": 3900000}
FEW = {"max_rpcs_in_flight": 8}


@pytest.mark.parametrize(
    ("clients", "machine", "verdict", "message"),
    [
        ([client("osc"), client("mdc")], {}, PASS, ""),
        ([client("osc", "FULL", **OLD), client("mdc")], {}, CONCERN, "lru_max_age 3900000 ms; expected at most 600000"),
        ([client("osc", "FULL", **OLD), client("mdc")], {"memory_kib": 2**25}, PASS, ""),
        ([client("osc", "FULL", **FEW), client("mdc")], {}, CONCERN, "osc_max_rpcs_in_flight 8; expected 32"),
        ([client("osc"), client("mdc", "FULL", **FEW)], {}, CONCERN, "mdc_max_rpcs_in_flight 8; expected 64"),
        ([client("osc", "FULL", **FEW), client("mdc")], {"cpus": 8}, PASS, ""),
    ],
)
def test_a_large_client_is_tuned_as_fsx_advises(clients: Any, machine: Any, verdict: Verdict, message: str) -> None:
    expect(evaluated("lustre_tuning", LUSTRE, lustre=lustre(*clients), boot=boot(**machine)), verdict, message)


def test_fsx_s_advice_is_not_for_other_machines() -> None:
    outside = {"vendor": "NVIDIA", "product": "DGXH100", "serial": ""}
    result = evaluated(
        "lustre_tuning", LUSTRE, lustre=lustre(client("osc", "FULL", **FEW), client("mdc")), platform=outside
    )
    expect(result, NA, "the recommendation is for FSx, but /fsx is mounted outside EC2")
