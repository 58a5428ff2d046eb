"""How the kubelet assigns CPUs and memory to containers: its flags, configuration files, and state files."""

from __future__ import annotations

import json
import os
import re
import time

from clusterproof.plugins.agent.process_group import stat_fields
from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.evidence.host.collect_owner import OF_THE_HOST, program

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

FLAGS = {
    "cpuManagerPolicy": "cpu-manager-policy",
    "memoryManagerPolicy": "memory-manager-policy",
    "topologyManagerPolicy": "topology-manager-policy",
    "topologyManagerScope": "topology-manager-scope",
}
STATES = {"cpuManagerPolicy": "cpu_manager_state", "memoryManagerPolicy": "memory_manager_state"}
KIND = "KubeletConfiguration"
YAML = re.compile(r"^(\w+):[ \t]+[\"']?([\w-]+)", re.MULTILINE)
PROGRAM = re.compile(r"kube|hyperkube")  # one program may contain all of Kubernetes
SERVICE = re.compile(r":/[\w.-]+\.slice/[\w.@-]*kubelet[\w.@-]*\.service$", re.MULTILINE)
STARTED = 21  # index in the fields of /proc/PID/stat: start time in ticks since boot


def read(node: Node) -> object:
    """The policies of the kubelet that root runs on the host. Raises Absent if none runs, and OSError."""
    for pid in node.pids():
        try:
            is_kubelet = node.read(f"/proc/{pid}/comm").strip() == "kubelet"
            is_kubelet = is_kubelet and bool(OF_THE_HOST.search(node.read(f"/proc/{pid}/status")))
            is_kubelet = is_kubelet and _is_believed(node, pid)
        except OSError:
            continue  # it ended meanwhile
        if is_kubelet:
            return of_process(node, pid)
    raise Absent("no kubelet runs here")


def _is_believed(node: Node, pid: str) -> bool:
    """Whether it is a kubelet, by its program or else by its service's control group, which no user can enter."""
    runs = program(node, pid)
    return bool(PROGRAM.match(runs)) if runs else bool(SERVICE.search(node.read(f"/proc/{pid}/cgroup")))


def of_process(node: Node, pid: str) -> object:
    """The configured policies, the configuration files that are newer than the process, and the policies in force.

    Raises OSError.
    """
    flags = _flags(node.read(f"/proc/{pid}/cmdline").split("\0")[1:])
    ticks = int(stat_fields(node.read(f"/proc/{pid}/stat"))[STARTED])
    started = time.time() - float(node.read("/proc/uptime").split()[0]) + ticks / os.sysconf("SC_CLK_TCK")
    folder = flags.get("config-dir", "")
    files = [flags["config"]] if "config" in flags else []
    files += [f"{folder}/{name}" for name in (node.names(folder) if folder else ()) if name.endswith(".conf")]
    configured: dict[str, Any] = {}
    changed = []
    for path in files:
        text = node.text(path)
        if isinstance(text, dict):
            configured = text
            break
        configured.update(_settings(text, path))
        if os.stat(node.path(path)).st_mtime > started + 1:
            changed.append(path)
    else:
        configured.update({key: flags[flag] for key, flag in FLAGS.items() if flags.get(flag)})
    root = flags.get("root-dir", "/var/lib/kubelet")
    states = {key: _state(node.text(f"{root}/{name}", absent="{}")) for key, name in STATES.items()}
    return {"configured": configured, "changed": changed, "in_force": states}


def _flags(argv: list[str]) -> dict[str, str]:
    flags = {}
    for word, following in zip(argv, [*argv[1:], ""]):
        name, is_whole, value = word.lstrip("-").partition("=")
        if word[:1] == "-":
            flags[name] = value if is_whole else following
    return flags


def _settings(text: str, path: str) -> dict[str, str]:
    """The policies set in a configuration file, JSON or YAML. Raises Broke if it is no kubelet configuration."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = dict(YAML.findall(text))
    if not isinstance(settings, dict) or settings.get("kind") != KIND:
        raise Broke(f"{path} is not understood; expected kind: {KIND}")
    return {key: str(settings[key]) for key in FLAGS if settings.get(key)}


def _state(text: str | dict[str, str]) -> object:
    return text if isinstance(text, dict) else json.loads(text).get("policyName")
