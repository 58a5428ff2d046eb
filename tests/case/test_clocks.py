"""Clocks that are minutes off, known from the ranks' steps or by asking; times are compared on one clock."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from clusterproof.plugins.case import Job, Offset, Span, probe
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import by_command, by_steps
from clusterproof.plugins.case.command import case
from clusterproof.plugins.case.report import text
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.inventory import slurm
from clusterproof.plugins.transport.srun import COLLECTOR, JOBS
from tests.case.files import SACCT, XID_79, case_of, written
from tests.testbed.clock import set_clock, settable
from tests.testbed.cluster import testbed
from tests.testbed.faults import with_kernel_line
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_cpu

BEGAN = datetime(2026, 3, 1, 7, 59, tzinfo=timezone.utc)
JOINED = "gpu{node:03d}:{pid}:20 [1] NCCL INFO comm 0x55 rank {rank} nranks 4 cudaDev 1\n"
STEP = "{at:%Y-%m-%d %H:%M:%S},000 [rank{rank}]: iteration {number}/90000 | lm loss: 2.1\n"
OWN = "{at:%Y-%m-%d %H:%M:%S},000 [rank{rank}]: {words}\n"
LAUNCH = "RuntimeError: CUDA error: unspecified launch failure"
KEY = "KeyError: 'image'"


def rank(number: int, off_s: float = 0.0, event: tuple[float, str] | None = None) -> str:
    """A rank's output on a node whose clock is this far off."""
    begins = BEGAN + timedelta(seconds=off_s)
    lines = [JOINED.format(node=number + 1, pid=10 + number, rank=number)]
    lines += [STEP.format(at=begins + timedelta(seconds=at), rank=number, number=at) for at in range(40, 50)]
    if event:
        lines.append(OWN.format(at=begins + timedelta(seconds=60 + event[0]), rank=number, words=event[1]))
    return "".join(lines)


def files(off_s: float, of_gpu: float, of_code: float) -> dict[str, str]:
    """A GPU of gpu003 fails, and rank 1 raises an exception, this many seconds after 8:00."""
    at = BEGAN + timedelta(seconds=60 + of_gpu + off_s)
    events = {1: (of_code, KEY), 2: (of_gpu + 1, LAUNCH)}
    ranks = {f"rank_{number}.log": rank(number, off_s * (number == 2), events.get(number)) for number in range(4)}
    return {
        **ranks,
        "gpu003-dmesg.txt": XID_79.format(time=f"{at:%H:%M:%S}"),
        "sacct.txt": SACCT.format(state="FAILED"),
    }


@pytest.mark.parametrize("off_s", [0, 180, -180])
def test_the_verdict_is_the_same_however_far_a_nodes_clock_is_off(off_s: int, tmp_path: Path) -> None:
    hardware = case_of(tmp_path / "gpu", files(off_s, of_gpu=1, of_code=20)).verdict
    assert (hardware.cause, hardware.nodes) == ("hardware", ("gpu003",))
    code = case_of(tmp_path / "code", files(off_s, of_gpu=20, of_code=1)).verdict
    assert (code.cause, code.nodes, code.rank) == ("code", (), 1)


def test_the_offset_and_its_uncertainty_are_shown_and_times_are_those_of_the_others(tmp_path: Path) -> None:
    opened = case_of(tmp_path, files(180, of_gpu=1, of_code=20))
    assert opened.collected.clocks["gpu003"].seconds == pytest.approx(180)
    shown = " ".join(text(opened).split())
    assert "The clock of gpu003 is 180 s ahead, ± 0 s, by the steps of its ranks: its times are corrected." in shown
    assert "> 08:00:01 gpu003 Xid 79" in shown


def test_of_two_clocks_nobody_can_tell_which_is_right(tmp_path: Path) -> None:
    of_two = files(180, of_gpu=1, of_code=20)
    for name in ("rank_0.log", "rank_3.log"):
        del of_two[name]
    opened = case_of(tmp_path, of_two)
    assert (opened.verdict.cause, opened.verdict.nodes) == ("unknown", ())
    assert "Clocks of nodes may be 180 s apart" in " ".join(text(opened).split())


def test_an_offset_is_known_as_well_as_the_question_was_short() -> None:
    assert by_command(1180.0, 1.0, 1000.0, 1003.0) == Offset(179.0, 1.0, "as it was asked")
    assert by_command(1001.0, 1.0, 1000.0, 1003.0) == Offset(0.0, 1.0, "as it was asked")
    assert by_steps([("n1", {1: 0.0, 2: 1.0}), ("n2", {1: 90.0, 2: 91.0}), ("n3", {1: 0.0, 2: 1.0})]) == {}


ROWS = "JobID|State|ExitCode|Start|End|NodeList\n77|FAILED|1:0|{begins}|{ends}|n[1-2]\n"
XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=12, name=python, GPU has fallen off the bus."
UPTIME_S = 86_400.0
TYPED = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"


