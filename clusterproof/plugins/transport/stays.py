"""What stays on the nodes of a cluster, by the connection that reaches them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.staying import LocalStaying, SshStaying, Staying, Stays
from clusterproof.plugins.transport.staying_by_pod import PodStays
from clusterproof.plugins.transport.staying_by_srun import SrunStaying
from clusterproof.plugins.transport.submit_host import submit_host


def stays_for(connection: str, limits: Limits) -> Stays:
    """What stays on nodes that are reached so."""
    return PodStays(limits) if connection == "kubernetes" else Connections(connection, limits)


class Connections:
    """By a connection to each node, which has an input."""

    is_heard = True

    def __init__(self, connection: str, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._slots = threading.Semaphore(limits.fanout)  # how many may log in at once

    def open(self, text: str) -> None:
        """As Stays has it."""

    def on_node(self, cut: Callable[[str], object]) -> Staying:  # noqa: ARG002 - they end when they are cut
        """As Stays has it."""
        return self._by(self._connection)

    def close(self) -> None:
        """As Stays has it: each has been told to."""

    def _by(self, connection: str) -> Staying:
        if connection == "srun":
            settings = self._limits.settings
            return SrunStaying(self._by(submit_host(settings).connection), settings)
        return LocalStaying() if connection == "local" else SshStaying(self._limits, self._slots)
