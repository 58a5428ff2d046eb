"""Clusters read from disk or named: `FILE.toml` (docs/inventory.md), `local`, this machine, and `ssh:…`.

`replay:DIR`, `demo` and `capture:PATH` are clusters recorded, or collected by hand, at another time.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterproof.plugins.captures import NoCaptureError, node_name
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.nodeset import NodesetError, expand, fold, is_address, is_user
from clusterproof.plugins.core.opened import in_home, opened
from clusterproof.plugins.core.strict import Table, nearest, parse_toml, read_text
from clusterproof.plugins.evidence.recording import read_cluster
from clusterproof.plugins.kubernetes.access import SETTING as OF_KUBERNETES

_CONNECTIONS = ("ssh", "local")
_SSH_FILES = ("identity_file", "config", "known_hosts")
_OF_A_NODE = ("user", "port", "instance_type", "expect")


def toml(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The cluster that a file describes. Raises InventoryError."""
    path = Path(rest)
    text = read_text(path, expected="an inventory (clusterproof init writes one to begin with)")
    described = (
        "docs/inventory.md (clusterproof init writes one to begin with; capture:FILE reads what commands printed)"
    )
    table = Table(path.name, parse_toml(text, path.name, described))
    table.only("cluster", "ssh", "group", "node")
    head = table.table("cluster")
    head.only("name", "connection")
    name = head.text("name", default=path.stem)
    connection = _connection(head)
    settings = _ssh_settings(table.table("ssh"), path.parent)
    targets = _targets(table)
    if connection == "local" and len(targets) > 1:
        raise InventoryError(
            f"{head.where}: connection is local, which is this machine, and {len(targets):,} nodes are named; expected "
            'one node, or connection = "ssh"'
        )
    return Cluster(name, connection, targets, settings)


def _connection(head: Table) -> str:
    connection = head.text("connection", default="ssh")
    if connection not in _CONNECTIONS:
        hint = nearest(connection, _CONNECTIONS)
        raise InventoryError(
            f"{head.where}: connection is {connection!r:.40}{hint}; expected {' or '.join(_CONNECTIONS)}"
        )
    return connection


def _ssh_settings(ssh: Table, folder: Path) -> dict[str, str]:
    """The connection's settings; relative files are next to the inventory."""
    ssh.only("user", "port", *_SSH_FILES, "accept_new_host_keys")
    settings = {"user": _user(ssh), "port": str(_port(ssh) or "")}
    for key in _SSH_FILES:
        if ssh.text(key):
            settings[key] = str(_existing(ssh, key, folder))
    if ssh.flag("accept_new_host_keys"):
        settings["accept_new_host_keys"] = "yes"
    return {key: value for key, value in settings.items() if value}


def _existing(ssh: Table, key: str, folder: Path) -> Path:
    path = folder / in_home(ssh.text(key))
    try:
        opened(path).close()
    except OSError as problem:
        raise InventoryError(f"{ssh.where}: {key} is {path}: {problem.strerror}; expected a file") from None
    return path


def _targets(table: Table) -> tuple[Target, ...]:
    nodes = table.table("node")
    targets: dict[str, Target] = {}
    groups = table.tables("group")
    are_told_apart = sum("name" not in group.values for group in groups) < 2  # one is, by having no name
    for number, group in enumerate(groups, start=1):
        group.only("name", "nodes", *_OF_A_NODE)
        shared = _of_a_node(group)
        called = group.text("name") or ("" if are_told_apart else f"group {number}")
        for name in _names(group):
            if name in targets:
                raise InventoryError(f"{group.where} has the node {name}, which is in another group; expected it once")
            targets[name] = Target(name=name, group=called, **shared)
    if not targets:
        raise InventoryError(f"{table.where} has no nodes; expected a [[group]] with nodes")
    for name in nodes.values:
        if name not in targets:
            raise InventoryError(f"{nodes.where}: {name!r:.80} is in no group{nearest(name, targets)}")
        targets[name] = _particular(targets[name], nodes.table(name))
    return tuple(targets.values())


