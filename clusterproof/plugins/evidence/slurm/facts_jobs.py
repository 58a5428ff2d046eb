"""Typed facts on the jobs of Slurm that have nodes."""

from __future__ import annotations

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Reported, read, texts, values
from clusterproof.plugins.evidence.slurm.facts import nodes_named

NO_STEPS = frozenset({"SUSPENDED", "CONFIGURING", "COMPLETING"})  # states of a job that has nodes but cannot take steps
COMPLETING = "completing"  # ended, except for what is still ending on its nodes
MAX_STATE = 20  # characters


@record
class SlurmJobs(Reported):
    """The jobs that have nodes, according to `squeue`."""

    @property
    def job(self) -> str:
        """The job in which Slurm was asked; empty outside of a job."""
        return str(self.data.get("job") or "")

    def nodes_of(self, job: str) -> tuple[str, ...]:
        """The nodes of a job that can take steps, by its number or as `squeue` shows it; empty if there is none."""
        running = (nodes for _, nodes, state in self._rows_of(job) if state not in NO_STEPS)
        return tuple(sorted({name for nodes in running for name in read(nodes, nodes_named, "slurm_jobs: nodes")}))

    def state_of(self, job: str) -> str:
        """`running`, `suspended`, `stopped`, …; empty if the job has no nodes, as it waits or has ended."""
        return next((printable(state.lower(), MAX_STATE) for _, _, state in self._rows_of(job)), "")

    def number_of(self, job: str) -> str:
        """The job's own number, which an array task has besides `12_3`; empty if none runs, or several match."""
        numbers = {number for number, _, _ in self._rows_of(job)}
        return numbers.pop() if len(numbers) == 1 else ""

    def other_components_of(self, job: str) -> tuple[str, ...]:
        """The other components of a heterogeneous job, which have jobs' numbers of their own: `77+1` of `77+0`."""
        components = [shown for shown, _, _, _ in self._rows if "+" in shown]
        own = {shown for shown, number, _, _ in self._rows if job in (shown, number)}
        whole = {shown.partition("+")[0] for shown in own.intersection(components)}
        return tuple(shown for shown in components if shown not in own and shown.partition("+")[0] in whole)

    def tasks_of(self, job: str) -> tuple[str, ...]:
        """The tasks that have nodes of a job array, by its number: `7_1` and `7_2` of `7`; empty if it is none."""
        return tuple(shown for shown, _, _, _ in self._rows if shown.startswith(f"{job}_"))

    def _rows_of(self, job: str) -> list[tuple[str, str, str]]:
        """The matching jobs' own numbers, nodes and states."""
        return [(number, nodes, state) for shown, number, nodes, state in self._rows if job in (shown, number)]

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [read(row, _row, "slurm_jobs: a job") for row in read(self.data.get("jobs"), values, "slurm_jobs: jobs")]


def _row(data: object) -> tuple[str, ...]:
    """A job as `squeue` shows it, its number, its nodes and its state. Raises TypeError, ValueError."""
    shown, number, nodes, state = texts(data)
    return shown, number, nodes, state
