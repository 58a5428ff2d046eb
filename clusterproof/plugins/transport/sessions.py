"""A program that runs on a node for as long as it is watched: what it writes comes as it is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Protocol

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.transport import Limits, Program

BEAT_S = 30.0  # between signs of life to the program, which ends without them
BEAT = b"\n"

Received = Callable[[bytes], object]  # takes a piece of its output; what it raises ends the session


class Sessions(Protocol):
    """Those of a cluster."""

    has_input: bool  # whether the programs get signs of life over their input; else they get none

    def open(self, text: str) -> None:
        """Be ready for programs with this text on their input. Raises Unusable."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:
        """The session of one node; it says there why nothing comes for a while, where it does not end for that."""

    def close(self) -> None:
        """Let all end, at once."""


class NodeSession(Protocol):
    """One node's."""

    has_input: bool  # as its Sessions

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """Run the program until it ends, is told to, or sends nothing for `dead_s`; why it ended, in words.

        A Future where no thread is needed to wait for that.
        """

    def end(self) -> None:
        """Let it end; from any thread. It does not run again."""


class SessionOfEach:
    """A session for each node, made by itself: nothing is shared, and each is told to end."""

    has_input = True

    def __init__(self, make: Callable[[], NodeSession]) -> None:
        self._make = make

    def open(self, text: str) -> None:
        """As Sessions has it: nothing is to be made ready."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:  # noqa: ARG002 - they end when they are cut
        """As Sessions has it."""
        return self._make()

    def close(self) -> None:
        """As Sessions has it."""


def sessions_for(connection: str, limits: Limits) -> Sessions:
    """The sessions on nodes that are reached so. Raises LookupError where a connection has none."""
    kind = CONNECTIONS.get(connection)
    if kind is None or not kind.sessions:
        raise LookupError(f"no program stays on nodes by {connection!r}{f': {kind.why_no_sessions}' if kind else ''}")
    module, _, function = kind.sessions.partition(":")
    sessions: Sessions = getattr(import_module(f"clusterproof.plugins.{module}"), function)(limits)
    return sessions
