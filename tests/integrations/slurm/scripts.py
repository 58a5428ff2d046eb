"""A real Slurm that runs the scripts of integrations/slurm on its fake nodes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.integrations.slurm.folder import since_boot_s
from tests.integrations.slurm.earlier_runs import leave_cache, with_imports
from tests.testbed.healthy import BOOT_ID
from tests.testbed.image import Content, File, Link, NodeImage
from tests.testbed.node import Node, with_file
from tests.testbed.nvml.values import VALUES_PATH
from tests.testbed.slurm import CPUS, SlurmBed, slurm
from tests.testbed.slurm_version import OWN, SlurmVersion

SCRIPTS = Path(__file__).parents[3] / "integrations" / "slurm"
STATE = "var/lib/clusterproof/slurm"
SETTINGS = "/etc/clusterproof/slurm.toml"
SYSLOG = "run/syslog"
POLICY = """[disabled."network.memlock"]
reason = "this kernel does not let the testbed raise the limit of a real slurmd"
until = 9999-12-31
"""
BUDGET = f"/{STATE}/drain_budget.json"
NAMES = {"Prolog": "prolog", "Epilog": "epilog", "HealthCheckProgram": "health-check"}

# A stand-in for syslogd: one datagram, one line.
LISTENER = f"""
import os, socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind("/dev/log")
with open("/{SYSLOG}", "ab", buffering=0) as log:
    while True:
        log.write(listener.recv(8192) + b"\\n")
"""


DRAIN = 'mode = "drain"\ndeadline_s = 8\n'  # the maximum, as other tests keep this machine busy
DRAIN_ANEW = f"{DRAIN}reuse_s = 0\n"  # each job by a run of its own


def put(node: Node, image: NodeImage) -> None:
    """Have a node's driver answer like this image's from now on."""
    (node.root / VALUES_PATH.lstrip("/")).write_text(image.nvml or "")


@dataclass
class Scripted:
    """A running Slurm whose nodes have the scripts and a syslog."""

    bed: SlurmBed

    def node(self, name: str) -> Node:
        return self.bed.node(name)

    def state_file(self, name: str, file: str) -> Path:
        return self.node(name).root / STATE / file

    def set(self, name: str, toml: str) -> None:
        """Change a node's settings."""
        (self.node(name).root / SETTINGS.lstrip("/")).write_text(settings(toml))

    def nvml(self, name: str, image: NodeImage) -> None:
        """Have a node's driver answer like this image's from now on."""
        put(self.node(name), image)

    def logged(self, name: str) -> str:
        """What the scripts have written to the node's syslog."""
        log = self.node(name).root / SYSLOG
        return log.read_text() if log.exists() else ""

    def once_more(self, name: str) -> str:
        """Run a node's health check as slurmd does, without waiting for its interval; returns its log."""
        self.node(name).run(["/etc/slurm/health-check"], env={"SLURMD_NODENAME": name})
        return self.logged(name)

    def probes(self, name: str, occasion: str) -> int:
        """How often the node was probed on an occasion."""
        return sum(f": {occasion}" in line and " checks in " in line for line in self.logged(name).splitlines())

    def processes(self, name: str, *parts: str) -> str:
        """Process ids on a node whose command line contains one of these words, oldest first."""
        listed = self.node(name).run(["ps", "-eo", "pid=,args="]).stdout.decode().splitlines()
        return " ".join(line.split()[0] for line in listed if any(word in line for word in parts))

    def submit(self, *among: str, user: int = 0, script: str = "true", array: str = "") -> str:
        """Submit a batch job, or an array, for one of these nodes; returns its number."""
        excluded = ",".join(sorted(set(self.bed.names) - set(among)))
        arguments = ["sbatch", "--parsable", "--output=/dev/null", f"--wrap={script}", "--chdir=/"]
        arguments += [f"--exclude={excluded}"] if excluded else []
        arguments += [f"--array={array}"] if array else []
        return self.bed.output_of(*arguments, user=user).strip()

    def field(self, job: str, key: str) -> str:
        """A field of `scontrol show job`."""
        words = self.bed.output_of("scontrol", "show", "job", job).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{key}=")), "")

    def ran_on(self, job: str) -> str:
        """The node on which a job ran to its end; a requeued job is started without its two minutes' wait."""

        def finished() -> str:
            if self.field(job, "JobState") == "PENDING" and self.field(job, "Restarts") != "0":
                self.bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            return self.field(job, "NodeList") if self.field(job, "JobState") == "COMPLETED" else ""

        return eventually(finished)

    def reason_beginning(self, name: str, text: str) -> str:
        """Wait until a drained node's reason begins with this."""
        return eventually(lambda: reason if (reason := self.bed.reason(name)).startswith(text) else "")

    def listed(self) -> str:
        """The output of `sinfo -R` for an administrator."""
        return self.bed.output_of("sinfo", "-R", "-h", "-o", "%N|%E")


def eventually(look: Callable[[], str], timeout_s: float = 600.0) -> str:
    """Wait for a result and return it. Raises TimeoutError."""
    until = time.monotonic() + timeout_s
    while not (value := look()):
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)
    return value


@contextlib.contextmanager
def scripted(
    images: Mapping[str, NodeImage],
    scripts: Mapping[str, str],
    toml: str,
    *more: str,
    cpus: int = CPUS,
    home: str | Path = sys.prefix,
    version: SlurmVersion = OWN,
) -> Iterator[Scripted]:
    """Run a Slurm whose slurm.conf names these scripts (`lines`), with `more` lines; images may have other settings.

    `home` is the environment at /opt/clusterproof on the nodes.
    """
    files: dict[str, Content] = {
        "/etc/clusterproof/policy.toml": POLICY,
        "/opt/clusterproof": Link(str(home)),
        BUDGET: drain_budget,
        **{f"/etc/slurm/{name}": File(text, 0o755) for name, text in scripts.items()},
    }
    named = [f"{keyword}=/etc/slurm/{name}" for keyword, name in NAMES.items() if name in scripts]
    furnished = {
        name: with_imports(with_file(image, SETTINGS, image.files.get(SETTINGS, settings(toml))))
        for name, image in images.items()
    }
    with slurm(furnished, settings=[*named, *more], files=files, cpus=cpus, version=version) as bed:
        for name in images:
            bed.node(name).start([sys.executable, "-c", LISTENER])
            leave_cache(bed.node(name))
        yield Scripted(bed)


def drain_budget(full: str = "", age_s: float = 0.0) -> str:
    """What a health check of that age has left on a node; no partition is full unless `words` say so."""
    return json.dumps({"boot_id": BOOT_ID, "at": since_boot_s() - age_s, "full": full, "nodes": 2})


def lines(*names: str) -> dict[str, str]:
    """The scripts' text by name."""
    return {name: (SCRIPTS / f"clusterproof-{name}").read_text() for name in names}


def settings(toml: str) -> str:
    """The scripts' settings, with a policy, a deadline and a limit on drained nodes suitable for the testbed."""
    limits = "" if "[health_check]" in toml else "[health_check]\nmax_drained_percent = 100\n"
    deadline = "" if "deadline_s" in toml else "deadline_s = 8\n"
    return f'policy = "/etc/clusterproof/policy.toml"\n{deadline}{toml}{limits}'
