"""A real Slurm that runs the scripts of integrations/slurm on its fake nodes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.image import Content, File, Link, NodeImage
from tests.testbed.node import Node
from tests.testbed.slurm import SlurmBed, slurm

SCRIPTS = Path(__file__).parents[1] / "integrations" / "slurm"
STATE = "var/lib/clusterproof/slurm"
SETTINGS = "/etc/clusterproof/slurm.toml"
SYSLOG = "run/syslog"
POLICY = """[disabled."network.memlock"]
reason = "this kernel does not let the testbed raise the limit of a real slurmd"
until = 9999-12-31
"""
NAMES = {"Prolog": "prolog", "Epilog": "epilog", "HealthCheckProgram": "health-check"}

# Stands in for syslogd: one datagram, one line.
LISTENER = f"""
import os, socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("/dev/log")
with open("/{SYSLOG}", "ab", buffering=0) as log:
    while True:
        log.write(listener.recv(8192) + b"\\n")
"""


@dataclass
class Scripted:
    """A running Slurm whose nodes have the scripts and a syslog."""

    bed: SlurmBed

    def node(self, name: str) -> Node:
        return self.bed.node(name)

    def state_file(self, name: str, file: str) -> Path:
        return self.node(name).root / STATE / file

    def logged(self, name: str) -> str:
        """What the scripts have told the node's syslog."""
        log = self.node(name).root / SYSLOG
        return log.read_text() if log.exists() else ""

    def probes(self, name: str) -> int:
        """How often the node was asked."""
        return self.logged(name).count(" checks in ")

    def submit(self, *among: str, user: int = 0, script: str = "true") -> str:
        """Submit a batch job for one of these nodes; its number."""
        excluded = ",".join(sorted(set(self.bed.names) - set(among)))
        words = ["sbatch", "--parsable", "--output=/dev/null", f"--wrap={script}", "--chdir=/"]
        words += [f"--exclude={excluded}"] if excluded else []
        return self.bed.told(*words, user=user).strip()

    def field(self, job: str, key: str) -> str:
        """One value of `scontrol show job`."""
        words = self.bed.told("scontrol", "show", "job", job).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{key}=")), "")

    def ran_on(self, job: str) -> str:
        """The node on which a job ran to its end; one that was requeued need not wait for two minutes."""

        def finished() -> str:
            if self.field(job, "JobState") == "PENDING" and self.field(job, "Restarts") != "0":
                self.bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            return self.field(job, "NodeList") if self.field(job, "JobState") == "COMPLETED" else ""

        return eventually(finished)

    def reason_beginning(self, name: str, text: str) -> str:
        """Wait until the reason of a drained node begins so."""
        return eventually(lambda: reason if (reason := self.bed.reason(name)).startswith(text) else "")

    def listed(self) -> str:
        """What `sinfo -R` shows an administrator."""
        return self.bed.told("sinfo", "-R", "-h", "-o", "%N|%E")


def eventually(found: Callable[[], str], within_s: float = 30.0) -> str:
    """What is found, once it is. Raises TimeoutError."""
    until = time.monotonic() + within_s
    while not (value := found()):
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)
    return value


@contextlib.contextmanager
def scripted(
    images: Mapping[str, NodeImage], scripts: Mapping[str, str], toml: str, *settings: str
) -> Iterator[Scripted]:
    """A Slurm whose slurm.conf names these scripts (`{"Prolog": "…"}` by its keyword, of `lines`)."""
    files: dict[str, Content] = {
        SETTINGS: f'policy = "/etc/clusterproof/policy.toml"\n{toml}',
        "/etc/clusterproof/policy.toml": POLICY,
        "/opt/clusterproof": Link(sys.prefix),
        **{f"/etc/slurm/{name}": File(text, 0o755) for name, text in scripts.items()},
    }
    named = [f"{keyword}=/etc/slurm/{name}" for keyword, name in NAMES.items() if name in scripts]
    with slurm(images, settings=[*named, *settings], files=files) as bed:
        for name in images:
            bed.node(name).start([sys.executable, "-c", LISTENER])
        yield Scripted(bed)


def lines(*names: str) -> dict[str, str]:
    """The scripts' text by name."""
    return {name: (SCRIPTS / f"clusterproof-{name}").read_text() for name in names}
