"""A user's ssh configuration, and visits with it to an sshd on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Answer, Limits, Program, connection_for
from tests.transport.loopback import Sshd, user

HELLO = Program("echo hello")
RELAY = Path(__file__).with_name("relay.py")


class Client:
    """A user's ssh configuration in its own home, and runs with it."""

    def __init__(self, home: Path, server: Sshd) -> None:
        self.home = home
        self.server = server
        self.known_hosts = home / "known_hosts"
        self.known_hosts.write_text(server.known_hosts())

    def visit(
        self,
        *targets: Target,
        program: Program = HELLO,
        config: str = "",
        connect_s: float = 10.0,
        answer_s: float = 20.0,
        fanout: int = 64,
        **settings: str,
    ) -> dict[str, Answer]:
        """Visit the targets; `config` precedes the configuration that maps every host to the server."""
        path = self.home / "config"
        path.write_text(
            f"{config}\nHost *\n  User {user()}\n  Port {self.server.port}\n  HostName 127.0.0.1\n"
            f"  IdentityFile {self.server.identity}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile none\n"
        )
        limits = Limits(fanout, connect_s, answer_s, settings={"config": str(path), **settings})
        answers: dict[str, Answer] = {}

        def answered(target: Target, answer: Answer) -> None:
            assert target.name not in answers
            answers[target.name] = answer

        connection_for("ssh").run(targets, program, limits, answered)
        return answers

    def one(self, target: Target | None = None, **more: object) -> Answer:
        """The answer of one target."""
        [answer] = self.visit(target or Target("node1"), **more).values()  # type: ignore[arg-type]
        return answer


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server on loopback that passes every connection to `serve`, and then closes it."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    def attend(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