@needs_cluster
def test_nodes_that_are_asked_say_what_their_kernels_logged_by_the_clock_of_whoever_asks(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    begins, ends = (f"{now + timedelta(seconds=at):%Y-%m-%dT%H:%M:%S}" for at in (-9_000, 600))
    folder = written(tmp_path / "left", {"sacct.txt": ROWS.format(begins=begins, ends=ends)})
    arguments = ["case", str(folder), "--cluster", "ssh:n[1-2]", "--json"]
    with testbed({"n1": healthy_cpu(), "n2": with_kernel_line(healthy_cpu(), XID, at_s=UPTIME_S - 60)}) as bed:
        settable(bed.nodes["n2"])
        set_clock(bed.nodes["n2"], 1800)
        ran = bed.run([sys.executable, "-c", TYPED, *arguments])
    report = json.loads(ran.stdout)
    off = report["clocks"]["n2"]
    assert off["seconds"] == pytest.approx(1800, abs=off["apart_s"] + 1)
    assert report["clocks"]["n1"]["seconds"] == 0
    row = next(row for row in report["timeline"] if "Xid 79" in row["words"])
    assert row["where"] == "n2"
    assert row["when"]["begins"] == pytest.approx(now.timestamp() - 60, abs=600)
    assert report["nodes"] == ["n2"], report["ticket"]
    assert report["read"] == ["1 record of Slurm", "2 kernel logs"]


@pytest.mark.parametrize(
    ("named", "why"),
    [("replay:nowhere", "nowhere"), ("capture:nowhere", "nowhere"), ("what:is-this", "what")],
)
def test_what_cannot_be_asked_now_is_refused(named: str, why: str, tmp_path: Path) -> None:
    code, output = case([str(written(tmp_path, files(0, 1, 2))), "--cluster", named])
    assert code == 4
    assert why in output


@pytest.mark.parametrize(
    ("log", "booted_s", "is_kept"),
    [
        ({"truncated": False, "whole_from": 0.0}, 0.0, True),
        ({"truncated": True, "whole_from": 3_000.0}, 0.0, True),
        ({"truncated": True, "whole_from": 8_000.0}, 0.0, False),
        ({"truncated": True, "whole_from": None, "unfinished": True}, 0.0, False),
        ({"truncated": False, "whole_from": 0.0, "uncounted": 3}, 0.0, False),
        ({"truncated": False, "whole_from": 0.0}, 7_000.0, False),
    ],
)
def test_a_node_whose_log_does_not_reach_back_to_the_job_is_not_said_to_be_kept(
    log: dict[str, object], booted_s: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The job ran from 5,000 s after the first boot to 9,000 s after it."""
    first_boot, now_s = 1_772_343_400.0, 20_000.0
    now = first_boot + now_s
    boot = {"uptime_s": now_s - booted_s, "now": now}
    collectors = {
        "kernel_log": Collected(Status.READ, {"lines": [], "source": "/dev/kmsg", "cut": {}, **log}),
        "boot": Collected(Status.READ, boot),
        "neuron": Collected(Status.ABSENT),
    }
    probed = {"began": now, "seconds": 1.0}
    evidence = NodeEvidence("n1", collectors, probe=probed, asked=now - 0.1, answered=now + 1.1)
    monkeypatch.setattr(probe, "_gathered", lambda _cluster: {"n1": evidence})
    builder = CaseBuilder(jobs=[Job("77", "FAILED", "1:0", ("n1",), Span(first_boot + 5_000, first_boot + 9_000))])
    probe.read_nodes("ssh:n1", builder, ["n1"], first_boot + 9_000)
    opened = opened_case(joined("77", builder))
    assert (opened.advice.nodes["n1"] == "keep") is is_kept, builder.missing


@pytest.mark.parametrize("began", ["nan", "1e9", True, None, [1]])
def test_a_node_that_says_no_time_has_no_clock(began: object, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = NodeEvidence("n1", probe={"began": began, "seconds": 1.0})
    monkeypatch.setattr(probe, "_gathered", lambda _cluster: {"n1": evidence})
    builder = CaseBuilder()
    probe.read_nodes("ssh:n1", builder, ["n1"], None)
    assert builder.clocks == {}
    assert builder.missing[0].startswith("n1: its kernel log: ")


def test_a_node_that_slurm_has_drained_since_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"name": name, "state": state, "partitions": "gpu", "features": "", "address": "", "reason": "Kill task failed"}
        for name, state in (("gpu001", "IDLE+DRAIN"), ("gpu002", "IDLE"))
    ]
    partitions = [{"partition": "gpu", "state": "UP", "is_default": True}]
    answers = {COLLECTOR: {"nodes": nodes, "partitions": partitions}, JOBS: {"jobs": [], "job": ""}}
    collected = {name: Collected(Status.READ, value) for name, value in answers.items()}
    monkeypatch.setattr(slurm, "ask_slurm", lambda *_: collected)
    asked: list[str] = []

    def gathered(cluster: Cluster) -> dict[str, NodeEvidence]:
        asked.extend(target.name for target in cluster.targets)
        return {name: NodeEvidence(name) for name in asked}

    monkeypatch.setattr(probe, "_gathered", gathered)
    probe.read_nodes("slurm:", CaseBuilder(), ["gpu001", "gpu002"], None)
    assert asked == ["gpu001", "gpu002"]
