"""Composes a golden manifest from known good machines: common values, and what was not reported, as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.host.collect_services import WANTED as SERVICES
from clusterproof.plugins.evidence.network.collect_rdma import MODULES
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software import version
from clusterproof.plugins.evidence.software.collect_versions import LOADED as LIBRARY_NAMES
from clusterproof.plugins.manifest import (
    ABSENT,
    COMPONENTS,
    INSTALLED,
    LOADED,
    NOT_LOADED,
    SIZES,
    WHOLE,
    size_of,
    state_of_library,
    state_of_module,
    states_of_service,
    unattached,
    version_of,
)

RUNTIMES = ("containerd", "docker", "enroot", "pyxis")  # an image with an additional one is a different image
UNWANTED_MODULES = ("nouveau",)  # it claims the GPUs before NVIDIA's driver can
NOT_OF_IMAGE = ("lustre",)  # loaded by mounts, which are not part of the image
ALIASES = {"chronyd": "chrony", "sshd": "ssh"}  # one service with two names, where both are installed
DIFFER_WITH_ROOM = ("memory_gib", "root_gib", "dev_shm_gib")  # more is no fault
OF_MEMORY = ("memory_gib", "dev_shm_gib")  # how much of it a kernel keeps for itself differs, even from boot to boot
HEAD = """\
# Golden manifest of a machine image: clusterproof check local -m ami --policy THIS_FILE
# It is a policy (docs/policy.md), so thresholds, exceptions and mounts of yours may stand here as well. What each rule
# means is in docs/images.md. It asks for just what the machine has: widen what may change, strike what does not matter.
"""
ABOUT = {
    "versions": """\
# "== 12.9" holds for 12.9.1 too: only the numbers given are compared. Also ">= 1.43", "1.43 to 1.50", "!= 2.27"
# (denied), several with commas, and "absent" (denied altogether).""",
    "modules": """\
# "loaded", "installed" (for the kernel that runs), "not loaded" or "absent".""",
    "libraries": """\
# "whole" (found, not empty, no link that leads nowhere) or "absent".""",
    "services": """\
# "active", "inactive", "enabled", "disabled", "static", "installed", several with commas; or "absent".""",
    "sizes": """\
# Of the instance type above; on another they are not applicable.""",
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
MAX_REASON = 160  # characters of the reason for an omission


@dataclass(frozen=True, slots=True)
class Manifest:
    """The rows of a manifest by table, each a rule by name; `unknown` are omitted names, by reason."""

    made_of: tuple[str, ...]
    instance_type: str
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown: dict[str, dict[str, list[str]]] = field(default_factory=dict)


def manifest_of(nodes: Sequence[Node]) -> Manifest:
    """The manifest of at least one node that answered."""
    types = {node.type_name for node in nodes}
    made = Manifest(tuple(node.name for node in nodes), types.pop() if len(types) == 1 else "")
    _fill(made, "versions", COMPONENTS, nodes, version_value, version_rule)
    _fill(made, "modules", MODULES, nodes, module_value, module_rule)
    _fill(made, "libraries", LIBRARY_NAMES, nodes, library_value, one_rule)
    _fill(made, "services", SERVICES, nodes, service_value, one_rule)
    if made.instance_type:
        _fill(made, "sizes", SIZES, nodes, lambda node, name: str(size_of(node, name)), size_rule)
    else:
        made.unknown["sizes"] = {"the nodes are not of one known instance type": list(SIZES)}
    return made


def _fill(
    made: Manifest,
    table: str,
    names: Iterable[str],
    nodes: Sequence[Node],
    value_of: Callable[[Node, str], str],
    rule: Callable[[str, list[str]], str],
) -> None:
    """Fill one table; a name with an empty rule is omitted silently."""
    rows: dict[str, str] = {}
    unknown: dict[str, list[str]] = {}
    for name in names:
        try:
            composed = rule(name, [value_of(node, name) for node in nodes])
        except (Incomplete, NotApplicable, ValueError) as why:
            unknown.setdefault(str(why), []).append(name)
            continue
        rows |= {name: composed} if composed else {}
    made.tables[table] = rows
    made.unknown[table] = unknown


def version_value(node: Node, name: str) -> str:
    """A component's version, or `absent`. Raises Incomplete, NotApplicable."""
    version = version_of(node, name)
    if version is None and (why := unattached(node, name)):
        raise NotApplicable(why)
    return version or ABSENT


