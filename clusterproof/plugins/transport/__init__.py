"""How one program reaches many nodes: a module, or a folder, for each connection (`core.kinds.CONNECTIONS`)."""

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
from clusterproof.plugins.core.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future  # slow to import, and a prolog has none


@record
class Limits:
    """The timeouts of a connection, and how many nodes it may talk to at once."""

    fanout: int = 64
    connect_s: float = 15.0
    answer_s: float = 30.0
    answer_bytes: int = MAX_ANSWER_BYTES
    settings: dict[str, str] = field(default_factory=dict)


class Unusable(ClusterproofError):  # noqa: N818 - an outcome for the whole run
    """A connection that reaches no node at all, whatever the nodes are; the message is a line that says what to do."""


class Connection(Protocol):
    """Runs one program on many nodes.

    One that cannot give a program standard input has `takes_stdin = False`, and gets all of it as one command line.
    One that takes no program of any length has `longest_program(limits)`: how many characters it takes, None for all.
    A command of more than `ARGUMENT` characters is run as `script_of` has it.
    One that can end all that a program has started has `leave(targets)`, which ends what it still runs on these.
    One that leaves something behind if its process ends in the middle of `run` has `abandon()`, which cleans that up.
    One that does not run programs that load a node has `under_load()`: another that runs them.
    One that truncates long answers has `carries(limits)`: how many characters arrive complete, 0 for all.
    """

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target and call `answered` once for each, from any thread.

        Never raises for what one node does: that is an Answer with `unreached`. Raises Unusable.
        """


def connection_for(name: str) -> Connection:
    """The connection of that name; nothing else is imported for it. Raises LookupError for one that is not known."""
    kind = CONNECTIONS.get(name)
    if kind is None or not kind.is_live:
        known = ", ".join(name for name, kind in CONNECTIONS.items() if kind.is_live)
        raise LookupError(f"no connection is called {name!r}; known are {known}")
    module, _, of_it = kind.connection.partition(":")
    connection: Connection = getattr(import_module(f"clusterproof.plugins.{module}"), of_it)()
    return connection


def takes_stdin(connection: Connection) -> bool:
    """Whether the connection gives a program standard input."""
    return bool(getattr(connection, "takes_stdin", True))


def longest_program(connection: Connection, limits: Limits) -> int | None:
    """How many characters of a program the connection takes; None: all. A command is one argument unless it says so."""
    from clusterproof.plugins.agent.packing import ARGUMENT  # which a prolog does not need

    longest = getattr(connection, "longest_program", None)
    if longest is None:
        return None if takes_stdin(connection) else ARGUMENT
    characters: int | None = longest(limits)
    return characters


def under_load(connection: Connection) -> Connection:
    """The connection that loads the nodes that this one visits: it requests the devices that it uses."""
    if not hasattr(connection, "under_load"):
        return connection
    loading: Connection = connection.under_load()
    return loading


def unavailable_under_load(connection: Connection, targets: Sequence[Target], limits: Limits) -> Mapping[str, str]:
    """Which nodes cannot be loaded now, and why, as far as that is known beforehand. Raises Unusable."""
    unavailable = getattr(connection, "unavailable", None)
    return unavailable(targets, limits.settings) if unavailable else {}


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


class SessionPerNode:
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
