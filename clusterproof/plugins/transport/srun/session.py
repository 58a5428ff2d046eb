"""A program that runs on a node as a step of one's own job, by an srun on the submit host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from concurrent.futures import Future

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Limits, Program
from clusterproof.plugins.transport.sessions import NodeSession, Received, SessionOfEach, sessions_for
from clusterproof.plugins.transport.srun.places import FOLDERS, KEPT
from clusterproof.plugins.transport.srun.submit_host import submit_host

JOB = "job"  # the setting with its number
# What this is run in may be a job itself, whose environment would steer srun.
_CLEAN = (
    "for one in $(env | sed -n 's/^\\(S[A-Z]*_[A-Z0-9_]*\\)=.*/\\1/p'); do case $one in "
    f"{'|'.join(KEPT)}) ;; SLURM_*|SRUN_*|SBATCH_*) unset $one ;; esac; done"
)
_STEP = (
    "--job-name=clusterproof-watch --nodes=1 --ntasks=1 --overlap --mem=0 --cpu-bind=none --mpi=none --export=NONE "
    "--propagate=NONE --chdir=/ --quiet"
)


def sessions(limits: Limits) -> SessionOfEach:
    """Those of a job: each is one to the submit host, which has to be reached by a connection that has some."""
    to_host = sessions_for(submit_host(limits.settings).connection, limits)
    return SessionOfEach(lambda: SrunSession(to_host.on_node(lambda _: None), limits.settings))


class SrunSession:
    """Over srun, which runs on the submit host: there `inner` stays. Its input's end ends srun, and that the step."""

    has_input = True

    def __init__(self, inner: NodeSession, settings: Mapping[str, str]) -> None:
        self._inner, self._settings = inner, settings

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """As NodeSession has it."""
        command = step(target.name, program.command, self._settings)
        return self._inner.run(submit_host(self._settings).target, replace(program, command=command), received, dead_s)

    def end(self) -> None:
        """As NodeSession has it."""
        self._inner.end()


def step(node: str, command: str, settings: Mapping[str, str]) -> str:
    """The command line for the submit host that runs a command on a node of the job."""
    options = [f"--jobid={settings[JOB]}", f"--nodelist={node}", *shlex.split(settings.get("srun_options", ""))]
    srun = f"exec srun {_STEP} {shlex.join(options)} /bin/sh -c {shlex.quote(command)}"
    return f"/bin/sh -c {shlex.quote(f'PATH=$PATH:{FOLDERS}; {_CLEAN}; {srun}')}"
