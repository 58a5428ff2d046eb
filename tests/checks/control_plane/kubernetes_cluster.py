"""A healthy cluster as Kubernetes reports it, with nodes that report the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.catalog.kubernetes import bad_status, role_of
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import POD
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.recordings import boot, gpu, node, nvml

NOW = 1_763_900_000.0  # 2025-11-23T12:13:20Z
LONG_AGO, JUST_NOW, HALF_AN_HOUR_AGO = "2025-11-01T00:00:00Z", "2025-11-23T12:12:50Z", "2025-11-23T11:43:20Z"
NAMES = tuple(f"gpu{number:03}" for number in range(1, 5))
PRODUCT = "NVIDIA H100 80GB HBM3"
PAGES = 5128
UID = "3f0c8f6e-37f6-4b7e-9f0f-0d4b5f4b8d{:02}"
DAEMON_SETS = (
    "nvidia-device-plugin-daemonset",
    "aws-efa-k8s-device-plugin",
    "aws-node",
    "kube-proxy",
    "nvidia-dcgm-exporter",
)
FSX, EBS = "fsx.csi.aws.com", "ebs.csi.aws.com"
POLICIES = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted"}
STATES = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "None"}
Json = dict[str, Any]


def node_in_kubernetes(name: str) -> Json:
    """Kubernetes' report on one p5 node."""
    given = {"gpu": 8, "efa": 32, "hugepages_2mi": PAGES * 2 * 2**20, "mig": {}}
    return {
        "name": name,
        "instance_id": f"i-0123456789abcde{name[-2:]}",
        "group": "workers",
        "instance_type": "p5.48xlarge",
        "zone": "us-west-2a",
        "region": "us-west-2",
        "created": LONG_AGO,
        "cordoned": False,
        "conditions": [
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            *(condition(kind, "False") for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")),
            condition("AcceleratedHardwareReady", "True"),
            condition("SiteNetworkReady", "True"),
        ],
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule", "ours": False}],
        "capacity": dict(given),
        "allocatable": dict(given),
        "info": {
            "kubelet": "v1.34.4-eks",
            "runtime": "containerd://2.1.4",
            "os": "Amazon Linux 2023",
            "kernel": "6.12.53",
        },
        "labels": {
            "gpu_product": PRODUCT,
            "gpu_count": "8",
            "driver": "580.126.09",
            "hyperpod_health": "Schedulable",
            "hyperpod_deep_check": "Passed",
        },
        "layers": ["nn-1", "nn-2", "nn-3"],
        "ultraserver": "",
    }


def condition(kind: str, status: str, reason: str = "", message: str = "", since: str = LONG_AGO) -> Json:
    fields = {"kind": kind, "status": status, "reason": reason, "message": message, "since": since, "heard": JUST_NOW}
    return {"bad": bad_status(kind), **fields}


def pod(name: str, node: str = "", **changed: Any) -> Json:
    """A pod that is running and ready."""
    return {
        "namespace": "train",
        "name": name,
        "uid": UID.format(99),
        "node": node,
        "phase": "Running",
        "owner": "",
        "role": "",
        "created": LONG_AGO,
        "deleted": "",
        "ready": True,
        "unready": [],
        "waits_for": "",
        "gates": 0,
        "claims": 0,
        "volume_claims": [],
        "gpus": 0,
        "most_gpus": 0,
        "accelerators": 0,
        "shm": "",
        **changed,
    }


def claim(name: str, phase: str = "Bound", **changed: Any) -> Json:
    """A claim of class fsx, with its volume."""
    bound = {"volume": "pvc-1", "driver": FSX} if phase == "Bound" else {"volume": "", "driver": ""}
    fields = {"namespace": "train", "name": name, "phase": phase, "class": "fsx", "selected": False}
    return {**fields, **bound, "created": LONG_AGO, **changed}


def storage_class(name: str, provisioner: str = FSX, waits_for_pods: bool = False) -> Json:
    return {"name": name, "provisioner": provisioner, "waits_for_pods": waits_for_pods}


def compute_domain(*names: str, **changed: Any) -> Json:
    """A compute domain whose daemons are ready on these nodes."""
    nodes = [{"name": name, "clique": f"{UID.format(7)}.0", "status": "Ready"} for name in names]
    fields = {"namespace": "train", "name": "domain", "created": LONG_AGO, "wanted": len(names), "nodes": nodes}
    return {**fields, **changed}


def waiting(reason: str, message: str = "", container: str = "main", restarts: int = 0) -> Json:
    return {"container": container, "reason": reason, "message": message, "restarts": restarts}


def held(cgroup: str, pid: int = 4711, name: str = "python") -> Json:
    """A process that holds a GPU."""
    fields = {"pid": pid, "memory_mib": 900, "name": name, "cgroup": cgroup, "uid": 1000, "program": name, "parent": {}}
    pod = POD.search(cgroup)
    return {**fields, **({"pod": pod[1].replace("_", "-")} if pod else {})}


def of_pod(number: int) -> str:
    """The control group of the pod with that number."""
    return f"/kubepods.slice/kubepods-pod{UID.format(number).replace('-', '_')}.slice/cri-containerd-0a.scope"


@dataclass
class Words:
    """Kubernetes' reports by collector, and each node's own reports."""

    kubernetes: dict[str, Any]
    of_nodes: dict[str, Json]
    refused: dict[str, Collected] = field(default_factory=dict)  # Kubernetes collectors that were refused

    @property
    def nodes(self) -> list[Json]:
        return list(self.kubernetes["k8s_nodes"]["nodes"])

    @property
    def pods(self) -> list[Json]:
        pods: list[Json] = self.kubernetes["k8s_pods"]["pods"]
        return pods

    @property
    def domain(self) -> Json:
        """Its only compute domain."""
        domain: Json = self.kubernetes["k8s_compute_domains"]["domains"][0]
        return domain

    @property
    def storage(self) -> Json:
        storage: Json = self.kubernetes["k8s_storage"]
        return storage

    @property
    def flavors(self) -> list[Json]:
        return list(self.kubernetes["k8s_queues"]["flavors"])

    def pod_of(self, daemon_set: str, node: str) -> Json:
        return next(pod for pod in self.pods if pod["owner"] == f"DaemonSet/{daemon_set}" and pod["node"] == node)

    def facts(self, **settings: str) -> ClusterFacts:
        """All of it, in the form that checks see."""
        targets = tuple(
            Target(name, group="workers", instance_type="p5.48xlarge", efa_attached=32) for name in self.of_nodes
        )
        cluster = Cluster("k8s:prod", "kubernetes", targets, {"kubernetes": "context:prod", **settings})
        collected = {name: Collected(Status.READ, value) for name, value in self.kubernetes.items()}
        evidence = {name: node(name, **own) if own else unreached(name) for name, own in self.of_nodes.items()}
        return ClusterFacts(
            cluster, NodeEvidence(cluster.name, {**collected, **self.refused}), nodes(cluster, evidence)
        )


def unreached(name: str) -> NodeEvidence:
    from clusterproof.plugins.core.evidence import Unreached

    return NodeEvidence(name, unreached=Unreached.NOT_READY, detail="the kubelet does not answer")


def healthy() -> Words:
    """Four nodes with their system pods, and a job on the first."""
    pods = [
        pod(
            f"{name}-{node[-1]}",
            node,
            namespace="kube-system",
            owner=f"DaemonSet/{name}",
            role=role_of("kube-system", name),
            uid=UID.format(number),
        )
        for number, (name, node) in enumerate(((name, node) for node in NAMES for name in DAEMON_SETS), start=10)
    ]
    requests = {"gpus": 8, "most_gpus": 8, "accelerators": 8, "volume_claims": ["data"]}
    job = pod("worker-0", NAMES[0], uid=UID.format(1), shm="memory", **requests)
    flavor = {
        "name": "h100",
        "labels": "pool=train",
        "nodes": 4,
        "topology": "rack",
        "has_topology": True,
        "unlabelled": [],
    }
    return Words(
        {
            "k8s_nodes": {"asked_at": NOW, "nodes": [node_in_kubernetes(name) for name in NAMES]},
            "k8s_pods": {"asked_at": NOW, "pods": [*pods, job], "is_cut": False, "waiting_left_out": 0},
            "k8s_resource_slices": {"slices": []},
            "k8s_compute_domains": {
                "asked_at": NOW,
                "is_installed": True,
                "domains": [compute_domain(*NAMES)],
                "left_out": 0,
            },
            "k8s_queues": {"is_installed": True, "flavors": [flavor]},
            "k8s_storage": {
                "nodes": [{"name": name, "drivers": [EBS, FSX]} for name in NAMES],
                "classes": [storage_class("fsx"), storage_class("gp3", EBS, waits_for_pods=True)],
                "claims": [claim("data")],
                "is_cut": False,
            },
        },
        {name: _of_itself(name) for name in NAMES},
    )


def _of_itself(name: str) -> Json:
    processes = [held(of_pod(1))] if name == NAMES[0] else []
    gpus = [gpu(index, name=PRODUCT, processes=processes) for index in range(8)]
    return {
        "boot": boot(hostname=name),
        "nvml": nvml(*gpus, hidden=[], daemon_users=[0]),
        "kubelet": {"configured": dict(POLICIES), "changed": [], "in_force": dict(STATES)},
        "memory": {"huge_pages": [{"size_kib": 2048, "pages": PAGES, "free": 0}]},
        "imds": {"identity": {"instance_type": "p5.48xlarge", "availability_zone": "us-west-2a", "instance_id": "i-0"}},
    }
