"""Asks Kubernetes about one job: its object, pods, their logs, events, and nodes that are not ready."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.captures.text import plain
from clusterproof.plugins.case import CaseError, Event, Job, MissingKind, Span, label, one_line, pods, runs_of_log
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.ends import HEAD_BYTES, TAIL_BYTES
from clusterproof.plugins.case.folder import MAX_BYTES
from clusterproof.plugins.case.node_log import how_to_get_it
from clusterproof.plugins.case.output import LEFT_OUT, Output, OutputSource
from clusterproof.plugins.case.pods import JOBS
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.catalog.kubernetes import health_of_hyperpod, is_fault
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.opened import Budget
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.inventory.kubernetes import OF_JOB, access_to
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.access import SETTING
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.kubernetes.pods import ENDED
from clusterproof.plugins.kubernetes.training_job import FORM, LABELS, NAME
from clusterproof.plugins.kubernetes.values import number, parts, table, tables, text

OBJECTS = {  # job kinds: API path, and name; HyperPod's is of its training operator
    "Job": "batch/v1/{}/jobs",
    "JobSet": "jobset.x-k8s.io/v1alpha2/{}/jobsets",
    "PyTorchJob": "kubeflow.org/v1/{}/pytorchjobs",
    "MPIJob": "kubeflow.org/v1/{}/mpijobs",
    "TrainJob": "trainer.kubeflow.org/v1alpha1/{}/trainjobs",
    "HyperPodPyTorchJob": "sagemaker.amazonaws.com/v1/{}/hyperpodpytorchjobs",
}
HYPERPOD_KIND = "HyperPodPyTorchJob"  # its pods have no job label, but names that begin with the job's
ROLES = ("training.kubeflow.org/job-role", "training.kubeflow.org/replica-type", "mpi-job-role")  # labels of pods
LAUNCHER = "launcher"  # of an MPIJob: prints what the ranks of all its pods print
MARKED = "node_marked"  # a sign
OF_HYPERPOD = "sagemaker.amazonaws.com/"
HEALTH_LABEL = f"{OF_HYPERPOD}node-health-status"
REASON_LABELS = tuple(f"{OF_HYPERPOD}fault-{word}" for word in ("type", "types", "reason", "reasons"))
LAST_LINES = 50_000  # of a container's log that exceeds the head limit
MAX_NODES = 2_000  # maximum number to request


def access_of(job: str) -> tuple[str, Mapping[str, str], str]:
    """The cluster, access to it, and `NAMESPACE/NAME`. Raises CaseError, InventoryError."""
    where, is_named, name = job.rpartition(f"/{OF_JOB}")
    namespace, _, rest = name.partition("/")
    if not (NAME.fullmatch(namespace) and NAME.fullmatch(rest)):
        raise CaseError(
            f"{job!r:.120} is not a job of Kubernetes; expected {FORM}, or k8s:CONTEXT/{OF_JOB}NAMESPACE/NAME"
        )
    return (where, access_to(where, {}), name) if is_named else ("k8s:", {SETTING: "context:"}, name)


def is_named(job: str) -> bool:
    """Whether this names a Kubernetes job."""
    namespace, slash, name = job.rpartition(f"/{OF_JOB}")[2].partition("/")
    return bool(slash and NAME.fullmatch(namespace) and NAME.fullmatch(name))


def read_job(api: Api, named: str, builder: CaseBuilder, offset_s: float) -> None:
    """Add what Kubernetes knows about a job. Raises CaseError if it is unknown, or has not ended."""
    reader = _Reader(api, named, builder, Clock(0, offset_s))
    objects = list(reader.objects())
    replicas, jobs = list(_replicas_of_hyperpod(objects)), [parts(resource)[0] for resource in objects]
    pods_of_job = [
        pod
        for pod in reader.listed("pods")
        if is_of(pod, reader.name, replicas) and (not jobs or belongs_to(pod, reader.name, jobs))
    ]
    if not objects and not pods_of_job:
        why = f": {builder.missing[-1]}" if builder.missing else ""
        raise CaseError(f"Kubernetes has no job {named!r:.120} and no pod of one{why}; expected {FORM}")
    ran = _one_job(
        named, [job for resource in objects if (job := pods.job_of(resource, reader.clock))], pods_of_job, reader.clock
    )
    for resource in objects:
        builder.take_object(resource, text(resource.get("kind")), reader.clock)
    nodes_of_pods = {_name(resource): _node(resource) for resource in pods_of_job}
    for resource in pods_of_job:
        reader.take_pod(resource, nodes_of_pods)
    builder.objects.clear()
    builder.objects[named] = ran
    builder.count("job of Kubernetes")
    reader.take_events({reader.name, *nodes_of_pods}, [*objects, *pods_of_job])
    reader.take_nodes(ran.ran)
    lost = max((number(parts(resource)[2].get("failed")) for resource in objects), default=0)
    lost -= sum(parts(resource)[2].get("phase") == "Failed" for resource in pods_of_job)
    if lost > 0:
        builder.lack(f"{number_of(lost, 'pod')} of it that failed and are no longer there")
    if builder.job.nodes and not builder.nodes_with_log:
        builder.lack(one_line(how_to_get_it(builder.job.nodes, ran.ran), 400), MissingKind.COMMAND)


def _name(pod: Mapping[str, Any]) -> str:
    return text(parts(pod)[0].get("name"))


def _node(pod: Mapping[str, Any]) -> str:
    return label(text(parts(pod)[1].get("nodeName")))


def _on_nodes(read: Output, nodes_of_pods: Mapping[str, str]) -> Output:
    """The same with nodes in place of pods, as whose hosts NCCL and mpirun name them."""
    nodes = {label(pod): node for pod, node in nodes_of_pods.items()}
    events, outlived = (
        tuple(replace(event, node=nodes.get(event.node, event.node)) for event in some)
        for some in (read.events, read.outlived)
    )
    of_ranks = {rank: nodes.get(node, node) for rank, node in read.nodes_of_ranks.items()}
    return replace(read, events=events, outlived=outlived, nodes_of_ranks=of_ranks)


def _replicas_of_hyperpod(objects: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The replica names in jobs of HyperPod's operator: `pod` by default, as in its command line."""
    for resource in objects:
        if resource.get("kind") == HYPERPOD_KIND:
            named = [text(replica.get("name")) for replica in tables(parts(resource)[1].get("replicaSpecs"))]
            yield from filter(None, named or ["pod"])


