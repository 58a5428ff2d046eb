"""`--job`: watches one Slurm or Kubernetes job, ends with it and leaves its report."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.evidence import Collected, EvidenceError, load
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.own_python import python_running
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.fact import answer_of
from clusterproof.plugins.evidence.recording import recording_file, write_node
from clusterproof.plugins.evidence.slurm.facts_jobs import COMPLETING, SlurmJobs
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.training_job import FORM, JobState, job_named
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.srun import JOBS, ask_slurm, submit_host
from clusterproof.plugins.watch.own_health import Outage

KUBERNETES_FORMS = ("k8s:", "eks:")  # jobs that have a namespace and a name
NUMBER = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?")  # of a Slurm job: also of an array, or of a heterogeneous job
ASK_S = 30.0  # between queries of the job's state; it is queried at once when a connection ends
MIN_S = 2.0
HALTED = frozenset({"suspended", "stopped"})  # states in which no step of a job runs, so that samplers send nothing
MARKS = "preflight or run"
REPORT = "report"  # the folder inside the recording
MAIN = "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())"


class NoJob(ClusterproofError):  # noqa: N818 - what it is
    """Not a valid job; the message says what was expected."""


def cluster_of(job: str, cluster: str | None) -> str:
    """The X of `--cluster` for exactly the nodes of a job. Raises NoJob."""
    if "/" in job:
        named = cluster or KUBERNETES_FORMS[0]
        if not named.startswith(KUBERNETES_FORMS):
            raise NoJob(
                f"--job {job!r:.80} is a Kubernetes job, and --cluster {named!r:.80}; expected k8s:… or eks:NAME"
            )
        return f"{named}/job:{job}"
    if not NUMBER.fullmatch(job):
        raise NoJob(f"--job is {job!r:.80}; expected the number of a Slurm job, or {FORM}")
    if cluster:
        raise NoJob(f"--job {job} is a Slurm job, and Slurm is asked from here; expected no --cluster, or {FORM}")
    return f"slurm:job:{job}"


def folder_of(job: str) -> str:
    """The default folder for the recording of a job."""
    return f"clusterproof-job-{job.replace('/', '-')}"


def job_query(job: str, cluster: Cluster, say: Callable[[str], object]) -> tuple[Callable[[], str], Mapping[str, str]]:
    """A function for the job's state, empty once it is over; raises Incomplete, KubernetesError if unknown.

    And one for its pods' nodes by host, as last found; empty for a Slurm job.
    """
    if cluster.connection != "kubernetes":
        return partial(state_of, job, cluster.settings), {}
    api = open_api(cluster.settings)
    kubernetes_job, began = job_named(api, job)

    def moved(others: Sequence[str]) -> None:
        say(
            f"job {job} has pods on {within(fold(others), 200)} now, which nobody watches; expected another watch of it"
        )

    state = JobState(api, kubernetes_job, began, moved)
    return state, state.places


def state_of(job: str, settings: Mapping[str, str]) -> str:
    """Slurm's name of the job's state, empty once it is over. Raises Incomplete if Slurm does not answer."""
    answer = ask_slurm(submit_host(settings), Limits(), (JOBS,))[JOBS]
    state = SlurmJobs(answer_of(JOBS, answer).value).state_of(job)
    return "" if state == COMPLETING else state


class JobMonitor:
    """A thread that queries the job's state, reports states in which it does not run, and calls `over` at its end."""

    def __init__(
        self,
        job: str,
        state: Callable[[], str],
        over: Callable[[], object],
        say: Callable[[str], object],
        pod_hosts: Mapping[str, str] = {},
    ) -> None:
        """`state` returns a word such as `running`, or empty once over. `pod_hosts`: its nodes by host."""
        self.pod_hosts = pod_hosts
        self._job, self._state, self._over, self._say = job, state, over, say
        self._halted = ""
        self._outage = Outage(
            say, "whether the job runs is not known: {why}; watching goes on", "whether the job runs is known again"
        )
        self._query_due, self._is_closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="watch-job", daemon=True)

    def __enter__(self) -> JobMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._query_due.set()

    def query_soon(self) -> None:
        """Query soon: a connection has ended, and the job may have too."""
        self._query_due.set()

    def _keep(self) -> None:
        while not self._is_closed.wait(MIN_S):
            try:
                state = self._state()
                self._outage.worked()
                if not state:
                    self._say(f"job {self._job} has ended, or has left its nodes to be started again")
                    self._over()
                    return
                self._look(state)
            except Exception as problem:  # no answer, or a bug of ours: neither ends the watch
                self._outage.failed(problem)
            self._query_due.wait(ASK_S)
            self._query_due.clear()

    def _look(self, state: str) -> None:
        halted = state if state in HALTED else ""
        if halted and not self._halted:
            self._say(f"job {self._job} is {state}: its nodes send nothing until it goes on; watching goes on")
        elif self._halted and not halted:
            self._say(f"job {self._job} goes on")
        self._halted = halted


def keep_latest(folder: Path, names: Iterable[str], latest: Callable[[str], Mapping[str, Collected]]) -> None:
    """Add what nodes have reported since their last visit to that visit's recording. Raises OSError."""
    for name in names:
        path = folder / "nodes" / recording_file(name)
        with contextlib.suppress(FileNotFoundError, EvidenceError):
            visited = load(path.read_bytes())
            write_node(folder, replace(visited, collectors={**visited.collectors, **latest(name)}))


def evaluate_recorded(folder: Path, steps: Sequence[str], policy: str | None) -> None:
    """Evaluate the recording, both nodes and run, and write the report next to it."""
    missing = [path for path in steps if not Path(path).exists()]
    for path in missing:
        sys.stdout.write(f"--steps {path}: there is no such file; the report goes without it\n")
    sys.stdout.flush()
    runs_of = [word for path in (str(folder), *steps) if path not in missing for word in ("--run", path)]
    arguments = ["check", f"replay:{folder}", "-m", MARKS, "--report", str(folder / REPORT), *runs_of]
    subprocess.run([*python_running(MAIN), *arguments, *(["--policy", policy] if policy else [])], check=False)
