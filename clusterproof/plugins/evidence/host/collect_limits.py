"""Resource limits of logins and of the daemons that start jobs: getrlimit and /proc/PID/limits."""

from __future__ import annotations

import os
import resource

from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.host.collect_owner import control_groups, daemons

LOGINS = "sshd"  # what starts logins
DAEMONS = ("slurmd", "containerd", LOGINS)
AGENT = ("amazon-ssm-agen", "ssm-")  # SSM's, whose own limits no job inherits; the kernel cuts names
SETTING = ("sshd", "sshd-session", "login", "su", "sudo", "runuser", "slurmstepd")  # what sets those of a login
CONFIGURED = "/etc/security/limits.conf"
FURTHER = "/etc/security/limits.d"
NO_LIMIT = 2**62  # cgroup v1 shows no limit as a number just under 2^63
LIMITS = {
    "memlock": ("Max locked memory", resource.RLIMIT_MEMLOCK),
    "nofile": ("Max open files", resource.RLIMIT_NOFILE),
    "nproc": ("Max processes", resource.RLIMIT_NPROC),
    "stack": ("Max stack size", resource.RLIMIT_STACK),
}
IN_KIB = ("memlock", "stack")  # in limits.conf


def read(node: Node) -> object:
    """The soft limits, memory in bytes; null is unlimited. No login if this is none and sshd does not run."""
    limits: dict[str, object] = {}
    for name, pid in daemons(node, DAEMONS).items():
        if isinstance(pid, OSError):
            limits[name] = error(pid)
            continue
        node.at(f"/proc/{pid}/limits of {name}")
        limits[name] = _of_process(node, pid)
    of_sshd = limits.pop(LOGINS, None)
    if not _is_of_agent():
        return {"login": {name: _own(number) for name, (_, number) in LIMITS.items()}, "daemons": limits}
    login = {**of_sshd, **_configured(node)} if isinstance(of_sshd, dict) else None
    return {"login": login, "daemons": limits}


def _is_of_agent() -> bool:
    """Whether SSM's agent started this process, without a program in between that sets limits."""
    pid, local = os.getppid(), Node()
    while pid > 1:
        try:
            name, _, rest = local.read(f"/proc/{pid}/stat").partition("(")[2].rpartition(") ")
        except OSError:
            break
        if name in SETTING:
            return False
        if name.startswith(AGENT):
            return True
        pid = int(rest.split()[1])
    return False


def _configured(node: Node) -> dict[str, object]:
    """PAM's limits for every user that logs in; an error if unreadable."""
    limits: dict[str, object] = {}
    for path in (CONFIGURED, *(f"{FURTHER}/{name}" for name in node.names(FURTHER) if name.endswith(".conf"))):
        text = node.text(path, absent="")
        if isinstance(text, dict):
            return dict(text)
        for line in text.splitlines():
            user, kind, name, value, *_ = (*line.partition("#")[0].split(), "", "", "", "")
            if user == "*" and kind in ("soft", "-") and name in LIMITS:
                if value.isdecimal():
                    limits[name] = int(value) * (1024 if name in IN_KIB else 1)
                elif value in ("unlimited", "infinity", "-1"):
                    limits[name] = None
    return limits


def _own(number: int) -> int | None:
    soft = resource.getrlimit(number)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _of_process(node: Node, pid: str) -> dict[str, object]:
    path = f"/proc/{pid}/limits"
    try:
        lines = node.read(path).splitlines()
    except OSError as problem:
        return dict(error(problem))
    return {
        **{name: _soft(lines, label, path) for name, (label, _) in LIMITS.items()},
        "memory": _memory_max(node, pid),
        "cpus": str(node.text(f"/proc/{pid}/status", absent=""))
        .partition("Cpus_allowed_list:")[2]
        .split("\n")[0]
        .strip(),
    }


def _memory_max(node: Node, pid: str) -> object:
    """The lowest memory limit in bytes of its control group and those above; null is none."""
    least = []
    try:
        for is_first, group in control_groups(node, pid, "memory"):
            limit = node.text(f"{group}/{'memory.limit_in_bytes' if is_first else 'memory.max'}", absent="max")
            if isinstance(limit, dict):
                return limit
            if limit.isdecimal() and int(limit) < NO_LIMIT:
                least.append(int(limit))
    except FileNotFoundError:
        pass  # a kernel without control groups, or it ended meanwhile
    except OSError as problem:
        return error(problem)
    return min(least, default=None)


def _soft(lines: list[str], label: str, path: str) -> object:
    soft = next((line[len(label) :].split()[:1] for line in lines if line.startswith(label)), [])
    if soft == ["unlimited"]:
        return None
    if soft and soft[0].isdecimal():
        return int(soft[0])
    return {"error": "EINVAL", "text": f"{path}: no soft limit of {label.lower()}"}
