"""`k8s:CONTEXT[/SELECTOR]`, `k8s:in-cluster` and `eks:NAME`: nodes of Kubernetes, reached by pods."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.access import EKS_NAME, SETTING, contexts, open_api
from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.kubernetes.training_job import job_named
from clusterproof.plugins.transport.kubernetes.report_cache import KEEP, handed_share

FORMS = "k8s:CONTEXT, k8s:CONTEXT/LABEL=VALUE, k8s:CONTEXT/job:NAMESPACE/NAME, k8s:in-cluster or eks:NAME"
OF_JOB = "job:"
IN_CLUSTER = "in-cluster"
CONNECTIONS = ("kubernetes", "agents")  # a pod per node of a run; a gate's existing agents
# How a node with accelerators is recognized; labels remain even if its device plugin has died.
RESOURCES = re.compile(
    r"nvidia\.com/(gpu(\.shared)?|mig-.*)|aws\.amazon\.com/neuron.*|vpc\.amazonaws\.com/efa|amd\.com/gpu"
)
LABELS = (
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.product",
    "feature.node.kubernetes.io/pci-10de.present",
    "aws.amazon.com/neuron.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-accelerator-count",
    "eks.amazonaws.com/instance-gpu-count",  # of EKS Auto Mode, whose nodes have none of Karpenter's
    "kubernetes.azure.com/accelerator",
)


def k8s(rest: str, options: Mapping[str, str]) -> Cluster:
    """The nodes in a context of the user's kubeconfig, or of the cluster that this runs in. Raises InventoryError."""
    shown = f"--cluster {'k8s:' + rest!r:.160}"
    try:
        context, selector = _parts(rest)
        access = IN_CLUSTER if context == IN_CLUSTER else f"context:{context}"
        return _by_connection(_cluster(shown, f"k8s:{context}", {SETTING: access}, selector, options), options)
    except KubernetesError as problem:
        raise InventoryError(f"{shown}: {problem}") from None


def eks(rest: str, options: Mapping[str, str]) -> Cluster:
    """The nodes of an EKS cluster, by its name alone. Raises InventoryError."""
    shown = f"--cluster {'eks:' + rest!r:.160}"
    name, _, selector = rest.partition("/")
    if not EKS_NAME.fullmatch(name):
        raise InventoryError(f"{shown}: {name!r:.60} is not the name of an EKS cluster; expected eks:NAME")
    try:
        account = Account(options.get("region", ""), options.get("profile", ""))
        where = {"region": account.region, "profile": options.get("profile", "")}
        settings = {SETTING: f"eks:{name}", **where}
        return _by_connection(_cluster(shown, f"eks:{name}", settings, selector, options), options)
    except (AwsError, KubernetesError) as problem:
        raise InventoryError(f"{shown}: {problem}") from None


def _by_connection(cluster: Cluster, options: Mapping[str, str]) -> Cluster:
    """The cluster with a pod for each node, or through the agents on its nodes. Raises InventoryError."""
    via = options.get("via", CONNECTIONS[0])
    if via not in CONNECTIONS:
        raise InventoryError(
            f"--via {via!r:.80} is not a way to nodes of Kubernetes; expected {' or '.join(CONNECTIONS)}"
        )
    return cluster if via == CONNECTIONS[0] else replace(cluster, connection=via)


