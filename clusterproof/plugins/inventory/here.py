"""`--cluster local`: the machine that this runs on."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from clusterproof.plugins.core.cluster import Cluster, Target


def local(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """One target, named as this machine names itself."""
    return Cluster(name="local", connection="local", targets=(Target(name=socket.gethostname() or "localhost"),))
