"""The CPUs: /sys/devices/system/cpu, /proc/cpuinfo, and two reads of /proc/stat."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import Node, error

BETWEEN_LOOKS_S = 0.4
CPU = "/sys/devices/system/cpu"
POLICY = {
    "driver": "scaling_driver",
    "governor": "scaling_governor",
    "max_khz": "cpuinfo_max_freq",
    "limit_khz": "scaling_max_freq",
}
MAX_KINDS = 16
MAX_STATES = 16
TIMES = 8  # user, nice, system, idle, iowait, irq, softirq, steal


def read(node: Node) -> object:
    """Number and model of CPUs, frequencies, idle states, and their load in between."""
    first, since = _times(node), time.monotonic()
    cpus = {
        "machine": os.uname().machine,
        "online": node.text(f"{CPU}/online"),
        "present": node.text(f"{CPU}/present"),
        "smt": node.text(f"{CPU}/smt/control", absent=""),
        "info": _info(node),
        "policies": _policies(node),
        "idle_states": _idle_states(node),
    }
    time.sleep(max(0.0, BETWEEN_LOOKS_S - (time.monotonic() - since)))
    return {**cpus, "times": [first, _times(node)]}


def _info(node: Node) -> object:
    """Values of /proc/cpuinfo; empty or 0 if missing."""
    try:
        blocks = [_rows(block) for block in node.read("/proc/cpuinfo").split("\n\n")]
    except OSError as problem:
        return error(problem)
    part = [blocks[0].get(key, "") for key in ("CPU implementer", "CPU part")]  # arm64 has no names
    return {
        "model": blocks[0].get("model name", "") or " ".join(part).strip(),
        "microcode": sorted({block["microcode"] for block in blocks if "microcode" in block})[:MAX_KINDS],
        "sockets": len({block["physical id"] for block in blocks if "physical id" in block}),
        "cores": len({(block.get("physical id"), block["core id"]) for block in blocks if "core id" in block}),
    }


def _rows(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip()[:200] for key, _, value in pairs}


def _policies(node: Node) -> list[dict[str, object]]:
    """The frequency policies of all CPUs; of equal ones the first, with their number."""
    kinds: list[dict[str, object]] = []
    for name in node.names(f"{CPU}/cpufreq"):
        if not name.startswith("policy"):
            continue
        policy = {key: _number_or_text(node.text(f"{CPU}/cpufreq/{name}/{file}")) for key, file in POLICY.items()}
        same = [kind for kind in kinds if all(kind[key] == value for key, value in policy.items())]
        if same:
            same[0]["count"] += 1  # type: ignore[operator]
        elif len(kinds) < MAX_KINDS:
            kinds.append({**policy, "first": name, "count": 1})
    return kinds


def _number_or_text(text: object) -> object:
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _idle_states(node: Node) -> list[dict[str, object]]:
    """The idle states of CPU 0, shallowest first; none where no driver offers any."""
    folder = f"{CPU}/cpu0/cpuidle"
    names = [name for name in node.names(folder) if name.startswith("state")]
    return [
        {
            "name": node.text(f"{folder}/{name}/name"),
            "latency_us": _number_or_text(node.text(f"{folder}/{name}/latency")),
            "disabled": node.text(f"{folder}/{name}/disable", absent="0") != "0",
        }
        for name in names[:MAX_STATES]
    ]


def _times(node: Node) -> object:
    """The first line of /proc/stat: the time of all CPUs by state, in ticks since boot."""
    try:
        ticks = node.read("/proc/stat").partition("\n")[0].split()
        return [int(word) for word in ticks[1 : TIMES + 1]]
    except OSError as problem:
        return error(problem)
    except ValueError:
        return {"error": "EINVAL", "text": "/proc/stat: no numbers"}