def access_to(text: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Access to the API server of a `k8s:…` or `eks:NAME`, whatever nodes it has. Raises InventoryError."""
    word, _, rest = text.partition(":")
    try:
        if word == "k8s":
            context, _ = _parts(rest)
            return {SETTING: IN_CLUSTER if context == IN_CLUSTER else f"context:{context}"}
        if word == "eks" and EKS_NAME.fullmatch(rest):
            return {SETTING: f"eks:{rest}", **options}
    except KubernetesError as problem:
        raise InventoryError(f"{text!r:.160}: {problem}") from None
    raise InventoryError(f"{text!r:.160} is not a Kubernetes cluster; expected k8s:CONTEXT, k8s:in-cluster or eks:NAME")


def _parts(rest: str) -> tuple[str, str]:
    """Context and selector; EKS context names contain a slash too. Raises KubernetesError."""
    context, slash, selector = rest.partition("/")
    if context == IN_CLUSTER or not slash:
        return rest if not slash else context, selector
    longest = max(
        (name for name in contexts()[0] if rest == name or rest.startswith(f"{name}/")), key=len, default=context
    )
    return longest, rest[len(longest) + 1 :]


def _cluster(shown: str, name: str, settings: Mapping[str, str], selector: str, options: Mapping[str, str]) -> Cluster:
    """Raises AwsError, InventoryError, KubernetesError."""
    share = handed_share(options.get(KEEP, ""))
    if share:  # of a large cluster, which its gate has listed
        return replace(_made(name.removesuffix(":"), settings, (), ()), targets=share.targets, is_part=True)
    if OF_JOB in selector:
        return _cluster_of_job(shown, name, settings, selector)
    listed = nodes(open_api(settings), selector, with_images=False)
    kept = [node for node in listed if not node.without_host]
    kept = kept if selector else [node for node in kept if has_accelerators(node)]
    if not kept:
        raise InventoryError(f"{shown}: {_none(listed, selector)}; expected {FORMS}")
    return _made(name.removesuffix(":"), settings, listed, kept)


def _cluster_of_job(shown: str, name: str, settings: Mapping[str, str], selector: str) -> Cluster:
    """The nodes of a job's pods, including those that Kubernetes no longer has; raises as above."""
    job = selector.removeprefix(OF_JOB)
    if not selector.startswith(OF_JOB):
        raise InventoryError(f"{shown}: a job's nodes are those of its pods; expected no labels beside it")
    api = open_api(settings)
    names = {pod.node for pod in job_named(api, job)[1]}
    listed = [node for node in nodes(api, with_images=False) if node.name in names]
    kept = [node for node in listed if not node.without_host]
    gone = tuple(map(Target, sorted(names.difference(node.name for node in listed))))
    if not (kept or gone):
        raise InventoryError(f"{shown}: {_none(listed, selector)}; expected {FORMS}")
    made = _made(f"{name}/{selector}", settings, listed, [node for node in kept if has_accelerators(node)] or kept)
    return replace(made, targets=(*made.targets, *gone))


def _made(name: str, settings: Mapping[str, str], nodes: Sequence[ApiNode], kept: Sequence[ApiNode]) -> Cluster:
    return Cluster(
        name,
        "kubernetes",
        tuple(target_of(node) for node in sorted(kept, key=lambda node: (node.group, node.name))),
        {key: value for key, value in settings.items() if value},
        notes=_notes(nodes, kept),
    )


def has_accelerators(node: ApiNode) -> bool:
    """Whether a node has, or should have, GPUs, Neuron devices or EFA: by resources, labels or instance type."""
    return (
        any(RESOURCES.fullmatch(name) for name in node.capacity)
        or any(node.labels.get(label, "false") not in ("false", "0", "") for label in LABELS)
        or node.instance_type in instance_types()
    )


def target_of(node: ApiNode) -> Target:
    """The target for a node; its address is EC2's id if the node is one of the account's instances."""
    is_of_account = bool(node.instance_id) and not node.name.startswith("hyperpod-")
    return Target(
        name=node.name,
        address=node.instance_id if is_of_account else "",
        group=node.group,
        instance_type=node.instance_type if node.instance_type in instance_types() else "",
    )


def _none(nodes: Sequence[ApiNode], selector: str) -> str:
    without_host = Counter(filter(None, (node.without_host for node in nodes)))
    if nodes and without_host.total() == len(nodes):
        what = "of the job" if OF_JOB in selector else f"with the labels {selector!r:.80}" if selector else "there"
        return f"each node {what} is {' or '.join(sorted(without_host))}; no Linux host is beneath it"
    if selector:
        return f"no node for Linux has the labels {selector!r:.80}"
    return f"none of its {len(nodes)} nodes has accelerators (choose some by label: /kubernetes.io/os=linux are all)"


def _notes(nodes: Sequence[ApiNode], kept: Sequence[ApiNode]) -> tuple[str, ...]:
    without_host = Counter(filter(None, (node.without_host for node in nodes)))
    left = len(nodes) - len(kept) - without_host.total()
    cordoned = sum(node.is_cordoned for node in kept)
    return (
        *([f"not validated: {left} without accelerators"] if left else []),
        *(f"not validated: {count} {why}, with no Linux host" for why, count in sorted(without_host.items())),
        *([f"validated though cordoned: {cordoned}"] if cordoned else []),
    )
