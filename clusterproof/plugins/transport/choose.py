"""The connection that a cluster names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.transport import Connection
from clusterproof.plugins.transport.direct import DIRECT


def connection_for(name: str) -> Connection:
    """The connection that a cluster names. Raises LookupError for an unknown name."""
    try:
        return CONNECTIONS[name]()
    except KeyError:
        raise LookupError(f"no connection is called {name!r}; known are {', '.join(CONNECTIONS)}") from None


def _srun() -> Connection:
    from clusterproof.plugins.transport.srun import Srun

    return Srun()


def _kubernetes() -> Connection:
    from clusterproof.plugins.transport.kubernetes import Kubernetes

    return Kubernetes()


def _agents() -> Connection:
    from clusterproof.plugins.transport.kubernetes_agents import Agents

    return Agents()


CONNECTIONS: Mapping[str, Callable[[], Connection]] = {
    **DIRECT,
    "srun": _srun,
    "kubernetes": _kubernetes,
    "agents": _agents,
}
