"""However much users have logged, the kernel's own lines are kept, and no check becomes incomplete."""

from __future__ import annotations

import json
import zlib
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.sending import fitted
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log.collect_follow import Follower
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN, Kept
from clusterproof.plugins.watch.overlay import MAX_LINES, with_lines
from clusterproof.plugins.watch.updates import LogLine
from tests.builders.user_floods import FAULTS, crashes, in_the_middle, names
from tests.evidence.kernel_log.logged import node, result, verdict
from tests.evidence.kernel_log.user_text import ANY_LENGTH, OF_A_PROCESS

pytestmark = pytest.mark.any_user

OVER_LOG = sorted({*FAULTS.values(), "host.kernel_oops", "host.lockups", "network.link_flaps"})
CRASH, *OTHERS = (record.replace("order:9", "order:7") for record in OF_A_PROCESS.values())


def everything() -> list[str]:
    """A hundred of everything that users can have logged, in ever different words."""
    of_processes = [line.format(name) for line in (CRASH, *OTHERS) for name in names("NVRM: ", 100)]
    of_any_length = [line.format(name) for line in ANY_LENGTH.values() for name in names("EXT4-fs (nvme1n1p1): ", 100)]
    bonds = [f"{name}: now running without any active interface!" for name in names("bond", 100)]
    packet = "IN= OUT=lo MAC= SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00"
    filtered = [f"NVRM: Xid (PCI:0000:53:00): 79, {name}{packet}" for name in names("", 100)]
    return [*of_processes, *of_any_length, *bonds, *filtered]


def log_of(lines: list[str]) -> dict[str, Any]:
    return Kept().of((at / 2, line.encode(), UNKNOWN) for at, line in enumerate(lines))


def checked(log: dict[str, Any], check: str) -> Verdict:
    lines = log.pop("lines") if "lines" in log else []
    return verdict(check, node(*map(tuple, lines), **log))


@pytest.mark.long
@pytest.mark.parametrize("flood", [crashes(2_100), crashes(20_000), everything()], ids=["2100", "20000", "everything"])
@pytest.mark.parametrize("place", ["first", "in the middle", "last"])
def test_every_fault_is_kept_in_a_flood_of_what_users_write(flood: list[str], place: str) -> None:
    faults = list(FAULTS)
    lines = {"first": faults + flood, "last": flood + faults, "in the middle": in_the_middle(flood, faults)}[place]
    log = log_of(lines)
    kept = {line[1] for line in log["lines"]}
    assert [fault for fault in faults if fault not in kept] == []
    assert log["dropped"] > 0
    assert log["uncounted"] == 0


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_sick_node_fails_however_many_processes_crash(fault: str) -> None:
    log = log_of(in_the_middle(crashes(2_100), [fault]))
    lines = [tuple(line) for line in log.pop("lines")]
    mounts = [{"path": "/data", "type": "ext4", "source": "/dev/nvme1n1p1", "options": "rw", "alive": "yes"}]
    of_log = node(*lines, **log)
    collectors = {**of_log.evidence.collectors, "mounts": Collected(Status.READ, {"mounts": mounts, "fstab": []})}
    sick = type(of_log)(Target("gpu001"), NodeEvidence("gpu001", collectors))
    assert verdict(FAULTS[fault], sick) is Verdict.FAIL


@pytest.mark.long
@pytest.mark.parametrize("check", OVER_LOG)
def test_no_user_makes_a_check_of_a_healthy_node_fail_or_incomplete(check: str) -> None:
    assert checked(log_of(everything()), check) in (Verdict.PASS, Verdict.CONCERN)
    assert checked(log_of(crashes(5_000)), check) is Verdict.PASS


@pytest.mark.long
def test_crashes_that_are_not_looked_at_are_counted() -> None:
    log = log_of(crashes(2_100))
    lines = [tuple(line) for line in log.pop("lines")]
    outcome = result("host.segfaults", node(*lines, **log))
    assert outcome.verdict is Verdict.CONCERN
    assert f"{2100 - len(lines)} more crashes, each of a differently named process" in outcome.message


