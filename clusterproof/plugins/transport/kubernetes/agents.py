"""Kubernetes nodes by the last report of each one's agent, a pod of a DaemonSet that runs already.

One request for each node and two for a run; nothing is created, and no port is opened. The API server determines whose
report it is, because it gets a pod's log from the kubelet of that pod's node; the content is decoded as strictly as any
node's answer. Only pods that the agents' DaemonSet controls count as agents, whatever other pods are called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from clusterproof.plugins.agent.frame import last_whole
from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes import NOT_FOUND, TOO_MANY
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.kubernetes.pods import Pod, PodPages
from clusterproof.plugins.kubernetes.values import table, text
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable
from clusterproof.plugins.transport.fan_out import fan_out
from clusterproof.plugins.transport.kubernetes import namespace_of
from clusterproof.plugins.transport.kubernetes.connection import NO_NODE, PerfPods
from clusterproof.plugins.transport.kubernetes.log import NoLog, log_of
from clusterproof.plugins.transport.kubernetes.outcome import NO_IMAGE, not_ready
from clusterproof.plugins.transport.kubernetes.report_cache import KEEP, AgentPods, ReportCache, handed_share, mark_of

CONNECTION = "agents"
SELECTOR = "app.kubernetes.io/name=clusterproof,app.kubernetes.io/component=agent"
DAEMON_SET = "clusterproof-agent"
CONTAINER = "agent"
REPORT = "cpreport01"  # prefix of each line of a report, instead of a nonce known only to the node and its visitor
INTERVAL_SETTING = "k8s_every"  # the setting: seconds between reports
INTERVAL_S = 60.0
COLLECTED_S = 45.0  # for an agent to collect a report
LOG_S = 10.0  # for a kubelet that is slow to return a log
NO_CONTAINER = 400  # what the API server answers for the log of a container that has not started
WORDS = 300
KUBELET_ADVICE = "expected a way from it to port 10250 of the node, and a kubelet that answers there"
FEW = 20  # nodes asked for individually; a page of a listing has 500
RIGHTS = "integrations/kubernetes/gate.yaml grants what is needed (docs/kubernetes-gate.md)"


class Agents(Connection):
    """The connection that reads the last report of each node's agent."""

    takes_stdin = False

    def program(self) -> Program:
        """Empty, because nothing is run: the agents' options determine what they collect."""
        return Program("", nonce=REPORT)

    def under_load(self) -> Connection:
        """Pods, because agents do not load nodes."""
        return PerfPods()

    def run(
        self,
        targets: Sequence[Target],
        program: Program,  # noqa: ARG002 - it ran already
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Answer for each target with its agent's report. Raises Unusable if access to the cluster is refused."""
        settings = limits.settings
        namespace = namespace_of(settings)
        try:
            api = open_api(settings)
            share = handed_share(settings.get(KEEP) or "")
            seen = share.agents if share else agents_of(api, namespace)
            agents, others = seen.own, seen.others
            known = _doubtful(api, agents, targets)
        except (AwsError, KubernetesError) as problem:
            reason = problem.with_rights(RIGHTS) if isinstance(problem, KubernetesDenied) else str(problem)
            raise Unusable(reason) from None
        if not (agents or share):
            _refuse_no_agent(namespace)
        since_s = int(float(settings.get(INTERVAL_SETTING) or INTERVAL_S) + COLLECTED_S)
        reading = ReadContext(api, namespace, limits.answer_bytes, since_s, ReportCache(settings.get(KEEP) or ""))
        to_read = []
        for target in targets:
            name, agent = target.name, agents.get(target.name)
            why = None if is_at_work(agent) else unreported(known.get(name), agent, others.get(name))
            why = why or reading.cached(agents[name])
            if why:
                answered(target, why)
            else:
                to_read.append(target)
        read = 0

        def note(target: Target, answer: Answer) -> None:
            nonlocal read
            read += not reading.refusal or answer.detail != reading.refusal
            answered(target, answer)

        fan_out(to_read, lambda target: AgentVisit(reading, agents[target.name]), limits.fanout, note)
        if reading.refusal and not read:
            raise Unusable(reading.refusal)


@dataclass(slots=True)
class ReadContext:
    """What the visits of one run share."""

    api: Api
    namespace: str
    most_bytes: int
    since_s: int
    cache: ReportCache
    refusal: str = ""  # why no log may be read

    def cached(self, pod: Pod) -> Answer | None:
        """The answer for a node that is known without reading its log."""
        now = time.time()
        report = self.cache.current(pod, now)
        return Answer(report.output, age_s=self.since_s + COLLECTED_S + now - report.at) if report else None


@dataclass(slots=True)
class AgentVisit:
    """Reads one agent's log."""

    context: ReadContext
    pod: Pod
    started: float = field(default_factory=time.monotonic)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = self.started + 6 * LOG_S

    def make(self) -> Answer:
        """Read its last report."""
        reading = self.context
        pods = f"/api/v1/namespaces/{reading.namespace}/pods"
        query = {"container": CONTAINER, "sinceSeconds": reading.since_s}
        try:
            log = log_of(reading.api, pods, self.pod.name, reading.most_bytes, LOG_S, **query)
        except KubernetesError as problem:
            return self._unread(problem)
        report = last_whole(log, REPORT)
        if not report:
            detail = f"its agent reported nothing within {reading.since_s} s{_last_line(log)}"
            return Answer(unreached=Unreached.NOT_STARTED, detail=detail, seconds=self._seconds())
        reading.cache.keep(self.pod, report, time.time())
        return Answer(report, seconds=self._seconds(), age_s=reading.since_s + COLLECTED_S)

    def abandon(self) -> None:
        """There is nothing to abort."""

    def _unread(self, problem: KubernetesError) -> Answer:
        why, detail = Unreached.API, str(problem)
        if isinstance(problem, KubernetesDenied):
            self.context.refusal = detail = problem.with_rights(RIGHTS).replace(self.pod.name, "…")
        elif problem.status == TOO_MANY:
            why = Unreached.THROTTLED
        elif problem.status in (NO_CONTAINER, NOT_FOUND):
            why, detail = Unreached.REMOVED, f"its agent was replaced meanwhile: {problem}"
        elif isinstance(problem, NoLog):
            message = f"the control plane cannot read its agent's log: {detail.partition('; expected')[0]}"
            why, detail = Unreached.NO_LOG, f"{message}; {KUBELET_ADVICE}"
        return Answer(unreached=why, detail=detail, seconds=self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self.started


def _refuse_no_agent(namespace: str) -> NoReturn:
    raise Unusable(
        f"no agent is in the namespace {namespace}; expected pods of its DaemonSet {DAEMON_SET}: "
        f"kubectl describe daemonset -n {namespace} {DAEMON_SET} has why there are none"
    )


def agents_of(api: Api, namespace: str, pages: PodPages | None = None) -> AgentPods:
    """The agents of nodes: the labelled pods that the DaemonSet controls. Raises KubernetesError.

    `pages` are those of an earlier listing, which makes this one cheaper.
    """
    labelled = (pages or PodPages()).listed(api, namespace, SELECTOR)
    try:
        made = api.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{DAEMON_SET}")
    except KubernetesError as problem:
        if problem.status != NOT_FOUND:
            raise
        return AgentPods({}, {})
    uid = text(table(made.get("metadata")).get("uid"))
    own = [pod for pod in labelled if uid and pod.controller == uid]
    return AgentPods(by_node(own), {pod.node: pod for pod in labelled if pod.controller != uid})


def state_of(agent: Pod) -> str:
    """What is the same while there is nothing new to know of an agent's node."""
    container = agent.container(CONTAINER)
    state = (container.is_running, container.waiting, container.ended) if container else ()
    return f"{mark_of(agent)} {agent.is_ready} {agent.phase} {bool(agent.deleted)} {state}"


def is_changing(agent: Pod) -> bool:
    """Whether an agent says that it reports something else; of a node that is not ready, the pod alone is unready."""
    container = agent.container(CONTAINER)
    return container is not None and container.is_running and not container.is_ready


def is_at_work(agent: Pod | None) -> bool:
    """Whether an agent runs and is ready, which no pod is on a node that is not."""
    container = agent.container(CONTAINER) if agent else None
    return agent is not None and agent.is_ready and container is not None and container.is_running


def unreported(node: ApiNode | None, agent: Pod | None, other: Pod | None = None) -> Answer | None:
    """Why a node has no report to read; None if it may have one. `other` only resembles its agent."""
    if node is None:
        return Answer(unreached=Unreached.NOT_READY, detail=NO_NODE)
    missed = not_ready(node)
    if missed:
        return Answer(unreached=missed.unreached, detail=missed.detail)
    if agent is None:
        not_made = f", which has not made {other.name[:WORDS]}" if other else ""
        detail = f"no agent is on it; expected one of its DaemonSet{not_made}"
        return Answer(unreached=Unreached.NOT_STARTED, detail=detail)
    container = agent.container(CONTAINER)
    if container and container.is_running:
        return None
    text = agent.scheduled or ((container.waiting_message or container.ended_message) if container else agent.message)
    reason = (container.waiting or container.ended) if container else agent.reason
    detail = f"its agent does not run: {' '.join(filter(None, (reason or agent.phase, text)))[:WORDS]}"
    is_of_image = container is not None and container.waiting in NO_IMAGE
    return Answer(unreached=Unreached.NO_IMAGE if is_of_image else Unreached.NOT_STARTED, detail=detail)


def _doubtful(api: Api, agents: Mapping[str, Pod], targets: Sequence[Target]) -> Mapping[str, ApiNode]:
    """The nodes whose agents do not work, with their state: fetched one by one if few. Raises KubernetesError."""
    names = [target.name for target in targets if not is_at_work(agents.get(target.name))]
    listings = [""] if len(names) > FEW else names
    return {node.name: node for name in listings for node in nodes(api, name=name, with_images=False)}


def by_node(agents: Sequence[Pod]) -> Mapping[str, Pod]:
    """The agent of each node: the oldest one, preferring those that are not being deleted.

    A DaemonSet adopts a pod that matches its selector, and keeps the older one. An unscheduled pod counts for its node.
    """
    ordered = sorted(agents, key=lambda pod: (not pod.node, bool(pod.deleted), pod.created), reverse=True)
    return {pod.node or pod.meant: pod for pod in ordered if pod.node or pod.meant}


def _last_line(log: bytes) -> str:
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line and not line.startswith(REPORT)]
    return f"; its last words: {lines[-1][:WORDS]}" if lines else ""
