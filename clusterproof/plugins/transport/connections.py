"""The connection that a cluster names."""

from __future__ import annotations

from importlib import import_module

from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.transport import Connection


def connection_for(name: str) -> Connection:
    """The connection of that name; nothing else is imported for it. Raises LookupError for one that is not known."""
    kind = CONNECTIONS.get(name)
    if kind is None or not kind.is_live:
        known = ", ".join(name for name, kind in CONNECTIONS.items() if kind.is_live)
        raise LookupError(f"no connection is called {name!r}; known are {known}")
    module, _, of_it = kind.connection.partition(":")
    connection: Connection = getattr(import_module(f"clusterproof.plugins.{module}"), of_it)()
    return connection
