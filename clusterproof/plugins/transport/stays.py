"""What stays on the nodes of a cluster, by the connection that reaches them; over srun, as a step of one's own job."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Limits, Program
from clusterproof.plugins.transport.srun_places import FOLDERS, KEPT
from clusterproof.plugins.transport.staying import Heard, LocalStaying, SshStaying, Staying, Stays
from clusterproof.plugins.transport.staying_by_pod import PodStays
from clusterproof.plugins.transport.submit_host import submit_host

JOB = "job"  # the setting with its number
STREAMING = ("local", "ssh")  # ways to a submit host over which anything stays
# What this is run in may be a job itself, whose environment would steer srun.
_CLEAN = (
    "for one in $(env | sed -n 's/^\\(S[A-Z]*_[A-Z0-9_]*\\)=.*/\\1/p'); do case $one in "
    f"{'|'.join(KEPT)}) ;; SLURM_*|SRUN_*|SBATCH_*) unset $one ;; esac; done"
)
_STEP = (
    "--job-name=clusterproof-watch --nodes=1 --ntasks=1 --overlap --mem=0 --cpu-bind=none --mpi=none --export=NONE "
    "--propagate=NONE --chdir=/ --quiet"
)


class SrunStaying:
    """Over srun, which runs on the submit host: there `inner` stays. Its input's end ends srun, and that the step."""

    is_heard = True

    def __init__(self, inner: Staying, settings: Mapping[str, str]) -> None:
        self._inner, self._settings = inner, settings

    def stay(self, target: Target, program: Program, heard: Heard, dead_s: float) -> str:
        """As Staying has it."""
        command = step(target.name, program.command, self._settings)
        return self._inner.stay(submit_host(self._settings).target, replace(program, command=command), heard, dead_s)

    def end(self) -> None:
        """As Staying has it."""
        self._inner.end()


def step(node: str, command: str, settings: Mapping[str, str]) -> str:
    """The command line for the submit host that runs a command on a node of the job."""
    words = [f"--jobid={settings[JOB]}", f"--nodelist={node}", *shlex.split(settings.get("srun_options", ""))]
    srun = f"exec srun {_STEP} {shlex.join(words)} /bin/sh -c {shlex.quote(command)}"
    return f"/bin/sh -c {shlex.quote(f'PATH=$PATH:{FOLDERS}; {_CLEAN}; {srun}')}"


def stays_for(connection: str, limits: Limits) -> Stays:
    """What stays on nodes that are reached so."""
    return PodStays(limits) if connection == "kubernetes" else Connections(connection, limits)


class Connections:
    """By a connection to each node, which has an input."""

    is_heard = True

    def __init__(self, connection: str, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._slots = threading.Semaphore(limits.fanout)  # how many may log in at once

    def open(self, text: str) -> None:
        """As Stays has it."""

    def on_node(self, cut: Callable[[str], object]) -> Staying:  # noqa: ARG002 - they end when they are cut
        """As Stays has it."""
        return self._by(self._connection)

    def close(self) -> None:
        """As Stays has it: each has been told to."""

    def _by(self, connection: str) -> Staying:
        if connection == "srun":
            settings = self._limits.settings
            return SrunStaying(self._by(submit_host(settings).connection), settings)
        return LocalStaying() if connection == "local" else SshStaying(self._limits, self._slots)
