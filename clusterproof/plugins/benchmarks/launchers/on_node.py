"""The program that runs on a node: starts commands, kills them at their deadline, and reports how they ended.

It travels as text with its imports, before the line that calls `main`; standard library only, for Python 3.8. The
processes that it starts do not outlive it, its deadline, or the connection over which it reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from clusterproof.plugins.agent.sending import send
from clusterproof.plugins.benchmarks.launchers.cleanup import VARIABLE, clean_up, guard
from clusterproof.plugins.benchmarks.launchers.pipes import BoundedOutput, Disconnected, wait
from clusterproof.plugins.benchmarks.launchers.rendezvous import (
    DONE,
    READY,
    Acceptor,
    NotConnected,
    PortTaken,
    addresses,
    find_server,
    listen,
    listening_for_silence,
    listens,
)
from clusterproof.plugins.benchmarks.launchers.search_path import PASSED_OVER, searched
from clusterproof.plugins.benchmarks.launchers.sent_bytes import between, sent_bytes

QUIET_S = 0.5  # how long to keep reading after the shell has ended: processes left behind may hold its output open


class Command:
    """One command: its bounded output, and how it ended."""

    def __init__(self, shell: str, environment: dict[str, str], run: str, most_bytes: int) -> None:
        self.exit: int | None = None
        self.seconds = 0.0
        self._output = BoundedOutput(most_bytes)
        self._began = time.monotonic()
        self._ended = 0.0
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, VARIABLE: run},
            start_new_session=True,
        )
        assert self.process.stdout
        self.pipe = self.process.stdout.fileno()

    def take_output(self) -> None:
        """Read from its pipe; at end of file, the pipe is -1."""
        read = os.read(self.pipe, 65536)
        if not read:
            self._close()
            return
        self._output.add(read)

    def has_ended(self) -> bool:
        """Whether it has ended, and its output is complete."""
        status = self.process.poll()
        if status is None:
            return False
        now = time.monotonic()
        if not self._ended:
            self.exit, self._ended, self.seconds = status, now, now - self._began
        if self.pipe >= 0 and now - self._ended > QUIET_S:
            self._close()
        return self.pipe < 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to its whole group."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

    def to_json(self) -> dict[str, Any]:
        """Its output and how it ended; without an exit status if it was killed."""
        return {
            "text": self._output.kept().decode("utf-8", "replace"),
            "exit": self.exit,
            "seconds": round(self.seconds or time.monotonic() - self._began, 3),
        }

    def _close(self) -> None:
        assert self.process.stdout
        self.process.stdout.close()
        self.pipe = -1


FOLDERS = (
    "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/opt/amazon/openmpi5/bin:"
    "/usr/lib64/openmpi/bin:/usr/local/mpi/bin:/opt/aws/neuron/bin:/opt/slurm/bin"
)
SEARCHED = {"PATH", "LD_LIBRARY_PATH"}  # search paths for programs and libraries
PYTHON = "CLUSTERPROOF_PYTHON"  # in the environment of commands: the Python that this runs in
TICK_S = 0.1
STARTS_S = 2.0  # for a server that does not listen on that TCP port
ENDS_S = 2.0  # for a server to exit after its client, and for anything to exit after SIGTERM
GUARD_S = 10.0  # in addition to the deadline


def main(request: dict[str, Any], nonce: str, _sudo: str) -> None:
    """Answer one request and end this process."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        os.chdir("/")  # where nobody else can place libraries or settings, such as ./ucx.conf, for it
        os.environ["PATH"] = os.environ.get("PATH", "/usr/bin") + ":" + FOLDERS
        doubts: dict[str, str] = {}
        for variable in sorted(SEARCHED & os.environ.keys()):
            os.environ[variable] = searched(os.environ[variable], doubts)
        os.environ[PASSED_OVER] = "".join(f"; not looked in {folder}: {why}" for folder, why in doubts.items())
        os.environ[PYTHON] = sys.executable
        send(json.dumps(answer(request)).encode(), nonce)
    except (Disconnected, BrokenPipeError):
        pass  # the guard kills what still runs
    except Exception:  # a bug of ours: the error is sent in place of the answer's end
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def stop(number: int, _frame: object) -> None:
    """Exit, ending everything that was started."""
    os._exit(128 + number)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What this node is, and the results of its commands; `left` are processes that could not be killed."""
    data: dict[str, Any] = {"name": os.uname().nodename, "addresses": addresses(), "outputs": [], "left": []}
    if request.get("commands"):
        holding_off = guard(request["run"], request["deadline_s"] + GUARD_S)
        data.update(Run(request).to_json())
        data["left"] = clean_up(request["run"])
        os.close(holding_off)
    elif "clean_up" in request:
        data["left"] = [left for run in request["clean_up"] for left in clean_up(run)]
    return data


class Run:
    """The commands of one request, from start to end."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.word = str(request.get("rendezvous", {}).get("word", "")).encode()
        self.acceptor: Acceptor | None = None
        self.peer: socket.socket | None = None  # the other node, which is notified once the server listens
        self.until = time.monotonic() + request["deadline_s"]
        self.commands: list[Command] = []
        self.others: list[socket.socket] = []
        self.done: list[socket.socket] = []  # those of `others` that are done
        self.unmet = ""
        self.is_port_taken = False
        self.is_lost = False

    def to_json(self) -> dict[str, Any]:
        """Run them all."""
        before = sent_bytes()
        try:
            self.meet_and_run()
        except NotConnected as problem:
            self.unmet, self.is_port_taken = str(problem), isinstance(problem, PortTaken)
        self.end()
        sent = between(before, sent_bytes())
        outputs = [{**command.to_json(), "sent_bytes": sent} for command in self.commands]
        for other in () if self.is_lost else self.others:
            self.send(other, DONE)
        unmet = {"unmet": self.unmet, "is_port_taken": self.is_port_taken}
        return {"outputs": outputs, **unmet, "lost": self.is_lost}

    def meet_and_run(self) -> None:
        """Run as the server, as the client, or alone. Raises NotConnected, Disconnected."""
        rendezvous = self.request.get("rendezvous") or {}
        meet_until = min(self.until, time.monotonic() + rendezvous.get("timeout_s", 0.0))
        if "servers" in rendezvous:
            port = rendezvous["rendezvous_port"]
            met = [self.met(name, known, port, meet_until) for name, known in rendezvous["servers"]]
            self.start(rendezvous["stands_for_addresses"], " ".join(met))
            self.watch(self.until)
        elif rendezvous:
            with contextlib.closing(Acceptor(listen(rendezvous["rendezvous_port"]), self.word)) as self.acceptor:
                if listens(rendezvous["port"]):
                    raise PortTaken(f"port {rendezvous['port']} is taken")
                self.start()
                self.until_it_serves(rendezvous["port"], meet_until)
                while not self.peer:
                    if time.monotonic() > meet_until:
                        raise NotConnected("the other node did not connect")
                    self.peer = self.acceptor.accept(min(TICK_S, meet_until - time.monotonic()))
            if listens(rendezvous["port"]) and not listens(rendezvous["port"], os.geteuid()):
                raise PortTaken(f"port {rendezvous['port']} is taken")  # by another user
            self.others = [listening_for_silence(self.peer)]
            self.send(self.peer, READY)
            self.serve()
        else:
            self.start()
            self.watch(self.until)

    def met(self, name: str, addresses: list[str], port: int, until: float) -> str:
        """The address by which that server's node was reached. Raises NotConnected, Disconnected."""
        try:
            other, address = find_server(addresses, port, self.word, until)
        except NotConnected as problem:
            raise NotConnected(f"{name} {problem}") from None
        self.others.append(other)
        return address

    def start(self, word: str = "", addresses: str = "") -> None:
        """Start the commands; `word` in them is replaced by the addresses."""
        for command in self.request["commands"]:
            shell = command["shell"].replace(word, addresses) if word else command["shell"]
            most_bytes = self.request["most_bytes"]
            self.commands.append(Command(shell, command["environment"], self.request["run"], most_bytes))

    def until_it_serves(self, port: int, until: float) -> None:
        """Wait until the server listens, has ended, or turns out not to listen on TCP."""
        until = min(until, time.monotonic() + STARTS_S)
        while time.monotonic() < until and not listens(port, os.geteuid()) and not self.is_over():
            self.run_on(until)
            self.peer = self.peer or (self.acceptor.accept(0.0) if self.acceptor else None)

    def serve(self) -> None:
        """Run until the other end is done; then the server has a little time to exit."""
        while time.monotonic() < self.until and not self.done and not self.is_lost:
            self.run_on(self.until)
        self.watch(min(self.until, time.monotonic() + ENDS_S))

    def watch(self, until: float) -> None:
        """Run until the commands have ended, or the other node is lost."""
        while time.monotonic() < until and not self.is_over() and not self.is_lost:
            self.run_on(until)

    def run_on(self, until: float) -> None:
        """Handle events for one tick. Raises Disconnected."""
        pipes = {command.pipe: command for command in self.commands if command.pipe >= 0}
        others = {other.fileno(): other for other in self.others if other not in self.done}
        for ready in wait(min(TICK_S, until - time.monotonic()), *pipes, *others):
            if ready in pipes:
                pipes[ready].take_output()
            else:
                self.read(others[ready])
        self.is_over()  # records when each was seen to have ended

    def read(self, other: socket.socket) -> None:
        """The other node is done, or lost."""
        read = b""
        with contextlib.suppress(OSError):
            read = other.recv(len(DONE))
        if read:
            self.done.append(other)
        else:
            self.is_lost = True

    def send(self, other: socket.socket, word: bytes) -> None:
        """Send to the other node; failures are noticed when reading."""
        try:
            other.sendall(word)
        except OSError:
            self.is_lost = True

    def is_over(self) -> bool:
        """Whether all commands have ended."""
        running = [command for command in self.commands if not command.has_ended()]
        return not running

    def end(self) -> None:
        """End what still runs: SIGTERM first, then SIGKILL."""
        if self.is_over():
            return
        running = [command for command in self.commands if command.exit is None]
        for command in running:
            command.kill(signal.SIGTERM)
        until = time.monotonic() + ENDS_S
        while time.monotonic() < until and not self.is_over():
            pipes = {command.pipe: command for command in self.commands if command.pipe >= 0}
            for ready in wait(TICK_S, *pipes):
                pipes[ready].take_output()
        for command in running:
            command.kill()
            command.exit = None
