"""The packages of a node that matter here, with their versions: dpkg's database, else one call of rpm."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.agent.reading import Absent, Denied, Node, error
from clusterproof.plugins.agent.tools import command

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    Versions = dict[str, dict[str, str]]

DPKG = "/var/lib/dpkg/status"
RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
MAX_BYTES = 32 * 1024 * 1024


def packages(node: Node, wanted: Iterable[str]) -> Versions:
    """The version of each wanted package that is installed; under `error` why the database could not be read."""
    node.at(DPKG)
    try:
        return _dpkg(node, set(wanted))
    except FileNotFoundError:
        pass
    except OSError as problem:
        return {"error": error(problem)}
    if not any(node.exists(folder) for folder in RPM):
        return {}
    try:
        data = command(node, "rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n", *sorted(wanted))
    except (Absent, Denied) as why:
        return {"error": {"error": type(why).__name__.upper(), "text": str(why)}}
    pairs = (line.split() for line in str(data["output"]).splitlines())
    return {pair[0]: {"version": pair[1], "from": "rpm"} for pair in pairs if len(pair) == 2}


def _dpkg(node: Node, wanted: set[str]) -> Versions:
    """Those of dpkg's database that are wholly installed. Raises OSError."""
    found: Versions = {}
    with open(node.path(DPKG), "rb") as file:
        for block in file.read(MAX_BYTES).split(b"\n\n"):
            name = block[9 : block.find(b"\n")].decode("utf-8", "replace")
            if name in wanted and b"\nStatus: install ok installed" in block:
                version = re.search(rb"\nVersion: (\S+)", block)
                if version:
                    found[name] = {"version": version[1].decode("utf-8", "replace")[:200], "from": DPKG}
    return found
