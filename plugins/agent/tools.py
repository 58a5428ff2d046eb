"""External programs of the node, run in the collector's own process group, so that its deadline ends them too."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Absent, Broke, Denied, Node

MAX_OUTPUT_BYTES = 64 * 1024
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
    """A program that runs: its output as it comes, standard error merged, then its exit status."""

    def __init__(
        self,
        node: Node,
        name: str,
        *arguments: str,
        program: str = "",
        environment: dict[str, str] = {},  # noqa: B006 - only read
    ) -> None:
        """Start it. Raises Absent where it is not installed, Denied where another root may not be entered."""
        program = program or find(node, name)
        if node.root and os.geteuid():
            raise Denied(f"{name}: only root may run a program under {node.root}")
        self.line = " ".join((name, *arguments))
        self.exit = 0
        node.at(self.line)
        self._output, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _become(node, program, (name, *arguments), {**_environment(node), **environment}, writing)
        os.close(writing)

    def speaks(self) -> bool:
        """Whether it has printed something that nobody has taken yet, or has ended."""
        return bool(select.select([self._output], [], [], 0)[0])

    def chunks(self, timeout_s: float | None = None, ask_s: float = 0.0) -> Iterator[bytes]:
        """Its output until it ends, or is not wanted any more. Raises Broke once its time is over, if it has one.

        With `ask_s` it is asked to end then (SIGINT), and killed so much later.
        """
        is_asked = False
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                if until is not None and not poll.poll(1000 * max(0.0, until - time.monotonic())):
                    if is_asked or not ask_s:
                        raise Broke(f"{self.line} does not end within {timeout_s:g} s")
                    os.kill(self._pid, signal.SIGINT)
                    until, is_asked = until + ask_s, True
                    continue
                chunk = os.read(self._output, MAX_OUTPUT_BYTES)
                if not chunk:
                    break
                yield chunk
            if is_asked:
                raise Broke(f"{self.line} does not end within {timeout_s:g} s")
        except BaseException:  # also where whoever reads its output lets go of it
            os.kill(self._pid, signal.SIGKILL)
            raise
        finally:
            os.close(self._output)
            status = os.waitpid(self._pid, 0)[1]
            self.exit = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def find(node: Node, name: str, further: tuple[str, ...] = ()) -> str:
    """Where a program lies within the node's root, in `further` folders first. Raises Absent."""
    own = [] if node.root else os.environ.get("PATH", "").split(":")
    for folder in (*further, *own, *FOLDERS):
        program = f"{folder}/{name}"
        full = node.path(program)
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return program
    raise Absent(f"no {name} on PATH or in {', '.join(FOLDERS)}")


def command(node: Node, name: str, *arguments: str) -> dict[str, object]:
    """Run a program: its line, exit status (negative: a signal) and output. Raises Absent, Denied."""
    tool = Tool(node, name, *arguments)
    output = b""
    for chunk in tool.chunks():
        output += chunk[: MAX_OUTPUT_BYTES - len(output)]
    return {"command": tool.line, "exit": tool.exit, "output": output.decode("utf-8", "replace")}


def lines(node: Node, name: str, *arguments: str) -> list[str]:
    """All that a program prints, by lines. Raises Absent, Denied, Broke where it fails."""
    tool = Tool(node, name, *arguments)
    output = bytearray()
    for chunk in tool.chunks():
        output += chunk[: MAX_LISTING_BYTES - len(output)]
    text = output.decode("utf-8", "replace")
    if tool.exit:
        last = text.strip().rpartition("\n")[2]
        raise Broke(f"{tool.line} ended with {tool.exit}: {' '.join(last.split())[:300]}")
    return text.splitlines()


def _become(node: Node, program: str, words: tuple[str, ...], environment: dict[str, str], output: int) -> None:
    """Turn this forked child into the program; never returns."""
    try:
        if node.root:
            os.chroot(node.root)
            os.chdir("/")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.alarm(int(node.collector_s) + 2)  # outlives exec: an end even where nobody is left to kill it
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(program, words, environment)  # noqa: S606 - a fixed list of words
    except OSError as problem:
        os.write(output, f"{program}: {problem.strerror}\n".encode())
    finally:
        os._exit(NOT_RUN)


def _environment(node: Node) -> dict[str, str]:
    environment = {"PATH": ":".join(FOLDERS), "LC_ALL": "C", "HOME": "/", "TERM": "dumb"}
    if node.root:
        environment["SYSTEMD_IGNORE_CHROOT"] = "1"
    return environment