@pytest.mark.long
def test_lines_of_the_kernels_own_that_are_ever_different_leave_a_check_incomplete() -> None:
    log = log_of([f"NVRM: {word} is new" for word in map("".join, islice(product(ascii_lowercase, repeat=4), 5_000))])
    lines = [tuple(line) for line in log.pop("lines")]
    outcome = result("gpu.no_xid", node(*lines, **log))
    assert outcome.verdict is Verdict.INCOMPLETE
    assert f"{log['uncounted']} lines of the kernel log were left out, each unlike the others" in outcome.message


BOUND = (
    "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=x,mems_allowed=0,global_oom,task={0},pid={1},uid=7"
)
KILLED = "Out of memory: Killed process {1} ({0}) total-vm:1kB, anon-rss:1kB, UID:7"


@pytest.mark.parametrize("name", ["{}", "python3"])
def test_a_kill_is_kept_with_the_line_that_says_for_which_limit(name: str) -> None:
    """Otherwise a process that fills its NUMA nodes would seem to have used up the whole node's memory."""
    of = [(name.format(word), pid) for pid, word in enumerate(names("", 500), 100)]
    log = log_of([line.format(*fields) for fields in of for line in (BOUND, KILLED)])
    assert log["dropped"] > 0
    assert checked(log, "host.no_oom_kill") is Verdict.CONCERN


def test_an_allocation_that_never_fails_is_kept_among_those_that_may() -> None:
    costly = ["x: page allocation failure: order:9, mode:0x40dc0(GFP_KERNEL), nodemask=(null)"] * 200
    log = log_of(in_the_middle(costly, [line.replace("order:9", "order:0") for line in costly[:1]]))
    assert checked(log, "host.no_oom_kill") is Verdict.FAIL


@pytest.mark.long
def test_a_watched_node_sends_every_fault_of_a_minute_full_of_crashes(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    kmsg = tmp_path / "dev/kmsg"
    kmsg.write_text("6,0,0,-;x\n")
    follower = Follower(Node(str(tmp_path)), ("", -1, -1.0))
    lines = in_the_middle(crashes(1_900), list(FAULTS))
    with kmsg.open("a") as file:
        file.writelines(f"6,{number},{number}000000,-;{line}\n" for number, line in enumerate(lines, 1))
    sent = [line for _ in range(3) for line in follower.lines()]
    assert {line[2] for line in sent} >= set(FAULTS)
    assert len(sent) < len(lines) / 2


def test_crashes_drive_no_fault_out_of_what_is_known_of_a_watched_node() -> None:
    log = {"lines": [[1.0, fault] for fault in FAULTS], "cursor": ["", 1, 1.0]}
    evidence = NodeEvidence("gpu001", {"kernel_log": Collected(Status.READ, log)})
    more = [LogLine(2 + at, 2.0 + at, line) for at, line in enumerate(crashes(2 * MAX_LINES))]
    known = with_lines(evidence, more).collectors["kernel_log"].value["lines"]
    assert {line[1] for line in known} >= set(FAULTS)
    assert len(known) <= MAX_LINES


@pytest.mark.long
def test_crashes_are_the_first_to_go_where_an_answer_is_too_long() -> None:
    log = log_of(in_the_middle(crashes(2_100), list(FAULTS)))
    answer = {"collectors": {"kernel_log": {"status": "read", "value": log, "seconds": 0.1}}}
    fitted(answer, len(zlib.compress(json.dumps(answer).encode())) // 2)
    assert set(log["cut"]) == {"processes"}
    assert {line[1] for line in log["lines"]} >= set(FAULTS)
    assert checked({**log_of([]), "cut": log["cut"]}, "gpu.no_xid") is Verdict.PASS
