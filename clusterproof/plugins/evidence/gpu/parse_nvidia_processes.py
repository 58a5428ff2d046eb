"""The processes that nvidia-smi names: in its text and XML one value after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.evidence.gpu.parse_nvidia_words import error, whole

MAX_PROCESSES = 256  # of one GPU, as in the probe
_KEYS = {
    "process id": "pid",
    "process id/type": "type",
    "process id/name": "name",
    "process id/used gpu memory": "memory",
    "type": "type",
    "name": "name",
    "used gpu memory": "memory",
    "process_info/pid": "pid",
    "process_info/type": "type",
    "process_info/process_name": "name",
    "process_info/used_memory": "memory",
}


def processes(pairs: Iterable[tuple[str, str]]) -> object:
    """The compute processes of a GPU, an error, or None where its output does not mention processes."""
    data: list[dict[str, str]] = []
    is_listed = False
    for path, word in pairs:
        if path == "processes":  # `Processes : None`, or an error in the place of the list
            if error(word):
                return error(word)
            is_listed = is_listed or word.strip().lower() in ("none", "")
        if not path.startswith("processes/"):
            continue
        key = _KEYS.get(path.removeprefix("processes/"))
        if key == "pid":
            data.append({})
        if key and data:
            data[-1][key] = word
    if not is_listed and not data:
        return None
    return [process(one.get("pid", ""), one.get("name", ""), one.get("memory", "")) for one in data if _computes(one)]


def process(pid: str, name: str, memory: str) -> dict[str, object]:
    """A process as the probe reports it: by its program's name; nvidia-smi does not know its control group."""
    program = re.split(r"\s", name.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    is_known = error(name) is None
    return {
        "pid": whole(pid) or 0,
        "memory_mib": whole(memory) if memory and not error(memory) else None,
        "name": program[:100] if is_known else "",
        "cgroup": "",
    }


def _computes(one: dict[str, str]) -> bool:
    """Whether a process uses the GPU for more than to show a picture: type C, C+G, M+C; not G."""
    return "c" in one.get("type", "C").lower()
