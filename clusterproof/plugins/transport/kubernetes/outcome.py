"""What the state of a pod, or a refusal, means for its node."""

from __future__ import annotations

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.api import KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.nodes import ApiNode
from clusterproof.plugins.kubernetes.pods import Container, Pod
from clusterproof.plugins.transport.kubernetes import CONTAINER

NO_IMAGE = ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError")
OF_ITS_SPEC = "CreateContainerConfigError"  # as without its ConfigMap, or where a policy has it run as another user
CANNOT_RUN = ("StartError", "ContainerCannotRun")  # the runtime's reasons for a missing command
LONGEST = 300
ELSEWHERE = "or another namespace (--k8s-namespace)"
# Messages of admission refusals (or parts of them), and what is expected of the namespace instead.
EXPECTED = {
    "violates PodSecurity": "a namespace that admits privileged pods: kubectl label namespace {} "
    "pod-security.kubernetes.io/enforce=privileged",
    "exceeded quota": f"room in that quota of the namespace {{}}, fewer nodes at once (--fanout), {ELSEWHERE}",
    "failed quota": f"no quota of limits in the namespace {{}}: the probe has none for its CPU; {ELSEWHERE}",
    " per Container is ": f"a LimitRange of the namespace {{}} that admits a container without requests, {ELSEWHERE}",
    " per Pod is ": f"a LimitRange of the namespace {{}} that admits a pod without requests, {ELSEWHERE}",
    "is being terminated": f"the namespace {{}} to stay, {ELSEWHERE}",
    "failed calling webhook": "that webhook to answer, or one that leaves the namespace {} out",
    "admission webhook": f"that webhook to admit a privileged pod of the host's namespaces in {{}}, {ELSEWHERE}",
    "ValidatingAdmissionPolicy": f"that policy to admit a privileged pod of the host's namespaces in {{}}, {ELSEWHERE}",
}
QUOTA_MESSAGES = ("exceeded quota", "cannot be fulfilled on resourcequotas")
ADMITTED = f"the namespace {{}} to admit a privileged pod, {ELSEWHERE}"
RBAC = "integrations/kubernetes/rbac.yaml grants what is needed (docs/kubernetes.md)"


@record
class PodFailure:
    """Why a node was not reached."""

    unreached: Unreached
    detail: str


def has_begun(pod: Pod) -> bool:
    """Whether it runs, has run, or never will."""
    container = pod.container(CONTAINER)
    return is_settled(pod) or bool(container and container.is_running)


def is_settled(pod: Pod) -> bool:
    """Whether nothing more is to come of it."""
    container = pod.container(CONTAINER)
    return (
        pod.has_ended
        or bool(container and (container.exit_code is not None or container.waiting in NO_IMAGE))
        or bool(pod.deleted)
    )


def pod_failure(
    pod: Pod | None,
    is_gone: bool,
    node: ApiNode,
    waited_s: float,
    is_own_image: bool,
    image_option: str = "--k8s-image",
) -> PodFailure | None:
    """Why there is no log to read of a pod that is settled, gone, or did not become so in time; None where there is."""
    if elsewhere := misplaced(pod, node):
        return elsewhere
    container = pod.container(CONTAINER) if pod else None
    if container and container.exit_code is not None and not (pod and pod.reason == "DeadlineExceeded"):
        return (
            _not_started_there(container, node, is_own_image, image_option) if container.ended in CANNOT_RUN else None
        )
    if is_gone or (pod and pod.deleted):
        why = f": {pod.disruption:.{LONGEST}}" if pod and pod.disruption else ", by whom is not known"
        return PodFailure(Unreached.REMOVED, f"its pod was deleted meanwhile{why}")
    if pod is None:
        return PodFailure(Unreached.API, f"the API server reported nothing about its pod within {waited_s:.0f} s")
    if pod.reason == "DeadlineExceeded":
        return PodFailure(Unreached.TIMED_OUT, f"the pod was ended by its deadline: {pod.message:.{LONGEST}}")
    if pod.phase == "Failed":
        return PodFailure(
            Unreached.BUSY, f"the kubelet refused the pod: {pod.reason or 'Failed'}: {pod.message:.{LONGEST}}"
        )
    if container and container.waiting in NO_IMAGE:
        message = container.waiting_message or "the image is not on the node"
        return PodFailure(
            Unreached.NO_IMAGE,
            f"{container.waiting}: {container.image:.120}: {message:.{LONGEST}}; expected {image_option}",
        )
    if container and container.is_running:
        return PodFailure(Unreached.TIMED_OUT, f"the probe did not end within {waited_s:.0f} s")
    if container and container.waiting == OF_ITS_SPEC:
        return PodFailure(
            Unreached.API,
            f"{OF_ITS_SPEC}: {container.waiting_message:.{LONGEST}}; expected its ConfigMap, and no webhook or policy "
            "that changes the pod",
        )
    last = f"{container.waiting} {container.waiting_message:.{LONGEST}}".strip() if container else pod.phase
    return PodFailure(
        Unreached.NOT_STARTED, f"its pod did not start within {waited_s:.0f} s; the last word was: {last}"
    )


