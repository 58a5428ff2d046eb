"""Runs external programs of the node in the collector's process group, so that its deadline kills them too."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node
from clusterproof.plugins.agent.trust import ANYBODY, distrust, groups_of, others

READ_BYTES = 64 * 1024  # per read
MAX_OUTPUT_BYTES = 256 * 1024  # neuron-ls of 64 devices prints about 100 kB
MAX_LISTING_BYTES = 32 * 1024 * 1024  # scontrol's of 20,000 nodes
FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/amazon/efa/bin",
    "/opt/aws/neuron/bin",
    "/opt/slurm/bin",
)
NOT_RUN = 127


class Tool:
    """A running program: its output as it arrives, including standard error, then its exit status."""

    def __init__(
        self,
        node: Node,
        name: str,
        *arguments: str,
        program: str = "",
        environment: dict[str, str] = {},  # noqa: B006 - only read
    ) -> None:
        """Start it. Raises Absent if it is not installed, Denied if another root may not be entered.

        A program that the user names by its folder runs as the user who owns it.
        """
        program = program or find(node, name)
        if node.root and os.geteuid():
            raise Denied(f"{name}: only root may run a program under {node.root}")
        user = user_of(node, program)
        self.line = " ".join((name, *arguments))
        self.exit = 0
        node.at(self.line)
        self._output, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _become(node, program, (name, *arguments), {**_environment(node), **environment}, writing, user)
        os.close(writing)

    def speaks(self) -> bool:
        """Whether it has unread output, or has ended."""
        return bool(select.select([self._output], [], [], 0)[0])

    def chunks(self, timeout_s: float | None = None, ask_s: float = 0.0) -> Iterator[bytes]:
        """Its output until it ends or the reader stops. Raises Broke at its deadline, if it has one.

        With `ask_s` it then gets SIGINT, and SIGKILL so many seconds later.
        """
        is_interrupted = False
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                if until is not None and not poll.poll(1000 * max(0.0, until - time.monotonic())):
                    if is_interrupted or not ask_s:
                        raise Broke(f"{self.line} does not end within {timeout_s:g} s")
                    os.kill(self._pid, signal.SIGINT)
                    until, is_interrupted = until + ask_s, True
                    continue
                chunk = os.read(self._output, READ_BYTES)
                if not chunk:
                    break
                yield chunk
            if is_interrupted:
                raise Broke(f"{self.line} does not end within {timeout_s:g} s")
        except BaseException:  # also if the reader stops early
            os.kill(self._pid, signal.SIGKILL)
            raise
        finally:
            os.close(self._output)
            status = os.waitpid(self._pid, 0)[1]
            self.exit = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def find(node: Node, name: str, further: tuple[str, ...] = (), named: tuple[str, ...] = ()) -> str:
    """The path of a program within the node's root: searched in folders that the user names, in `further`, on PATH.

    Raises Absent; Denied if every candidate could be another user's work.
    """
    doubt = ""
    own = on_path(node)
    chosen = {*named, *(own if os.geteuid() else ())}  # root's own may come from the user who called sudo
    for folder in (*named, *further, *own, *FOLDERS):
        program = f"{folder}/{name}"
        full = node.path(program)
        if not (os.path.isfile(full) and os.access(full, os.X_OK)):
            continue
        why = "" if folder in chosen else distrust(program, node.root)
        if not why:
            return program
        doubt = doubt or f"{program} is not run: {why}"
    if doubt:
        raise Denied(f"{doubt}; expected a program that only root and this user decide about")
    raise Absent(f"no {name} on PATH or in {', '.join(FOLDERS)}")


def on_path(node: Node) -> list[str]:
    """The folders of this process's PATH, unless under another root. Relative folders are skipped."""
    own = [] if node.root else os.environ.get("PATH", "").split(":")
    return [folder for folder in own if folder.startswith("/")]


def command(node: Node, name: str, *arguments: str) -> dict[str, object]:
    """Run a program: returns its line, exit status (negative: a signal) and output. Raises Absent, Denied, Broke."""
    tool = Tool(node, name, *arguments)
    output = _all_of(tool, MAX_OUTPUT_BYTES)
    return {"command": tool.line, "exit": tool.exit, "output": output}


def lines(
    node: Node,
    name: str,
    *arguments: str,
    program: str = "",
    environment: dict[str, str] = {},  # noqa: B006 - only read
) -> list[str]:
    """All output of a program, in lines. Raises Absent, Denied, Broke if it fails or its output is endless."""
    tool = Tool(node, name, *arguments, program=program, environment=environment)
    text = _all_of(tool, MAX_LISTING_BYTES)
    if tool.exit:
        last = text.strip().rpartition("\n")[2]
        raise Broke(f"{tool.line} ended with {tool.exit}: {' '.join(last.split())[:300]}")
    return text.splitlines()


def _all_of(tool: Tool, max_bytes: int) -> str:
    """The whole output of a program. Raises Broke if it is too long: cut output is not passed on as whole."""
    output = bytearray()
    for chunk in tool.chunks():
        output += chunk
        if len(output) > max_bytes:
            raise Broke(f"{tool.line} prints more than {max_bytes} bytes")
    return output.decode("utf-8", "replace")


def user_of(node: Node, program: str) -> int:
    """The user to run a program as: this one, unless root would run another user's program. Raises Denied."""
    if os.geteuid():
        return os.geteuid()
    try:
        users = others(program, node.root)
    except OSError as problem:
        raise Denied(f"{program}: {problem.strerror}") from None
    if len(users) > 1 or ANYBODY in users:
        why = users.get(ANYBODY) or next(iter(users.values()))
        raise Denied(f"{program} is not run: {why}; expected one user at most who decides about it")
    return next(iter(users), 0)


def _become(
    node: Node, program: str, argv: tuple[str, ...], environment: dict[str, str], output: int, user: int
) -> None:
    """Exec the program in this forked child; never returns."""
    try:
        if node.root:
            os.chroot(node.root)
        os.chdir("/")  # where nobody else can place libraries or settings for it
        if user != os.geteuid():
            groups = groups_of(user)
            os.setgroups(groups)
            os.setgid(groups[0])
            os.setuid(user)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.alarm(int(node.collector_s) + 2)  # survives exec: ends it even if nobody is left to kill it
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(program, argv, environment)  # noqa: S606 - a fixed list of words
    except OSError as problem:
        os.write(output, f"{program}: {problem.strerror}\n".encode())
    finally:
        os._exit(NOT_RUN)


def _environment(node: Node) -> dict[str, str]:
    environment = {"PATH": ":".join(FOLDERS), "LC_ALL": "C", "HOME": "/", "TERM": "dumb"}
    if node.root:
        environment["SYSTEMD_IGNORE_CHROOT"] = "1"
    return environment
