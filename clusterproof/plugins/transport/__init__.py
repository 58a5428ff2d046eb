"""Connections run one program on many nodes: a module or folder for each (`core.kinds.CONNECTIONS`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from clusterproof.plugins.agent.program import MAX_ANSWER_BYTES as MAX_ANSWER_BYTES
from clusterproof.plugins.agent.program import Answer as Answer
from clusterproof.plugins.agent.program import Program as Program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future  # slow to import, and not needed by a prolog


@record
class Limits:
    """The timeouts of a connection, and how many nodes it may talk to at once."""

    fanout: int = 64
    connect_s: float = 15.0
    answer_s: float = 30.0
    answer_bytes: int = MAX_ANSWER_BYTES
    settings: dict[str, str] = field(default_factory=dict)


def begins_container(srun_options: str) -> bool:
    """Whether srun starts a container, by its own or pyxis' options: then the answer is not the node's."""
    return "--container" in srun_options


PROGRAM_ENDED = "the program ended"  # what a session reports when there is no better reason


class Unusable(ClusterproofError):  # noqa: N818 - an outcome for the whole run
    """A connection that can reach no node at all; the one-line message says what to do."""


class Connection:
    """Runs one program on many nodes; subclasses implement `run`, everything else has a default.

    A command of more than `ARGUMENT` characters is run as `script_of` converts it.
    """

    takes_stdin: bool = True  # without standard input, a program is sent whole as one command line

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target, calling `answered` once for each, from any thread.

        Never raises for a single node: its Answer has `unreached`. Raises Unusable.
        """
        raise NotImplementedError

    def program(self) -> Program | None:
        """The program to run regardless of which collectors are requested; None: build one for them."""
        return None

    def longest_program(self, _limits: Limits) -> int | None:
        """The maximum length of a program in characters; None: unlimited. By default a command is one argument."""
        if self.takes_stdin:
            return None
        from clusterproof.plugins.agent.packing import ARGUMENT  # not needed by a prolog

        return ARGUMENT

    def carries(self, _limits: Limits) -> int:
        """How many characters of an answer arrive complete; 0: unlimited."""
        return 0

    def leave(self, _targets: Sequence[Target]) -> bool:
        """Kill what still runs on these nodes, and everything it started; False if it cannot."""
        return False

    def abandon(self) -> None:
        """Clean up what would be left behind if the process ended during `run`."""

    def under_load(self) -> Connection:
        """The connection for loading the nodes that this one visits: it requests the devices that it uses."""
        return self

    def unavailable(self, _targets: Sequence[Target], _settings: Mapping[str, str]) -> Mapping[str, str]:
        """Which nodes cannot be loaded now, and why, as far as known beforehand. Raises Unusable."""
        return {}


class _Adopted(Connection):
    """Wraps a third-party object that has `run`, and maybe other attributes of a Connection."""

    def __init__(self, own: Any) -> None:
        self._own = own
        for name in vars(Connection).keys() - vars(_Adopted):
            if not name.startswith("_") and hasattr(own, name):
                setattr(self, name, getattr(own, name))

    def under_load(self) -> Connection:
        """The wrapped object's own, wrapped too."""
        return adopted(self._own.under_load()) if hasattr(self._own, "under_load") else self


def adopted(own: object) -> Connection:
    """An object that runs programs on nodes, with Connection's defaults for what it lacks."""
    return own if isinstance(own, Connection) else _Adopted(own)


def connection_for(name: str) -> Connection:
    """The connection of that name; only its module is imported. Raises LookupError for an unknown name."""
    kind = CONNECTIONS.get(name)
    if kind is None or not kind.is_live:
        known = ", ".join(name for name, kind in CONNECTIONS.items() if kind.is_live)
        raise LookupError(f"no connection is called {name!r}; known are {known}")
    module, _, of_it = kind.connection.partition(":")
    connection: Connection = getattr(import_module(f"clusterproof.plugins.{module}"), of_it)()
    return connection


KEEPALIVE_S = 30.0  # between keepalives to the program, which exits without them
KEEPALIVE = b"\n"

Received = Callable[[bytes], object]  # takes a piece of output; an exception from it ends the session


class Sessions(Protocol):
    """The sessions of a cluster."""

    has_input: bool  # whether programs get keepalives on their standard input; else they get no input

    def open(self, text: str) -> None:
        """Prepare to run programs that read this text. Raises Unusable."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:
        """The session of one node; it calls `interrupted` with the reason for a silence that does not end it."""

    def close(self) -> None:
        """End all sessions at once."""


class NodeSession(Protocol):
    """The session of one node."""

    has_input: bool  # as in Sessions

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """Run the program until it ends, `end` is called, or nothing arrives for `dead_s`; returns the reason it ended.

        A Future if no thread is needed to wait for it.
        """

    def end(self) -> None:
        """End the program, from any thread. It does not run again."""


class SessionPerNode:
    """Independent sessions, one per node: nothing is shared, and each is ended by itself."""

    has_input = True

    def __init__(self, make: Callable[[], NodeSession]) -> None:
        self._make = make

    def open(self, text: str) -> None:
        """As in Sessions: nothing needs to be prepared."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:  # noqa: ARG002 - they end when they are cut
        """As in Sessions."""
        return self._make()

    def close(self) -> None:
        """As in Sessions."""


def sessions_for(connection: str, limits: Limits) -> Sessions:
    """The sessions on nodes reached by this connection. Raises LookupError if it has none."""
    kind = CONNECTIONS.get(connection)
    if kind is None or not kind.sessions:
        raise LookupError(f"no program stays on nodes by {connection!r}{f': {kind.why_no_sessions}' if kind else ''}")
    module, _, function = kind.sessions.partition(":")
    sessions: Sessions = getattr(import_module(f"clusterproof.plugins.{module}"), function)(limits)
    return sessions
