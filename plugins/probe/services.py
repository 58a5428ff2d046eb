"""The services of a training node, and what systemd calls failed: `systemctl`."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Absent, Broke, Denied, Node
from clusterproof.plugins.probe.tools import command

WANTED = (
    "slurmd munge containerd docker nvidia-fabricmanager nvidia-persistenced nvidia-dcgm dcgm chrony chronyd sshd ssh"
).split()
PROPERTIES = {"load": "LoadState", "active": "ActiveState", "sub": "SubState", "enabled": "UnitFileState"}
MAX_FAILED = 64


def read(node: Node) -> object:
    """The state of each wanted service, and the names of failed units."""
    asked = ",".join(["Id", "Names", *PROPERTIES.values()])
    shown = _systemctl(node, "show", "--no-pager", f"--property={asked}", *(f"{name}.service" for name in WANTED))
    failed = _systemctl(node, "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")
    units = [line.split()[0] for line in failed.splitlines() if line.strip()]
    return {"services": _states(shown), "failed": units[:MAX_FAILED]}


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
    """The wanted services out of `systemctl show`: one block of KEY=value lines for each, by any of its names."""
    states: dict[str, object] = {}
    for block in shown.split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        state = {key: unit.get(name, "") for key, name in PROPERTIES.items()}
        for name in f"{unit.get('Id', '')} {unit.get('Names', '')}".split():
            service = name.rpartition(".service")[0]
            if service in WANTED:
                states.setdefault(service, state)
    return states
