"""Output lines, Slurm records and kernel logs in the formats of their writers."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from random import Random

from clusterproof.plugins.core.nodeset import fold
from tests.case.stories import LabelledCase

HEALTHY = (  # of healthy nodes: programs that ended, unused ports
    "NVRM: Xid (PCI:0000:07:00): 43, pid=101, name=python, Ch 00000010",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "systemd-journald[512]: Sent WATCHDOG=1 notification.",
    "EXT4-fs (nvme0n1p1): re-mounted. Opts: (null)",
    "cgroup: fork rejected by pids controller in /user.slice/user-1000.slice",
)
BOOTED_S = 500_000.0
RAN_S = 7200.0


def at(case: LabelledCase, seconds: float) -> datetime:
    """The time of a moment in the story."""
    return datetime.fromtimestamp(case.circumstance.started + seconds, timezone.utc)


def behind_s(case: LabelledCase, node: int) -> float:
    """How far a node's clock is from the others'."""
    return (-0.9, 0.9, 0.4, -0.5)[node % 4] if case.circumstance.kept == "clocks apart" else 0.0


def stamped(case: LabelledCase, seconds: float, rank: int) -> str:
    """The timestamp at the beginning of an output line."""
    when = at(case, seconds + behind_s(case, rank // 2 if rank >= 0 else 0))
    form = {
        "logging": f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d} INFO ",
        "iso": f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}Z ",
        "glog": f"[E{when:%m%d %H:%M:%S}.{when.microsecond:06d} 4120 train.cpp:12] ",
    }
    return form.get(case.circumstance.stamps, "")


def record_of_slurm(case: LabelledCase, here: Path, nodes: tuple[str, ...]) -> None:
    """Slurm's record of the job; none if Kubernetes ran it."""
    if case.story.data.get("pods") or case.circumstance.kept == "no record":
        return
    end = (
        case.story.data.get("end") or f"FAILED 1:0 +{630 if 'watchdog' in str(case.story.data.get('cascade')) else 20}"
    )
    state, code, seconds = end.split()
    state = state.replace("+", " ")
    started, ended = (f"{at(case, when):%Y-%m-%dT%H:%M:%S}" for when in (-RAN_S, float(seconds)))
    plain = state.split(" ")[0]
    if case.circumstance.record == "scontrol":
        text = (
            f"JobId=77 JobName=train\n   UserId=u(1000) GroupId=u(1000) MCS_label=N/A\n   JobState={plain} Reason=None "
            f"Dependency=(null)\n   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}\n   "
            f"StartTime={started} EndTime={ended} Deadline=N/A\n   NodeList={fold(nodes)}\n"
        )
        (here / "scontrol-job.txt").write_text(text)
    elif case.circumstance.record == "sacct":
        rows = (("77", state), ("77.batch", "CANCELLED"), ("77.0", plain))
        lines = [f"{number}|{status}|{code}|{started}|{ended}|{fold(nodes)}" for number, status in rows]
        (here / "sacct.txt").write_text("\n".join(["JobID|State|ExitCode|Start|End|NodeList", *lines]) + "\n")
    else:
        widths = (12, 24, 8, 19, 19, 60)
        names = ("JobID", "State", "ExitCode", "Start", "End", "NodeList")
        head = " ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        row = ("77", state, code, started, ended, fold(nodes))
        shown = " ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        (here / "sacct.txt").write_text(f"{head}\n{' '.join('-' * width for width in widths)}\n{shown}\n")


def logs_of_nodes(case: LabelledCase, here: Path, chance: Random) -> None:
    """The kernel logs of a story's nodes, and of some without events."""
    if case.circumstance.kept == "no kernel log":
        return
    lines: dict[str, list[tuple[float, str]]] = {}
    for text in case.story.data.get("kernel", ()):
        node, seconds, message = text.split(" ", 2)
        when = float(seconds) + behind_s(case, int(node[1:]) - 1)
        lines.setdefault(case.node(node), []).append((when, message))
    for node in chance.sample(("n1", "n2", "n3", "n4"), 2) if lines else ():
        messages = lines.setdefault(case.node(node), [])
        messages += [(-chance.uniform(100, 90_000), chance.choice(HEALTHY)) for _ in range(3)]
    for node, messages in lines.items():
        kept = [_kernel(case, seconds, node, message) for seconds, message in sorted(messages)]
        (here / f"{node}-dmesg.txt").write_text("\n".join(kept) + "\n")
    for name, key in (("dmesg", "kernel_undated"), ("messages", "messages")):
        for text in case.story.data.get(key, ()):
            node, message = text.split(" ", 1)
            seconds, _, rest = message.partition(" ") if key == "messages" else ("+0", "", message)
            head = f"[{BOOTED_S:.6f}] " if name == "dmesg" else f"{at(case, float(seconds)):%b %e %H:%M:%S} x kernel: "
            (here / f"{case.node(node)}-{name}.txt").write_text(f"{head}{rest}\n")


def _kernel(case: LabelledCase, seconds: float, node: str, message: str) -> str:
    when = at(case, seconds)
    form = {
        "iso": f"{when:%Y-%m-%dT%H:%M:%S},{when.microsecond:06d}+00:00 {message}",
        "ctime": f"[{when:%a %b %e %H:%M:%S %Y}] {message}",
        "syslog": f"{when:%b %e %H:%M:%S} {node} kernel: {message}",
        "journal": f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}+0000 {node} kernel: {message}",
    }
    return form[case.circumstance.kernel]
