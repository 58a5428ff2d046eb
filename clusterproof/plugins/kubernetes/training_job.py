"""A training job by name: which of its pods run where, and whether it is over."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.pods import Pod, pods
from clusterproof.plugins.kubernetes.values import parts, tables

OF_JOB = "batch.kubernetes.io/job-name"
LABELS = (  # labels of pods with their job's name; kinds that create other jobs come before those
    "jobset.sigs.k8s.io/jobset-name",  # JobSet, and so Kubeflow's TrainJob
    "training.kubeflow.org/job-name",  # PyTorchJob, MPIJob and the others of Kubeflow's training operator
    "volcano.sh/job-name",
    OF_JOB,
    "job-name",  # Job, also for Kubernetes before 1.27
)
NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
FORM = "NAMESPACE/NAME of a Job, JobSet, PyTorchJob, MPIJob, TrainJob or Volcano's Job"
OVER = ("Complete", "Failed")  # conditions of a Job
ABSENT_S = 60.0  # without a running pod: a controller that restarts a job has created others by then
MAX_PLACES = 20_000


@record
class TrainingJob:
    """A job, and the label of its pods."""

    namespace: str
    name: str
    label: str

    @property
    def selector(self) -> str:
        """The label selector of its pods."""
        return f"{self.label}={self.name}"


def job_named(api: Api, text: str) -> tuple[TrainingJob, Sequence[Pod]]:
    """The job `NAMESPACE/NAME`, and its scheduled pods. Raises KubernetesError if there is none."""
    namespace, _, name = text.partition("/")
    if not (NAME.fullmatch(namespace) and NAME.fullmatch(name)):
        raise KubernetesError(f"{text!r:.120} is not a Kubernetes job; expected {FORM}")
    there = pods(api, namespace)
    label = next((label for label in LABELS if any(pod.labels.get(label) == name for pod in there)), "")
    if not label:
        known = sorted({pod.labels[label] for pod in there for label in LABELS if label in pod.labels})
        known_jobs = f"those of {listed(known)} are there" if known else "there are none of any job"
        missing = f"no pod in the namespace {namespace} is of a job {name!r:.120}{nearest(name, known)}"
        raise KubernetesError(f"{missing}: {known_jobs}; expected {FORM}")
    job = TrainingJob(namespace, name, label)
    alive = _alive(pod for pod in there if pod.labels.get(label) == name)
    if not alive:
        raise KubernetesError(f"no pod of the job {text} runs on a node; expected a job that has begun and not ended")
    return job, alive


def _alive(there: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in there if pod.node and not pod.has_ended]


class JobState:
    """The state of a job; calls `moved` with nodes that are new to it. `places`: nodes by host."""

    def __init__(
        self,
        api: Api,
        job: TrainingJob,
        began: Sequence[Pod],
        moved: Callable[[Sequence[str]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._job, self._moved, self._clock = api, job, moved, clock
        self._known = {pod.node for pod in began}
        self._seen = clock()
        self._is_reported = False  # by the Job itself
        self.places: dict[str, str] = {}
        self._placed(began)

    def __call__(self) -> str:
        """The current state: `running`, or empty once over. Raises KubernetesError."""
        if self._job.label == OF_JOB and self._is_over():
            return ""
        alive = _alive(pods(self._api, self._job.namespace, selector=self._job.selector))
        self._placed(alive)
        others = sorted({pod.node for pod in alive} - self._known)
        if others:
            self._known.update(others)
            self._moved(others)
        if alive or self._is_reported:
            self._seen = self._clock()
        return "running" if self._clock() - self._seen < ABSENT_S else ""

    def _placed(self, alive: Iterable[Pod]) -> None:
        """Remember where pods are, up to a limit."""
        for pod in alive:
            if pod.hostname and len(self.places) < MAX_PLACES:
                self.places[pod.hostname] = pod.node if self.places.get(pod.hostname, pod.node) == pod.node else ""

    def _is_over(self) -> bool:
        """Whether the Job itself reports its end; without permission for it, judges by pods. Raises KubernetesError."""
        path = f"/apis/batch/v1/namespaces/{self._job.namespace}/jobs/{self._job.name}"
        self._is_reported = False
        try:
            _, _, status = parts(self._api.get(path))
        except KubernetesDenied:
            return False
        except KubernetesError as problem:
            if problem.status == NOT_FOUND:
                return True
            raise
        self._is_reported = True
        conditions = tables(status.get("conditions"))
        return any(condition.get("type") in OVER and condition.get("status") == "True" for condition in conditions)
