"""The services of a training node, and what systemd calls failed: `systemctl`."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Absent, Broke, Denied, Node
from clusterproof.plugins.probe.tools import command

WANTED = (
    "slurmd",
    "munge",
    "containerd",
    "docker",
    "kubelet",
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-dcgm",
    "dcgm",
    "chrony",
    "chronyd",
    "sshd",
    "ssh",
)
PROPERTIES = {"load": "LoadState", "active": "ActiveState", "sub": "SubState", "enabled": "UnitFileState"}
MAX_FAILED = 64


def read(node: Node) -> object:
    """The state of each wanted service, and the names of failed units."""
    asked = ",".join(PROPERTIES.values())
    units = [f"{name}.service" for name in WANTED]
    shown = _systemctl(node, "show", "--no-pager", f"--property={asked}", *units)
    failed = _systemctl(node, "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")
    names = [line.split()[0] for line in failed.splitlines() if line.strip()]
    return {"services": _states(shown), "failed": names[:MAX_FAILED]}


def _systemctl(node: Node, *arguments: str) -> str:
    """What systemctl prints. Raises Absent, Denied, Broke."""
    told = command(node, "systemctl", *arguments)
    output = str(told["output"])
    if told["exit"] == 0:
        return output
    if "not been booted with systemd" in output:
        raise Absent("systemd does not run here")
    if "ccess denied" in output or "ermission denied" in output:
        raise Denied(output.strip()[:200])
    raise Broke(f"{told['command']} exited with {told['exit']}: {output.strip()[:200]}")


def _states(shown: str) -> dict[str, object]:
    """The wanted services: `systemctl show` tells a block of KEY=value lines for each, in the order asked.

    Raises Broke where it told of more or fewer.
    """
    units = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    if len(units) != len(WANTED):
        raise Broke(f"systemctl show told of {len(units)} units; expected {len(WANTED)}")
    return {name: {key: unit.get(word, "") for key, word in PROPERTIES.items()} for name, unit in zip(WANTED, units)}
