"""A program that stays on a node of one's own job: a Slurm step, which takes no resources from the job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Program
from clusterproof.plugins.transport.srun_places import FOLDERS, KEPT
from clusterproof.plugins.transport.staying import Heard, Staying
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
