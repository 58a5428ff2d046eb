"""Environment variables of jobs for NCCL, libfabric and CUDA: the files that set them, parsed and never run."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.host.collect_owner import SLURM
from clusterproof.plugins.evidence.software.collect_assignments import MAX_CHARACTERS, exported, plain, printed

WANTED = re.compile(r"(?:NCCL|FI|OFI|CUDA)_\w+|LD_LIBRARY_PATH|LD_PRELOAD")
PROFILES = "/etc/profile.d"
TASK_PROLOG = re.compile(r"^[^\S\n]*TaskProlog[^\S\n]*=[^\S\n]*(/\S+)", re.IGNORECASE | re.MULTILINE)
MAX_PROFILES = 64
MAX_VARIABLES = 128
MAX_VALUE = 2000


def read(node: Node) -> object:
    """The variables by file and line, the files that were read, and those that could not be read."""
    profiles = [name for name in node.names(PROFILES) if name.endswith(".sh")]
    files = {"/etc/environment": plain}
    files.update({f"{PROFILES}/{name}": exported for name in profiles[:MAX_PROFILES]})
    files["/etc/nccl.conf"] = plain
    unread: dict[str, object] = {}
    if len(profiles) > MAX_PROFILES:
        unread[PROFILES] = {"error": "E2BIG", "text": f"{len(profiles)} files; expected at most {MAX_PROFILES}"}
    files.update(dict.fromkeys(_task_prologs(node, unread), printed))
    variables: list[dict[str, object]] = []
    seen: list[str] = []
    for path, kind in files.items():
        text = _text(node, path, unread, must_exist=kind is printed)
        if text is None:
            continue
        if len(text) > MAX_CHARACTERS:
            unread[path] = {"error": "E2BIG", "text": f"{len(text)} characters; expected at most {MAX_CHARACTERS}"}
        seen.append(path)
        variables += [
            {"name": name, "value": value[:MAX_VALUE], "file": path, "line": line, "conditional": is_conditional}
            for line, name, value, is_conditional in kind(text)
            if WANTED.fullmatch(name)
        ]
    for later in variables[MAX_VARIABLES:]:
        unread[str(later["file"])] = {"error": "E2BIG", "text": f"more than {MAX_VARIABLES} variables before its end"}
    return {"variables": variables[:MAX_VARIABLES], "files": seen, "unread": unread}


def _task_prologs(node: Node, unread: dict[str, object]) -> list[str]:
    """The TaskProlog that slurm.conf names, wherever this node has slurm.conf."""
    texts = (_text(node, f"{folder}/slurm.conf", unread) for folder in SLURM)
    return sorted({path for text in texts if text for path in TASK_PROLOG.findall(text)[-1:]})


def _text(node: Node, path: str, unread: dict[str, object], must_exist: bool = False) -> str | None:
    node.at(path)
    try:
        return node.read(path)
    except FileNotFoundError as problem:
        if must_exist:
            unread[path] = error(problem)
    except OSError as problem:
        unread[path] = error(problem)
    return None
