"""A SageMaker HyperPod cluster by its NAME or ARN, reached through SSM."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clusterproof.plugins.aws import Account, AwsDenied, AwsError
from clusterproof.plugins.aws.resources import instance_groups
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.opened import is_folder
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.inventory.ec2 import named_apart
from clusterproof.plugins.kubernetes.access import SETTING as KUBERNETES
from clusterproof.plugins.transport.srun import SETTING

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:cluster/(?P<id>[a-z0-9]{12})")
PAGE = 100
VIA = ("auto", "controller", "nodes", "kubernetes")
MAX_BY_SESSIONS = 32  # nodes; at 3 sessions a second, more take longer than one srun from the controller
# If the API does not report a group's role: the group names used in the documentation and its examples.
_BY_NAME = (("Controller", re.compile(r"controller|head-?node", re.I)), ("Login", re.compile(r"login", re.I)))
_NOT_FOUND = ("ResourceNotFound", "ResourceNotFoundException")
_LEFT_OUT = ("Controller", "Login")


def hyperpod(text: str, options: Mapping[str, str]) -> Cluster:
    """The workers of a HyperPod cluster by name or ARN. Raises InventoryError."""
    arn = ARN.fullmatch(text)
    try:
        account = Account(options.get("region", "") or (arn["region"] if arn else ""), options.get("profile", ""))
        return _by_connection(_cluster(account, text), options.get("via", "auto"))
    except AwsError as problem:
        hint = "" if arn else f"; for a host say ssh:{text:.80}"
        hint += f"; for the folder here say replay:{text:.80} or capture:{text:.80}" if is_folder(text) else ""
        raise InventoryError(f"--cluster {text!r:.120} is taken for a HyperPod cluster: {problem}{hint}") from None


def _cluster(account: Account, text: str) -> Cluster:
    try:
        description = account.call("sagemaker", "describe_cluster", ClusterName=text)
    except AwsDenied:
        raise
    except AwsError as problem:
        if problem.code in _NOT_FOUND or "could not find" in str(problem).lower():
            raise InventoryError(_unknown(account, text)) from None
        raise
    arn, name = str(description["ClusterArn"]), str(description["ClusterName"])
    orchestrator = _orchestrator(description)
    roles = {str(group["InstanceGroupName"]): _role(group, orchestrator) for group in instance_groups(description)}
    nodes = list(account.listed("sagemaker", "list_cluster_nodes", "ClusterNodeSummaries", **_page(name)))
    workers = [node for node in nodes if roles.get(node["InstanceGroupName"]) not in _LEFT_OUT]
    if not workers:
        raise InventoryError(f"HyperPod cluster {name} in {account.region} has no worker node; expected at least one")
    targets = tuple(_target(node, _id(arn)) for node in sorted(workers, key=_order))
    controllers = [node for node in nodes if roles.get(node["InstanceGroupName"]) == "Controller"]
    controllers.sort(key=_is_down)  # of several, one may have failed
    return Cluster(
        name,
        "hyperpod",
        named_apart(targets),
        {
            "region": account.region,
            "arn": arn,
            **({SETTING: f"hyperpod:{_target(controllers[0], _id(arn)).address}"} if controllers else {}),
            **orchestrator,
        },
        notes=tuple(_notes(Counter(roles.get(node["InstanceGroupName"], "") for node in nodes))),
    )


def _by_connection(cluster: Cluster, via: str) -> Cluster:
    """The cluster with a session for each node, or one session to the controller, which uses srun.

    Nodes on which Slurm starts nothing get their own session in either case. Raises InventoryError.
    """
    if via not in VIA:
        raise InventoryError(
            f"--via {via!r:.80} is not a way to a HyperPod cluster; expected {', '.join(VIA[:-1])} or {VIA[-1]}"
        )
    if via == "kubernetes":
        return _by_pods(cluster)
    if via == "controller" and SETTING not in cluster.settings:
        raise InventoryError(
            f"--via controller: HyperPod cluster {cluster.name} has no controller (an EKS one has none); "
            "expected --via nodes or kubernetes"
        )
    if via == "nodes" or SETTING not in cluster.settings:
        return cluster
    if via == "auto" and len(cluster.targets) <= MAX_BY_SESSIONS:
        return cluster
    return replace(cluster, connection="srun", settings={**cluster.settings, "beside": "hyperpod"})


def _by_pods(cluster: Cluster) -> Cluster:
    """The cluster through its EKS cluster, where nodes are named after instances. Raises InventoryError."""
    if KUBERNETES not in cluster.settings:
        raise InventoryError(
            f"--via kubernetes: HyperPod cluster {cluster.name} is not orchestrated by EKS; expected --via auto"
        )
    ids = (target.address.rpartition("-i-")[2] for target in cluster.targets)
    named = (
        replace(target, name=f"hyperpod-i-{instance}") for target, instance in zip(cluster.targets, ids, strict=True)
    )
    return replace(cluster, connection="kubernetes", targets=tuple(named))


def _orchestrator(description: Mapping[str, Any]) -> Mapping[str, str]:
    """The setting that names the EKS cluster, if there is one."""
    arn = str((description.get("Orchestrator") or {}).get("Eks", {}).get("ClusterArn", ""))
    return {KUBERNETES: f"eks:{arn.rpartition('/')[2]}"} if arn else {}


def _id(arn: str) -> str:
    return arn.rpartition("/")[2]


def _page(name: str) -> dict[str, Any]:
    return {"ClusterName": name, "PaginationConfig": {"PageSize": PAGE}}


def _role(group: Mapping[str, Any], orchestrator: Mapping[str, str]) -> str:
    """Controller, Login or Compute, from the API, else from the group's name; EKS has only nodes that compute."""
    value = group.get("SlurmConfig", {}).get("NodeType")
    if value or KUBERNETES in orchestrator:
        return str(value or "Compute")
    name = str(group["InstanceGroupName"])
    return next((role for role, pattern in _BY_NAME if pattern.search(name)), "Compute")


def _target(node: Mapping[str, Any], cluster_id: str) -> Target:
    instance, group = str(node["InstanceId"]), str(node["InstanceGroupName"])
    return Target(
        name=str(node.get("PrivateDnsHostname", "")).partition(".")[0] or instance,
        address=f"sagemaker-cluster:{cluster_id}_{group}-{instance}",
        group=group,
        instance_type=str(node.get("InstanceType", "")).removeprefix("ml."),
    )


def _is_down(node: Mapping[str, Any]) -> bool:
    return bool(node.get("InstanceStatus", {}).get("Status") != "Running")


def _order(node: Mapping[str, Any]) -> tuple[str, str]:
    return str(node["InstanceGroupName"]), str(node["InstanceId"])


def _notes(roles: Counter[str]) -> list[str]:
    left = [f"{count} {role.lower()}{'s' if count > 1 else ''}" for role, count in roles.items() if role in _LEFT_OUT]
    return [f"not validated: {' and '.join(left)}"] if left else []


def _unknown(account: Account, text: str) -> str:
    """The error for a name that no cluster in the region has."""
    where = f"no HyperPod cluster {text!r:.80} in {account.region}"
    try:
        known = [str(row["ClusterName"]) for row in account.listed("sagemaker", "list_clusters", "ClusterSummaries")]
    except AwsError:
        return f"{where}; for a host say ssh:{text:.80}"
    there = f"there are {listed(known)}" if known else "there is none"
    return f"{where}{nearest(text, known)}; {there}; for a host say ssh:{text:.80}"