def is_of(pod: Mapping[str, Any], name: str, replicas: Collection[str]) -> bool:
    """Whether a pod belongs to the job of this name; HyperPod's operator names it `name-pod-0`."""
    metadata = parts(pod)[0]
    labels, own = metadata.get("labels"), text(metadata.get("name"))
    if isinstance(labels, dict) and any(labels.get(label) == name for label in LABELS):
        return True
    owners = tables(metadata.get("ownerReferences"))
    if any(owner.get("kind") in JOBS and owner.get("name") == name for owner in owners):
        return True
    head, _, number_of_pod = own.rpartition("-")
    return number_of_pod.isdecimal() and head in {f"{name}-{replica}" for replica in replicas}


def belongs_to(pod: Mapping[str, Any], name: str, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pod is not of an earlier job of that name being deleted; `jobs` are the jobs' metadata."""
    metadata = parts(pod)[0]
    uids = {text(job.get("uid")) for job in jobs}
    made, newest = text(metadata.get("creationTimestamp")), max(text(job.get("creationTimestamp")) for job in jobs)
    owners = tables(metadata.get("ownerReferences"))
    return not (made and made < newest) and all(
        owner.get("name") != name or text(owner.get("uid")) in uids for owner in owners
    )


class _Reader:
    """Reads the objects of one namespace, as far as permitted."""

    def __init__(self, api: Api, named: str, builder: CaseBuilder, clock: Clock) -> None:
        self.api = api
        self.namespace, _, self.name = named.partition("/")
        self.builder = builder
        self.clock = clock
        self.budget = Budget(MAX_BYTES)

    def objects(self) -> Iterator[Mapping[str, Any]]:
        """Those with the job's name that create pods: a cluster lacks some kinds. Raises CaseError if it is silent."""
        refused: dict[int, tuple[list[str], str]] = {}
        for kind, where in OBJECTS.items():
            try:
                resource = self.api.get(f"/apis/{where.format(f'namespaces/{self.namespace}')}/{self.name}")
            except KubernetesError as problem:
                if not problem.status:
                    raise CaseError(one_line(str(problem), 300)) from None
                if problem.status != NOT_FOUND:  # denied, or a webhook that converts the kind is down
                    refused.setdefault(problem.status, ([], one_line(str(problem))))[0].append(kind)
            else:
                yield {**resource, "kind": kind}
        for kinds, why in refused.values():
            self.builder.lack(f"a {listed(kinds)} {self.name}, if there is one: {why}")

    def listed(self, what: str) -> list[Mapping[str, Any]]:
        """All objects of one kind."""
        try:
            return list(self.api.listed(f"/api/v1/namespaces/{self.namespace}/{what}"))
        except KubernetesError as problem:
            self.builder.lack(f"the {what} of {self.namespace}: {one_line(str(problem))}")
            return []

    def take_pod(self, pod: Mapping[str, Any], nodes_of_pods: Mapping[str, str]) -> None:
        """Read a pod and its containers' logs: for a restarted container also the previous log."""
        metadata = parts(pod)[0]
        name, labels = _name(pod), table(metadata.get("labels"))
        is_launcher = any(text(labels.get(role)).lower() == LAUNCHER for role in ROLES)
        others = nodes_of_pods if is_launcher else {}
        self.builder.take_object({**pod, "kind": "Pod"}, f"pod {name}", self.clock)
        for container in pods.containers(pod):
            for is_earlier in (True, False) if number(container.get("restartCount")) else (False,):
                self._take_log(name, text(container.get("name")), is_earlier, "" if is_launcher else _node(pod), others)

    def _take_log(self, pod: str, container: str, is_earlier: bool, node: str, others: Mapping[str, str]) -> None:
        """The beginning and the end of a container's output; its runtime dates each line.

        A launcher has no node of its own ranks: `others` has those of the pods whose ranks it prints.
        """
        source = f"{pod}/{container}{'.previous' if is_earlier else ''}.log"
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        query: dict[str, Any] = {"container": container, "timestamps": "true", "previous": str(is_earlier).lower()}
        try:
            content = self.api.text(path, HEAD_BYTES, **query)
            if len(content) >= HEAD_BYTES:
                self.builder.lack(f"{source}: all between its first {HEAD_BYTES >> 20} MiB and its last lines")
                tail = self.api.text(path, TAIL_BYTES, tailLines=LAST_LINES, **query)
                content += f"\n{LEFT_OUT}\n".encode() + tail
            self.budget.take(len(content))
        except (KubernetesError, OSError) as problem:
            self.builder.lack(f"{source}: {one_line(str(problem))}")
            return
        if content:
            lines = plain(content.decode("utf-8", "replace")).splitlines()
            read = runs_of_log.read(lines, OutputSource(source, None, node), self.clock)
            self.builder.outputs.append(_on_nodes(read, others))
            self.builder.count("file of output")

    def take_events(self, names: Collection[str], objects: Iterable[Mapping[str, Any]]) -> None:
        """Events of the job and its pods; not of an earlier job of that name, which Kubernetes keeps too."""
        uids = {text(parts(event)[0].get("uid")) for event in objects}
        about = [(event, table(event.get("involvedObject"))) for event in self.listed("events")]
        own = [event for event, of in about if text(of.get("name")) in names and text(of.get("uid")) in (*uids, "")]
        for event in own:
            self.builder.take_object({**event, "kind": "Event"}, "event", self.clock)
        if not own:
            self.builder.lack("its events: Kubernetes keeps them for an hour by default")

    def take_nodes(self, ran: Span) -> None:
        """Nodes of the job that are not ready, ill according to their monitors, or gone."""
        every = list(self.builder.nodes_of_pods.items())
        if len(every) > MAX_NODES:
            self.builder.lack(f"whether {len(every) - MAX_NODES} more of its nodes are ready: {MAX_NODES:,} are asked")
        for node, whole in every[:MAX_NODES]:
            try:
                matches = nodes(self.api, name=whole, with_images=False)  # listed, because a run may list but not get
            except KubernetesDenied as problem:
                self.builder.lack(f"whether its nodes are ready: {one_line(str(problem))}")
                return
            except KubernetesError as problem:
                self.builder.lack(f"the node {whole}: {one_line(str(problem))}")
                continue
            if not matches:
                self.builder.lack(f"the node {whole}: Kubernetes has no such node")
                continue
            self.builder.events.extend(marks_of(matches[0], node, self.clock, ran))


def marks_of(api_node: ApiNode, node: str, clock: Clock, ran: Span) -> Iterator[Event]:
    """Why a node is not ready, or ill according to its monitors, unless it became so long after the job.

    What a monitor said before the job began may have outlived its fault, and is left out.
    """
    source = f"node {api_node.name}"
    for condition in api_node.conditions:
        since = clock.of(condition.since)
        is_earlier = since.ends is None or since.is_before(ran)
        if ran.is_before(since, limits().before_s):
            continue
        if condition.kind == "Ready" and condition.status != "True":
            message = f"not ready since {condition.since}: {condition.reason}"
            yield Event("node_not_ready", one_line(message), source, since, node)
        elif is_fault(condition.kind, condition.status) and not is_earlier:
            message = f"{condition.kind} {condition.status} since {condition.since}: {condition.reason}"
            yield Event(MARKED, one_line(f"{message}: {condition.message}"), source, since, node)
    health = health_of_hyperpod(api_node.labels.get(HEALTH_LABEL, ""))
    if health and not health.takes_pods:
        words = [api_node.labels.get(label, "") for label in (HEALTH_LABEL, *REASON_LABELS)]
        yield Event(MARKED, one_line(f"HyperPod: {' '.join(filter(None, words))}"), source, Span(), node)


def _one_job(named: str, jobs: Sequence[Job], there: Sequence[Mapping[str, Any]], clock: Clock) -> Job:
    """When the job ran and how it ended, from objects and pods. Raises CaseError if nothing has ended."""
    whole = next((job for job in jobs if job.state), Job(named))
    states = [state for pod in there for state in pods.ends(pod)]
    failed = any(parts(pod)[2].get("phase") in ENDED for pod in there)
    if not whole.state and not failed and not any(text(state.get("finishedAt")) for state in states):
        raise CaseError(f"job {named} runs, and no container of it has ended; expected a job that has")
    begins = [clock.of(text(state.get("startedAt"))).begins for state in states]
    ended_at = [clock.of(text(state.get("finishedAt"))).ends for state in states]
    first = whole.ran.begins or min((time for time in begins if time), default=None)
    last = whole.ran.ends or max((time for time in ended_at if time), default=None)
    return Job(named, whole.state, "", (), Span(first, last))