def _names(group: Table) -> tuple[str, ...]:
    try:
        return expand(group.text("nodes", default=None))
    except NodesetError as problem:
        raise InventoryError(f"{group.where}: nodes: {problem}") from None


def _particular(target: Target, node: Table) -> Target:
    """A node's own table overrides its group."""
    node.only("address", *_OF_A_NODE)
    address = node.text("address")
    if address and not is_address(address):
        raise InventoryError(f"{node.where}: address is {address!r:.80}; expected a host name or an IP address")
    own = _of_a_node(node)
    return Target(
        name=target.name,
        address=address,
        user=own["user"] or target.user,
        port=own["port"] or target.port,
        group=target.group,
        instance_type=own["instance_type"] or target.instance_type,
        expect={**target.expect, **own["expect"]},
    )


def _of_a_node(table: Table) -> dict[str, Any]:
    return {
        "user": _user(table),
        "port": _port(table),
        "instance_type": table.text("instance_type"),
        "expect": table.expect(),
    }


def _user(table: Table) -> str:
    user = table.text("user")
    if user and not is_user(user):
        raise InventoryError(f"{table.where}: user is {user!r:.60}; expected a log-in name")
    return user


def _port(table: Table) -> int:
    return table.number("port", 1, MAX_PORT)


_FORM = "ssh:[user@]NODESET[:port], such as ssh:root@gpu[001-016]:2222"
MAX_PORT = 65535


def local(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """One target, named after this machine; its size is unknown."""
    this_machine = Target(name=socket.gethostname() or "localhost")
    return Cluster(name="local", connection="local", targets=(this_machine,), is_part=True)


def ssh(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The nodes of a nodeset, reached over SSH. Raises InventoryError."""
    if rest.startswith("//"):
        raise InventoryError(f"{_shown(rest)} is a URL (did you mean ssh:{rest.strip('/'):.80}?)")
    login, nodeset, port = _parts(rest)
    try:
        names = expand(nodeset)
    except NodesetError as problem:
        raise InventoryError(f"{_shown(rest)}: {problem}") from None
    return Cluster(
        name=fold(names),
        connection="ssh",
        targets=tuple(Target(name=name, user=login, port=port) for name in names),
    )


def _shown(rest: str) -> str:
    return f"--cluster {'ssh:' + rest!r:.90}"


def _parts(rest: str) -> tuple[str, str, int]:
    user, at, host = rest.rpartition("@")
    if at and not is_user(user):
        raise InventoryError(f"{_shown(rest)}: {user!r:.40} is not a user name; expected {_FORM}")
    nodeset, colon, port = host.partition(":")
    if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= MAX_PORT):
        raise InventoryError(f"{_shown(rest)}: {port!r:.40} is not a port; expected {_FORM}")
    return user, nodeset, int(port or 0)


FORM = "a folder of files that hold the outputs of commands, or one such file (docs/captures.md)"
DEMO = Path(__file__).parents[2] / "fixtures" / "demo"


def replay(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The cluster recorded in a folder. Raises InventoryError."""
    if not rest:
        raise InventoryError("--cluster 'replay:' names no folder; expected replay:DIR, as --record DIR wrote it")
    return read_cluster(Path(rest))


def demo(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """The recorded cluster that comes with the package. Raises InventoryError."""
    return read_cluster(DEMO)


def capture(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The nodes whose outputs are in a folder or a file. Raises InventoryError."""
    if not rest:
        raise InventoryError(f"--cluster 'capture:' names no folder; expected capture:PATH, {FORM}")
    path = Path(in_home(rest))
    from clusterproof.plugins.captures.collection import read_layout  # many formats: only captures need them
    from clusterproof.plugins.captures.several import is_of_kubernetes

    try:
        captured, _ = read_layout(path)
    except NoCaptureError as problem:
        raise InventoryError(f"{rest!r:.200}: {problem}; expected {FORM}") from None
    return Cluster(
        name=node_name(path.resolve().name, "capture"),
        connection="capture",
        targets=tuple(Target(name=node.name) for node in captured.nodes),
        settings={"capture": str(path), **({OF_KUBERNETES: "context:"} if is_of_kubernetes(captured) else {})},
    )
