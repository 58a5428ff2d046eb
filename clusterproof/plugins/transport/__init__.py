"""Connections: how one program is run on many nodes, with a module or folder for each (`core.kinds.CONNECTIONS`)."""

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
    from concurrent.futures import Future  # slow to import, and a prolog has none


@record
class Limits:
    """The timeouts of a connection, and how many nodes it may talk to at once."""

    fanout: int = 64
    connect_s: float = 15.0
    answer_s: float = 30.0
    answer_bytes: int = MAX_ANSWER_BYTES
    settings: dict[str, str] = field(default_factory=dict)


def begins_container(srun_options: str) -> bool:
    """Whether srun begins a container by its own options or by pyxis': what it answers is none of the node's."""
    return "--container" in srun_options


PROGRAM_ENDED = "the program ended"  # what a session says where there is no more to say


class Unusable(ClusterproofError):  # noqa: N818 - an outcome for the whole run
    """A connection that cannot reach any node; the message is a line that says what to do."""


class Connection:
    """Runs one program on many nodes. A connection defines `run`; the rest has defaults.

    A command of more than `ARGUMENT` characters is run as `script_of` has it.
    """

    takes_stdin: bool = True  # one that gives a program no standard input gets all of it as one command line

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
        raise NotImplementedError

    def program(self) -> Program | None:
        """What it runs whatever collectors are asked for; None: those."""
        return None

    def longest_program(self, _limits: Limits) -> int | None:
        """How many characters of a program it takes; None: all. A command is one argument, unless it says so."""
        if self.takes_stdin:
            return None
        from clusterproof.plugins.agent.packing import ARGUMENT  # which a prolog does not need

        return ARGUMENT

    def carries(self, _limits: Limits) -> int:
        """How many characters of an answer arrive complete; 0: all."""
        return 0

    def leave(self, _targets: Sequence[Target]) -> bool:
        """End what still runs on these nodes, and all that it has started; False where it cannot."""
        return False

    def abandon(self) -> None:
        """Clean up what would be left if the process ended in the middle of `run`."""

    def under_load(self) -> Connection:
        """The connection that loads the nodes that this one visits: it requests the devices that it uses."""
        return self

    def unavailable(self, _targets: Sequence[Target], _settings: Mapping[str, str]) -> Mapping[str, str]:
        """Which nodes cannot be loaded now, and why, as far as that is known beforehand. Raises Unusable."""
        return {}


class _Adopted(Connection):
    """Another author's object with a `run`, completed with Connection's defaults."""

    def __init__(self, own: Any) -> None:
        self._own = own
        for name in vars(Connection).keys() - vars(_Adopted):
            if not name.startswith("_") and hasattr(own, name):
                setattr(self, name, getattr(own, name))

    def under_load(self) -> Connection:
        """Its own, adopted too."""
        return adopted(self._own.under_load()) if hasattr(self._own, "under_load") else self


def adopted(own: object) -> Connection:
    """An object that runs programs on nodes, with the defaults of a Connection for what it does not say."""
    return own if isinstance(own, Connection) else _Adopted(own)


def connection_for(name: str) -> Connection:
    """The connection of that name; nothing else is imported for it. Raises LookupError for one that is not known."""
    kind = CONNECTIONS.get(name)
    if kind is None or not kind.is_live:
        known = ", ".join(name for name, kind in CONNECTIONS.items() if kind.is_live)
        raise LookupError(f"no connection is called {name!r}; known are {known}")
    module, _, of_it = kind.connection.partition(":")
    connection: Connection = getattr(import_module(f"clusterproof.plugins.{module}"), of_it)()
    return connection


BEAT_S = 30.0  # between signs of life to the program, which ends without them
BEAT = b"\n"

Received = Callable[[bytes], object]  # takes a piece of its output; what it raises ends the session


class Sessions(Protocol):
    """Makes the sessions of a watched cluster."""

    has_input: bool  # whether the programs get signs of life over their input; else they get none

    def open(self, text: str) -> None:
        """Be ready for programs with this text on their input. Raises Unusable."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:
        """The session of one node; it says there why nothing comes for a while, where it does not end for that."""

    def close(self) -> None:
        """Let all end, at once."""


class NodeSession(Protocol):
    """A program that runs on one node for as long as it is watched."""

    has_input: bool  # as its Sessions

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """Run the program until it ends, is told to, or sends nothing for `dead_s`; why it ended, in words.

        A Future where no thread is needed to wait for that.
        """

    def end(self) -> None:
        """Let it end; from any thread. It does not run again."""


class SessionPerNode:
    """Sessions that share nothing: each is made, and ended, by itself."""

    has_input = True

    def __init__(self, make: Callable[[], NodeSession]) -> None:
        self._make = make

    def open(self, text: str) -> None:
        """Implement Sessions: nothing has to be prepared."""

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:  # noqa: ARG002 - they end when they are cut
        """Implement Sessions."""
        return self._make()

    def close(self) -> None:
        """Implement Sessions."""


def sessions_for(connection: str, limits: Limits) -> Sessions:
    """The sessions on nodes that are reached so. Raises LookupError where a connection has none."""
    kind = CONNECTIONS.get(connection)
    if kind is None or not kind.sessions:
        raise LookupError(f"no program stays on nodes by {connection!r}{f': {kind.why_no_sessions}' if kind else ''}")
    module, _, function = kind.sessions.partition(":")
    sessions: Sessions = getattr(import_module(f"clusterproof.plugins.{module}"), function)(limits)
    return sessions
