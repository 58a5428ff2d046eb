"""The services of a training node, and failed units, from `systemctl`; and whether munged runs with slurmd."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node, error
from clusterproof.plugins.agent.tools import command, lines
from clusterproof.plugins.evidence.host.collect_owner import daemons, slurm_confs

WANTED = (
    "slurmd",
    "slurmctld",
    "munge",
    "containerd",
    "docker",
    "kubelet",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-imex",
    "nvidia-dcgm",
    "dcgm",
    "chrony",
    "chronyd",
    "sshd",
    "ssh",
    "amazon-ssm-agent",
    "snap.amazon-ssm-agent.amazon-ssm-agent",
)
PROPERTIES = {"load": "LoadState", "active": "ActiveState", "sub": "SubState", "enabled": "UnitFileState"}
RESTARTS, SINCE = "NRestarts", "ActiveEnterTimestampMonotonic"
MAX_FAILED = 256
AUTHENTICATION = re.compile(r"(?im)^[^\S\n]*AuthType[^\S\n]*=[^\S\n]*([\w/]+)")
INCLUDE = re.compile(r"(?im)^[^\S\n]*Include[^\S\n]")
MUNGED = "munged"
MUNGE = "auth/munge"  # also where AuthType is not set


def read(node: Node) -> object:
    """The state of each wanted service, failed units, and a slurm.conf that needs munged although it does not run."""
    try:
        state = _of_systemd(node)
    except Absent as why:
        without_munge = _without_munge(node)
        if not without_munge:
            raise
        absent = {"error": "ENOENT", "text": str(why)}
        return {"services": absent, "failed": absent, "restarting": absent, "without_munge": without_munge}
    services = state["services"]
    is_active = isinstance(services, dict) and services["munge"]["active"] == "active"
    return state if is_active else {**state, "without_munge": _without_munge(node)}


def _without_munge(node: Node) -> object:
    """The slurm.conf for which a running slurmd needs munge, if no munged runs; else empty.

    A process of that name owned by neither root nor munge is inconclusive: munged may have another account, and a user
    may name a program anything.
    """
    needed_by = next((path for path, text in slurm_confs(node).items() if _needs_munge(text)), "")
    if not needed_by or not isinstance(daemons(node, ["slurmd"]).get("slurmd"), str):
        return ""
    runs = daemons(node, [MUNGED], {"munge"}).get(MUNGED)
    if runs:
        return error(runs) if isinstance(runs, OSError) else ""  # only root may know which program it is
    if any(node.text(f"/proc/{pid}/comm", absent="") == MUNGED for pid in node.pids()):
        return {"error": "EPERM", "text": f"a process called {MUNGED} runs as neither root nor munge"}
    return needed_by


def _needs_munge(slurm_conf: str) -> bool:
    """Whether this slurm.conf selects munge, or keeps Slurm's default and no other file could change it."""
    named = AUTHENTICATION.search(slurm_conf)
    return named[1] == MUNGE if named else not INCLUDE.search(slurm_conf)


def _of_systemd(node: Node) -> dict[str, object]:
    """What systemctl says of services and failed units. Raises Absent, Denied, Broke."""
    properties = ",".join((*PROPERTIES.values(), RESTARTS, SINCE))
    units = [f"{name}.service" for name in WANTED]
    shown = _systemctl(node, "show", "--no-pager", f"--property={properties}", *units)
    listed = lines(
        node, "systemctl", "list-units", "--state=failed,auto-restart", "--plain", "--no-legend", "--no-pager"
    )
    rows = [line.split() for line in listed if line.strip()]
    failed = sorted((row[0] for row in rows if "failed" in row[2:3]), key=_is_of_users)
    restarting = sorted((row[0] for row in rows if "auto-restart" in row[3:4]), key=_is_of_users)
    others = [*failed[MAX_FAILED:], *restarting[MAX_FAILED:]]
    states = _states(shown, float(node.read("/proc/uptime").split()[0]))
    return {
        "services": states,
        "failed": failed[:MAX_FAILED],
        "restarting": restarting[:MAX_FAILED],
        "left_out": sum(not _is_of_users(unit) for unit in others),
    }


def _is_of_users(unit: str) -> bool:
    """Whether users can make any number of such units fail: sessions, crashes and containers."""
    return "@" in unit or unit.endswith((".scope", ".slice")) or unit.startswith("run-")


def _systemctl(node: Node, *arguments: str) -> str:
    """What systemctl prints. Raises Absent, Denied, Broke."""
    answer = command(node, "systemctl", *arguments)
    output = str(answer["output"])
    if answer["exit"] == 0:
        return output
    if "not been booted with systemd" in output:
        raise Absent("systemd does not run here")
    if "ccess denied" in output or "ermission denied" in output:
        raise Denied(output.strip()[:200])
    raise Broke(f"{answer['command']} exited with {answer['exit']}: {output.strip()[:200]}")


def _states(shown: str, now_s: float) -> dict[str, object]:
    """The wanted services: `systemctl show` prints a block of KEY=value lines for each, in the order asked.

    Raises Broke where it prints more or fewer.
    """
    units = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    if len(units) != len(WANTED):
        raise Broke(f"systemctl show printed {len(units)} units; expected {len(WANTED)}")
    return {name: _state(unit, now_s) for name, unit in zip(WANTED, units)}


def _state(unit: dict[str, str], now_s: float) -> dict[str, object]:
    state: dict[str, object] = {key: unit.get(word, "") for key, word in PROPERTIES.items()}
    restarts, since = (
        int(text) if text.isdecimal() else None for text in (unit.get(RESTARTS, ""), unit.get(SINCE, ""))
    )
    return {**state, "restarts": restarts, "active_s": round(now_s - since / 1e6, 1) if since else None}
