"""Pods from the API server, and a job by name: typed, bounded, with only the fields in use."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.kubernetes import NOT_FOUND, decoded
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.nodes import entries, held_devices, number, parts, table, tables, text, texts

ENDED = ("Succeeded", "Failed")  # phases of a pod


@record
class Container:
    """One container of a pod; `waiting` and `ended` are the runtime's reasons, else empty."""

    name: str
    image: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    is_ready: bool
    is_running: bool
    restarts: int
    waiting: str
    waiting_message: str
    ended: str
    ended_message: str
    exit_code: int | None


@record
class Pod:
    """A pod; `deleted` is since when it is being deleted, `owner` its creator (`DaemonSet/kube-proxy`)."""

    namespace: str
    name: str
    node: str
    phase: str
    reason: str
    message: str
    created: str
    deleted: str
    owner: str
    labels: Mapping[str, str]
    containers: tuple[Container, ...]
    disruption: str  # who ends it and why, if known: the message of DisruptionTarget
    scheduled: str  # why it is not scheduled: the message of PodScheduled
    is_ready: bool = False
    ready: str = ""  # since when it is or is not ready, in Kubernetes' time format
    controller: str = ""  # the uid of the object that created it, and removes it
    hostname: str = ""  # the host name in its programs; empty if that is the node's
    meant: str = ""  # for a DaemonSet's pod: its intended node, even before it is scheduled
    devices: Mapping[str, int] = field(default_factory=dict)  # held by all of its containers together, by resource
    claims: int = 0  # of devices, by Dynamic Resource Allocation

    @property
    def has_ended(self) -> bool:
        """Whether none of it runs any more: it holds nothing of its node."""
        return self.phase in ENDED

    def container(self, name: str) -> Container | None:
        """The container of that name: webhooks add others."""
        return next((container for container in self.containers if container.name == name), None)


def pods(api: Api, namespace: str = "", node: str = "", selector: str = "") -> list[Pod]:
    """The pods of a namespace or node with these labels; empty means any. Raises KubernetesError."""
    query = {"labelSelector": selector} if selector else {}
    if node:
        query["fieldSelector"] = f"spec.nodeName={node}"
    where = f"/namespaces/{namespace}" if namespace else ""
    return [pod_of(resource) for resource in api.listed(f"/api/v1{where}/pods", **query)]


ITEMS = b'"items":['  # of a listing: its objects follow, and its continuation precedes


class PodPages:
    """Lists pods repeatedly: pages whose bytes are unchanged are not decoded again."""

    def __init__(self) -> None:
        self._before: Mapping[bytes, list[Pod]] = {}

    def listed(self, api: Api, namespace: str, selector: str) -> list[Pod]:
        """The current pods of a namespace with these labels. Raises KubernetesError."""
        now: dict[bytes, list[Pod]] = {}

        def read(content: bytes) -> Mapping[str, Any]:
            head, separator, items = content.partition(ITEMS)
            digest = hashlib.sha256(items).digest()
            is_known = bool(separator) and b'"metadata":' in head and digest in self._before
            page = decoded(head + ITEMS + b"]}" if is_known else content)
            now[digest] = self._before[digest] if is_known else list(map(pod_of, page.get("items") or ()))
            return {**page, "items": now[digest]}

        pages = api.pages(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector}, read)
        listed = [pod for page in pages for pod in page["items"]]
        self._before = now
        return listed


def pod_of(resource: object) -> Pod:
    """Parse a pod."""
    metadata, spec, status = parts(resource)
    states = {text(container.get("name")): container for container in tables(status.get("containerStatuses"))}
    references = tables(metadata.get("ownerReferences"))
    owner = next(iter(references), {})
    controls = (reference for reference in references if reference.get("controller") is True)
    conditions = {text(condition.get("type")): condition for condition in tables(status.get("conditions"))}
    ready = conditions.get("Ready", {})
    scheduled, disruption = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    return Pod(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        node=text(spec.get("nodeName")),
        phase=text(status.get("phase")),
        reason=text(status.get("reason")),
        message=text(status.get("message")),
        created=text(metadata.get("creationTimestamp")),
        deleted=text(metadata.get("deletionTimestamp")),
        owner=f"{text(owner.get('kind'))}/{text(owner.get('name'))}" if owner else "",
        labels=texts(metadata.get("labels")),
        containers=tuple(
            _container(container, states.get(text(container.get("name")), {}))
            for container in tables(spec.get("containers"))
        ),
        disruption=text(disruption.get("message")),
        scheduled=text(scheduled.get("message")) if scheduled.get("status") == "False" else "",
        is_ready=ready.get("status") == "True",
        ready=text(ready.get("lastTransitionTime")),
        controller=text(next(controls, {}).get("uid")),
        hostname="" if spec.get("hostNetwork") is True else _hostname(metadata, spec),
        meant=_target_node(spec),
        devices=held_devices(spec),
        claims=len(tables(spec.get("resourceClaims"))),
    )


def _target_node(spec: Mapping[str, Any]) -> str:
    """The node that the DaemonSet controller tells the scheduler."""
    affinity = table(table(spec.get("affinity")).get("nodeAffinity"))
    required = table(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    fields = [field for term in tables(required.get("nodeSelectorTerms")) for field in tables(term.get("matchFields"))]
    named = (entries(field.get("values")) for field in fields if field.get("key") == "metadata.name")
    return text(next((name for names in named for name in names), ""))


def _hostname(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The host name that the kubelet derives from the spec."""
    return text(spec.get("hostname")) or text(metadata.get("name"))[:63].rstrip("-.")


def waiting_message(state: Mapping[str, Any]) -> str:
    """Why a container waits, behind how it ended before: `OOMKilled, exit code 137; back-off 5m0s`; else empty."""
    waiting = table(table(state.get("state")).get("waiting"))
    ended = table(table(state.get("lastState")).get("terminated")) if waiting else {}
    before = f"{text(ended.get('reason')) or 'ended'}, exit code {number(ended.get('exitCode'))}" if ended else ""
    return "; ".join(filter(None, (before, text(waiting.get("message")))))


def _container(spec: Mapping[str, Any], state: Mapping[str, Any]) -> Container:
    resources, now = table(spec.get("resources")), table(state.get("state"))
    waiting, ended = table(now.get("waiting")), table(now.get("terminated"))
    return Container(
        name=text(spec.get("name")),
        image=text(spec.get("image")),
        requests=texts(resources.get("requests")),
        limits=texts(resources.get("limits")),
        is_ready=state.get("ready") is True,
        is_running=isinstance(now.get("running"), dict),
        restarts=number(state.get("restartCount")),
        waiting=text(waiting.get("reason")),
        waiting_message=waiting_message(state),
        ended=(text(ended.get("reason")) or "Ended") if ended else "",
        ended_message=text(ended.get("message")),
        exit_code=number(ended.get("exitCode")) if ended else None,
    )


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
