"""Which collectors there are, and where each lies: `evidence/KIND/collect.py` or `evidence/KIND/collect_NAME.py`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

EVIDENCE = os.path.realpath(f"{__file__}/../../evidence")
PACKAGE = "clusterproof.plugins.evidence"


@cache
def files() -> Mapping[str, str]:
    """The files that kinds of evidence are collected with, by the name that each has as a collector."""
    found = {}
    for kind in os.listdir(EVIDENCE):
        if "." not in kind and kind != "__pycache__":
            for file in os.listdir(f"{EVIDENCE}/{kind}"):
                if file == "collect.py":
                    found[kind] = f"{EVIDENCE}/{kind}/{file}"
                elif file.startswith("collect_") and file.endswith(".py"):
                    found[file[len("collect_") : -len(".py")]] = f"{EVIDENCE}/{kind}/{file}"
    return found


def module_of(name: str) -> str:
    """The module of a collector. Raises ValueError where there is none of that name."""
    file = files().get(name)
    if file is None:
        raise ValueError(f"{name} is not a collector of the probe")
    kind, module = file[: -len(".py")].split("/")[-2:]
    return f"{PACKAGE}.{kind}.{module}"


@cache
def collector_names() -> tuple[str, ...]:
    """The collectors there are: those of the files that define `read(node)`."""
    return tuple(sorted(name for name, file in files().items() if _is_collector(file)))


def _is_collector(file: str) -> bool:
    with open(file, encoding="utf-8") as opened:
        return "\ndef read(node: Node)" in opened.read()
