"""What Kubernetes is asked about a cluster: one file per collector, with a function `read(api, names)`.

Each can fail independently, with its own error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from importlib import import_module
from typing import Any

from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError

COLLECTOR_S = 120.0  # a thousand nodes with 30,000 pods are 60 pages
RIGHTS = {  # the permission that a collector needs, for error messages
    "k8s_nodes": "nodes",
    "k8s_pods": "pods",
    "k8s_resource_slices": "resourceslices.resource.k8s.io",
    "k8s_compute_domains": "computedomains.resource.nvidia.com",
    "k8s_queues": "nodes, and resourceflavors and topologies of kueue.x-k8s.io",
    "k8s_storage": "pvc, pv, csinodes and storageclasses",
}

Read = Callable[[Api, frozenset[str]], object]


def ask(cluster: Cluster, collectors: Iterable[str], timeout_s: float = COLLECTOR_S) -> Mapping[str, Collected]:
    """What Kubernetes reports about a cluster; if it is not reached, every answer has status broke."""
    wanted = sorted(collectors)
    try:
        api = open_api(cluster.settings)
    except (AwsError, KubernetesError) as problem:
        return dict.fromkeys(wanted, Collected(Status.BROKE, detail=str(problem)))
    return ask_by(api, cluster, wanted, timeout_s)


def ask_by(api: Api, cluster: Cluster, collectors: Iterable[str], timeout_s: float) -> Mapping[str, Collected]:
    """The same with an open API."""
    names, until = names_of(cluster), time.monotonic() + timeout_s
    pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kubernetes")
    try:
        results = {name: pool.submit(_collected, name, api, names) for name in collectors}
        return {name: _answer(answer.result, until, timeout_s) for name, answer in results.items()}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def names_of(cluster: Cluster) -> frozenset[str]:
    """Possible Kubernetes names of the nodes: the inventory's, or for HyperPod the instances'."""
    instances = {f"i-{target.address.rpartition('i-')[2]}" for target in cluster.targets if "i-" in target.address}
    names = {target.name for target in cluster.targets}
    return frozenset(names | {f"hyperpod-{instance}" for instance in instances})


def _answer(result: Callable[[float], Collected], until: float, timeout_s: float) -> Collected:
    try:
        return result(max(0.0, until - time.monotonic()))
    except TooLate:
        return Collected(Status.TIMED_OUT, detail=f"no answer within {timeout_s:g} s")


def _collected(name: str, api: Api, names: frozenset[str]) -> Collected:
    began = time.monotonic()
    read: Read = import_module(f"clusterproof.plugins.kubernetes.collectors.{name}").read
    try:
        value = read(api, names)
    except KubernetesDenied as denied:
        reason = denied.with_rights(f"expected a ClusterRole that may list {RIGHTS[name]}")
        return Collected(Status.DENIED, detail=reason, seconds=time.monotonic() - began)
    except KubernetesError as problem:
        return Collected(Status.BROKE, detail=str(problem), seconds=time.monotonic() - began)
    except Exception as crash:  # a failure is this collector's evidence and affects no other
        reason = f"{type(crash).__name__}: {crash}"[:300]
        return Collected(Status.BROKE, detail=reason, seconds=time.monotonic() - began)
    return Collected(Status.READ, value, seconds=time.monotonic() - began)


def first_version(api: Api, group: str, versions: Iterable[str], kind: str) -> list[Mapping[str, Any]] | None:
    """The objects of a kind in the first version that the cluster serves; None if it serves none.

    Raises KubernetesError.
    """
    for version in versions:
        try:
            return list(api.listed(f"{group}/{version}/{kind}"))
        except KubernetesDenied:
            if _is_served(api, group):
                raise
        except KubernetesError as problem:
            if problem.status != NOT_FOUND:
                raise
    return None


def _is_served(api: Api, group: str) -> bool:
    """Whether the cluster has a group of its API: what it has not is denied as well to who lacks the rights."""
    try:
        api.get(group)
    except KubernetesError as problem:
        return problem.status != NOT_FOUND
    return True
