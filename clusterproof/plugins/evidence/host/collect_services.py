"""The services of a training node, and what systemd calls failed: `systemctl`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node
from clusterproof.plugins.agent.tools import command, lines

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


def read(node: Node) -> object:
    """The state of each wanted service, and the names of units that failed or that systemd is to start once more."""
    asked = ",".join((*PROPERTIES.values(), RESTARTS, SINCE))
    units = [f"{name}.service" for name in WANTED]
    shown = _systemctl(node, "show", "--no-pager", f"--property={asked}", *units)
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
    """Whether users may have as many units of its kind fail as they like: of sessions, crashes and containers."""
    return "@" in unit or unit.endswith((".scope", ".slice")) or unit.startswith("run-")


def _systemctl(node: Node, *arguments: str) -> str:
    """What systemctl prints. Raises Absent, Denied, Broke."""
    data = command(node, "systemctl", *arguments)
    output = str(data["output"])
    if data["exit"] == 0:
        return output
    if "not been booted with systemd" in output:
        raise Absent("systemd does not run here")
    if "ccess denied" in output or "ermission denied" in output:
        raise Denied(output.strip()[:200])
    raise Broke(f"{data['command']} exited with {data['exit']}: {output.strip()[:200]}")


def _states(shown: str, now_s: float) -> dict[str, object]:
    """The wanted services: `systemctl show` prints a block of KEY=value lines for each, in the order asked.

    Raises Broke where it prints more or fewer.
    """
    units = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    if len(units) != len(WANTED):
        raise Broke(f"systemctl show printed {len(units)} units; expected {len(WANTED)}")
    return {name: _state(unit, now_s) for name, unit in zip(WANTED, units)}


def _state(unit: dict[str, str], now_s: float) -> dict[str, object]:
    data: dict[str, object] = {key: unit.get(word, "") for key, word in PROPERTIES.items()}
    restarts, since = (
        int(text) if text.isdecimal() else None for text in (unit.get(RESTARTS, ""), unit.get(SINCE, ""))
    )
    return {**data, "restarts": restarts, "active_s": round(now_s - since / 1e6, 1) if since else None}
