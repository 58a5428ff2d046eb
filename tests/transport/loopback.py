"""A real sshd on loopback with its own keys, for the tests of the SSH connection."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_S = 600.0
FIRST_PORT, PORTS, WORKERS = 12_000, 2_500, 8


@dataclass(frozen=True)
class Sshd:
    """A running server: its address, its host key and the key that may log in."""

    folder: Path
    port: int

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def identity(self) -> Path:
        return self.folder / "user_key"

    def known_hosts(self, *names: str) -> str:
        """Lines of known_hosts that name this server."""
        return "".join(f"{name} {self.host_key}\n" for name in (*names, f"[127.0.0.1]:{self.port}"))


@contextlib.contextmanager
def sshd(folder: Path, *options: str, startups: str = "300") -> Iterator[Sshd]:
    """Run a server whose files are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    new_key(folder / "host_key")
    new_key(folder / "user_key")
    server = Sshd(folder, free_port())
    (folder / "sshd_config").write_text(
        "".join(f"{option}\n" for option in options)  # first, as sshd takes the first value it reads
        + f"Port {server.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/user_key.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nUseDNS no\n"
        f"PrintMotd no\nMaxStartups {startups}\n"
        f"SetEnv HOME={folder}\n"  # so that no shell start-up file takes part
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd requires it before it drops root
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "/usr/sbin/sshd"
    log = (folder / "sshd.log").open("wb")
    process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        wait_until_open(server.port, process)
        yield server
    finally:
        process.terminate()
        process.wait(START_S)
        log.close()


@contextlib.contextmanager
def ssh_agent(path: Path, key: Path, passphrase: str) -> Iterator[None]:
    """An agent that listens at `path` and holds one key."""
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        unlock = path.with_name("unlock")
        unlock.write_text(f"#!/bin/sh\necho {passphrase}\n")
        unlock.chmod(0o700)
        asking = {"SSH_AUTH_SOCK": str(path), "SSH_ASKPASS": str(unlock), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, **asking}, check=True, stdin=subprocess.DEVNULL)
        yield
    finally:
        agent.terminate()
        agent.wait(START_S)


def new_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> None:
    """A new key pair."""
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)


def free_port() -> int:
    """A free port of 127.0.0.1 that neither another test nor a client gets meanwhile."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port of 127.0.0.1 is free")


def _own_ports() -> Iterator[int]:
    """This xdist worker's own range of ports, below those that Linux gives to clients, each used once."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    own = range(FIRST_PORT + worker * PORTS, FIRST_PORT + (worker + 1) * PORTS)
    begin = os.getpid() % PORTS
    yield from (*own[begin:], *own[:begin])


_PORTS = _own_ports()


def wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until something listens; raise at once if the server has exited."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
    raise RuntimeError(f"sshd does not listen on port {port}; exit code {process.poll()}")


def user() -> str:
    """The user running the tests, who may log in to an sshd that is not root."""
    return getpass.getuser()