def not_ready(node: ApiNode) -> PodFailure | None:
    """Why no pod is sent to a node whose kubelet is not ready; None if it is."""
    if node.is_ready:
        return None
    ready = node.condition("Ready")
    if not ready:
        return PodFailure(
            Unreached.NOT_READY, "Kubernetes has no condition Ready of it; expected a kubelet that sets it"
        )
    message = f"{ready.reason}: {ready.message:.{LONGEST}}".strip(": ")
    return PodFailure(Unreached.NOT_READY, f"Ready is {ready.status} since {ready.since}: {message}")


def after_the_end(pod: Pod) -> str:
    """What of the pod's end may have cost it its answer; mostly nothing."""
    container = pod.container(CONTAINER)
    if container and container.ended == "OOMKilled":
        limit = container.limits.get("memory")
        return (
            f"its pod was killed {f'at its limit of {limit} of memory' if limit else 'for want of memory'} (OOMKilled)"
        )
    if pod.phase == "Failed" and (pod.reason or pod.disruption):  # else its program failed
        why = ": ".join(filter(None, (pod.reason, pod.message or pod.disruption)))
        return f"its pod was ended: {why:.{LONGEST}}"
    return ""


def misplaced(pod: Pod | None, node: ApiNode) -> PodFailure | None:
    """Why a pod says nothing of a node: a webhook has sent it to another one."""
    if pod is None or pod.node in ("", node.name):
        return None
    detail = f"its pod is on {pod.node:.{LONGEST}}; expected no webhook or policy that changes a pod's node or affinity"
    return PodFailure(Unreached.API, detail)


def refused(problem: KubernetesError, namespace: str) -> str:
    """One line for a refused request: the server's message, and what to do."""
    if isinstance(problem, KubernetesDenied):
        return problem.with_rights(RBAC)
    if isinstance(problem, KubernetesRefused):
        expected = next((text for sign, text in EXPECTED.items() if sign in str(problem)), ADMITTED)
        return f"{problem}; expected {expected.format(namespace)}"
    if problem.status == NOT_FOUND:
        return f"{problem}; expected the namespace {namespace}: {RBAC}"
    return str(problem)


def is_of_quota(problem: KubernetesError) -> bool:
    """Whether a quota is full now, or was being counted concurrently; a quota that requires limits never has room."""
    return any(sign in str(problem) for sign in QUOTA_MESSAGES)


def _not_started_there(container: Container, node: ApiNode, is_own_image: bool, image_option: str) -> PodFailure:
    if is_own_image:
        return PodFailure(
            Unreached.NO_PYTHON,
            f"nothing starts in {container.image:.120}: {container.ended_message:.{LONGEST}}; "
            f"expected {image_option} with an image that has /bin/sh and Python 3.8 or newer",
        )
    system = node.info.get("osImage") or "an unknown system"
    return PodFailure(
        Unreached.NO_PYTHON,
        f"nothing of the host's starts there ({system}): {container.ended_message:.{LONGEST}}; expected glibc and "
        "chroot where its distribution has them, else --k8s-image with an image that has Python",
    )
