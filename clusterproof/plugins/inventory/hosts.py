"""`--cluster local`, the machine that this runs on, and `--cluster ssh:[user@]NODESET[:port]`, nodes by name."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.nodeset import NodesetError, expand, fold, is_user

_FORM = "ssh:[user@]NODESET[:port], such as ssh:root@gpu[001-016]:2222"
MAX_PORT = 65535


def local(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """One target, named as this machine names itself; of how many, nobody says."""
    here = Target(name=socket.gethostname() or "localhost")
    return Cluster(name="local", connection="local", targets=(here,), is_part=True)


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