def module_value(node: Node, name: str) -> str:
    """A module's state; reports if that requires its device. Raises Incomplete, NotApplicable."""
    state = state_of_module(node, name)
    if state != LOADED and (why := unattached(node, name)) and state != INSTALLED:
        raise NotApplicable(why)
    return state


def library_value(node: Node, name: str) -> str:
    """A library's state. Raises Incomplete, and NotApplicable if it is broken: no rule may require that."""
    state = state_of_library(node, name)
    if state not in (WHOLE, ABSENT):
        raise NotApplicable(f"{state} on {node.name}")
    return state


def service_value(node: Node, name: str) -> str:
    """What systemd reports for a service; `absent` for its second name. Raises Incomplete, NotApplicable."""
    states = states_of_service(node, name)
    if name in ALIASES and states_of_service(node, ALIASES[name]) == states:
        return ABSENT
    if states[0] not in ("active", "inactive", ABSENT):
        raise NotApplicable(f"{states[0]} on {node.name}")
    why = unattached(node, name) if states[0] == "inactive" else ""
    return ", ".join([INSTALLED, *states[1:]] if why else states)


def version_rule(name: str, values: list[str]) -> str:
    """`== X`, a range if the nodes differ, or `absent`; empty for what most images lack."""
    if ABSENT in values:
        return ABSENT if set(values) == {ABSENT} and name in RUNTIMES else _common(values, ABSENT)
    if len(set(values)) == 1:
        version.rules(f"== {values[0]}")
        return f"== {values[0]}"
    ordered = sorted(set(values), key=lambda value: (version.parse(value).numbers, version.parse(value).revision))
    return f"{ordered[0]} to {ordered[-1]}"


def module_rule(name: str, values: list[str]) -> str:
    """The state that the image must have for a module."""
    if name in UNWANTED_MODULES:
        return "" if LOADED in values else NOT_LOADED
    if ABSENT in values:
        return _common(values, ABSENT)
    return LOADED if set(values) == {LOADED} and name not in NOT_OF_IMAGE else INSTALLED


def one_rule(_name: str, values: list[str]) -> str:
    """The value common to all nodes; empty if none has it."""
    return _common(values, ABSENT)


def size_rule(name: str, values: list[str]) -> str:
    """`== N`, or `>= N` if more is allowed."""
    least, most = min(map(int, values)), max(map(int, values))
    if name in OF_MEMORY:
        least = int(least * (1 - PACKAGED.threshold("memory.differs_concern_percent") / 100))
    if name in DIFFER_WITH_ROOM:
        return f">= {least}"
    return f"== {least}" if least == most else f"{least} to {most}"


def _common(values: list[str], nothing: str) -> str:
    """The common value, empty if it is. Raises NotApplicable if values differ."""
    if len(set(values)) > 1:
        raise NotApplicable(f"the nodes differ: {', '.join(sorted(set(values)))}")
    return "" if values[0] == nothing else values[0]


def text_of(manifest: Manifest, day: str, source: str) -> str:
    """The whole file."""
    tables = (line for name in ABOUT for line in _table(manifest, name))
    return "\n".join([HEAD, *_about(manifest, day, source), *tables, ""])


def _about(manifest: Manifest, day: str, source: str) -> Iterator[str]:
    yield "[manifest]"
    yield f"made_of = {_quoted(f'{fold(manifest.made_of)} of {source}')}"
    yield f"made_on = {_quoted(day)}"
    if manifest.instance_type:
        yield f"instance_type = {_quoted(manifest.instance_type)}"


def _table(manifest: Manifest, name: str) -> Iterator[str]:
    rows, unknown = manifest.tables.get(name, {}), manifest.unknown.get(name, {})
    if not rows and not unknown:
        return
    yield from ("", f"[{name}]", ABOUT[name])
    yield from (f"{key if _BARE.fullmatch(key) else _quoted(key)} = {_quoted(rule)}" for key, rule in rows.items())
    if unknown:
        yield "# Not known, and left out:"
    for why, names in unknown.items():
        yield f"#   {', '.join(names)}: {_comment(why)}"


def _quoted(text: str) -> str:
    """A text as TOML's basic string, safe for any node-supplied text."""
    return json.dumps(printable(text, 200), ensure_ascii=False)


def _comment(text: str) -> str:
    return printable(text, MAX_REASON).replace("\n", " ")
