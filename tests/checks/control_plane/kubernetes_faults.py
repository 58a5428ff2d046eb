"""The faults that the checks over Kubernetes are proven on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.recordings import gpu
from tests.checks.control_plane.kubernetes_cluster import (
    HALF_AN_HOUR_AGO,
    JUST_NOW,
    LONG_AGO,
    NAMES,
    Told,
    Words,
    condition,
    healthy,
    held,
    of_pod,
    pod,
    waiting,
)

FAIL, CONCERN, INCOMPLETE, NOT_APPLICABLE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
PLUGIN = "nvidia-device-plugin-daemonset"


@dataclass(frozen=True)
class KubernetesFault:
    """A fault: what it changes in what is told, the verdicts that it changes, and words of what is said."""

    name: str
    change: Callable[[Words], object]
    expect: Mapping[str, Verdict]
    words: str

    def put(self) -> Words:
        words = healthy()
        self.change(words)
        return words


def set_condition(words: Words, changed: Told, number: int = 2) -> None:
    """The condition of that kind on one node, or one more."""
    told = words.nodes[number]
    told["conditions"] = [one for one in told["conditions"] if one["kind"] != changed["kind"]] + [changed]


def give(words: Words, number: int, has: Told, gives: Told | None = None) -> None:
    words.nodes[number]["capacity"].update(has)
    words.nodes[number]["allocatable"].update(has if gives is None else gives)


def label(words: Words, number: int, **labels: str) -> None:
    words.nodes[number]["labels"].update(labels)


def taint(words: Words, number: int, key: str, effect: str = "NoSchedule") -> None:
    words.nodes[number]["taints"] = [
        *words.nodes[number]["taints"],
        {"key": key, "value": "", "effect": effect, "ours": "clusterproof" in key},
    ]


def one_gpu_lost(words: Words) -> None:
    nvml = words.of_nodes[NAMES[1]]["nvml"]
    nvml.update(count=7, gpus=nvml["gpus"][:7])


def process(words: Words, told: Told, node: str = NAMES[1]) -> None:
    words.of_nodes[node]["nvml"]["gpus"][3]["processes"] = [told]


def others_gpus(words: Words) -> None:
    words.of_nodes[NAMES[1]]["nvml"]["gpus"] = [
        gpu(index, name="NVIDIA A100-SXM4-80GB", processes=[]) for index in range(8)
    ]


def ill(words: Words, daemon_set: str, told: Told, **changed: object) -> None:
    words.pod_of(daemon_set, NAMES[1]).update(ready=False, unready=[told], **changed)


def missing(words: Words, daemon_set: str) -> None:
    words.pods.remove(words.pod_of(daemon_set, NAMES[2]))


def job(words: Words, **changed: object) -> None:
    words.pods[-1].update(changed)


KUBERNETES_FAULTS = (
    KubernetesFault(
        "a kubelet that is not ready",
        lambda words: set_condition(
            words, condition("Ready", "False", "KubeletNotReady", "no network", HALF_AN_HOUR_AGO)
        ),
        {"k8s_node_ready": FAIL, "k8s_system_pods": INCOMPLETE},
        "gpu003: Ready is False for 30 min (KubeletNotReady: no network); expected a node that is Ready",
    ),
    KubernetesFault(
        "a kubelet that is no longer heard",
        lambda words: set_condition(
            words, condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting")
        ),
        {"k8s_node_ready": FAIL, "k8s_system_pods": INCOMPLETE},
        "gpu003: Ready is Unknown for 23 days (NodeStatusUnknown: Kubelet stopped posting); expected",
    ),
    KubernetesFault(
        "a node short of disk",
        lambda words: set_condition(words, condition("DiskPressure", "True", "KubeletHasDiskPressure")),
        {"k8s_node_ready": FAIL},
        "gpu003: DiskPressure is True for 23 days (KubeletHasDiskPressure); expected a node that is short of nothing",
    ),
    KubernetesFault(
        "a condition that nobody confirms",
        lambda words: set_condition(words, {**condition("Ready", "True"), "heard": HALF_AN_HOUR_AGO}),
        {"k8s_node_ready": CONCERN},
        "gpu003: Ready was last confirmed 30 min ago; expected a kubelet that does so every 10 min",
    ),
    KubernetesFault(
        "an agent of EKS that found a fault",
        lambda words: set_condition(
            words, condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "Xid 79")
        ),
        {"k8s_node_ready": CONCERN},
        "gpu003: AcceleratedHardwareReady is False for 23 days (NvidiaXID79Error: Xid 79); expected conditions",
    ),
    KubernetesFault(
        "a condition of another agent that outlived its writer",
        lambda words: set_condition(words, {**condition("GPUMissing", "True", "Missing"), "heard": LONG_AGO}),
        {"k8s_node_ready": CONCERN},
        "gpu003: GPUMissing is True for 23 days (Missing), last confirmed 23 days ago",
    ),
    KubernetesFault(
        "a cordoned node",
        lambda words: words.nodes[1].update(cordoned=True),
        {"k8s_node_takes_pods": FAIL},
        "gpu002: it is cordoned; expected a node that takes pods",
    ),
    KubernetesFault(
        "a taint that the others do not have",
        lambda words: taint(words, 1, "ToBeDeletedByClusterAutoscaler"),
        {"k8s_node_takes_pods": FAIL},
        "gpu002: taint ToBeDeletedByClusterAutoscaler:NoSchedule; expected only those that most of its group have",
    ),
    KubernetesFault(
        "a taint of this suite's own gate",
        lambda words: taint(words, 1, "clusterproof.dev/unfit"),
        {"k8s_node_takes_pods": CONCERN},
        "gpu002: taint clusterproof.dev/unfit:NoSchedule; expected a node that takes pods",
    ),
    KubernetesFault(
        "a node that HyperPod is about to replace",
        lambda words: label(
            words, 3, hyperpod_health="UnschedulablePendingReplacement", hyperpod_fault="NvidiaGPUError"
        ),
        {"hyperpod_node_health": FAIL},
        "gpu004: HyperPod has it as UnschedulablePendingReplacement (NvidiaGPUError); expected Schedulable",
    ),
    KubernetesFault(
        "a deep health check that failed",
        lambda words: label(words, 3, hyperpod_deep_check="Failed"),
        {"hyperpod_node_health": FAIL},
        "gpu004: its deep health checks failed; expected them to pass",
    ),
    KubernetesFault(
        "a deep health check that runs",
        lambda words: label(words, 3, hyperpod_deep_check="InProgress"),
        {"hyperpod_node_health": CONCERN},
        "gpu004: its deep health checks still run; expected a node that takes pods",
    ),
    KubernetesFault(
        "a fault that HyperPod names of a node which it schedules",
        lambda words: label(words, 3, hyperpod_fault="NvidiaGPUError", hyperpod_reason="Xid 63"),
        {"hyperpod_node_health": CONCERN},
        "gpu004: HyperPod has it as Schedulable and names a fault: NvidiaGPUError: Xid 63; expected none",
    ),
    KubernetesFault(
        "a GPU that the device plugin found ill",
        lambda words: give(words, 1, {"gpu": 8}, {"gpu": 7}),
        {"k8s_gpu_allocatable": FAIL},
        "gpu002: 7 of 8 nvidia.com/gpu allocatable; expected every device allocatable",
    ),
    KubernetesFault(
        "a device plugin that died",
        lambda words: give(words, 1, {"gpu": 0}),
        {"k8s_gpu_allocatable": FAIL, "k8s_gpu_seen": FAIL},
        "gpu002: 0 GPUs allocatable; expected 8",
    ),
    KubernetesFault(
        "an EFA device that is not given",
        lambda words: give(words, 1, {"efa": 31}),
        {"k8s_efa_allocatable": FAIL},
        "gpu002: 31 EFA devices allocatable; expected 32",
    ),
    KubernetesFault(
        "a GPU that the driver has lost since",
        one_gpu_lost,
        {"k8s_gpu_seen": FAIL, "k8s_gpu_labels": FAIL},
        "gpu002: Kubernetes has 8 GPUs, NVML counts 7; expected the same number",
    ),
    KubernetesFault(
        "labels of another GPU",
        others_gpus,
        {"k8s_gpu_labels": FAIL},
        "label nvidia.com/gpu.product is NVIDIA H100 80GB HBM3, NVML tells NVIDIA A100-SXM4-80GB; expected the same",
    ),
    KubernetesFault(
        "a label of an older driver",
        lambda words: label(words, 1, driver="570.86.15"),
        {"k8s_gpu_labels": CONCERN},
        "gpu002: label nvidia.com/cuda.driver-version.full is 570.86.15, the driver 580.126.09; expected the same",
    ),
    KubernetesFault(
        "a node without labels of its GPUs",
        lambda words: words.nodes[1].update(labels={"hyperpod_health": "Schedulable"}),
        {"k8s_gpu_labels": CONCERN},
        "gpu002: it has no labels of its GPUs, and others of its group have; expected nvidia.com/gpu.product",
    ),
    KubernetesFault(
        "huge pages that were reserved after the kubelet started",
        lambda words: give(words, 1, {"hugepages_2mi": 0}),
        {"k8s_hugepages": FAIL},
        "gpu002: Kubernetes gives 0 MiB of huge pages, the kernel has reserved 10256 MiB; expected the same",
    ),
    KubernetesFault(
        "a device plugin that crashes",
        lambda words: ill(words, PLUGIN, waiting("CrashLoopBackOff", "back-off 5m0s", "plugin", 12)),
        {"k8s_system_pods": FAIL},
        f"gpu002: kube-system/{PLUGIN}-2, which gives GPUs to pods: plugin: CrashLoopBackOff (back-off 5m0s), 12 re",
    ),
    KubernetesFault(
        "a network agent that is not ready for days",
        lambda words: ill(words, "aws-node", waiting("", container="aws-node")),
        {"k8s_system_pods": FAIL},
        "gpu002: kube-system/aws-node-2, which connects pods: aws-node is not ready; expected",
    ),
    KubernetesFault(
        "an exporter without its image",
        lambda words: ill(words, "nvidia-dcgm-exporter", waiting("ImagePullBackOff"), created=JUST_NOW),
        {"k8s_system_pods": CONCERN},
        "gpu002: kube-system/nvidia-dcgm-exporter-2, which watches the GPUs: main: ImagePullBackOff; expected",
    ),
    KubernetesFault(
        "a node without kube-proxy",
        lambda words: missing(words, "kube-proxy"),
        {"k8s_system_pods": FAIL},
        "gpu003: no pod of kube-proxy, which leads to services, as on 3 of 3 others of its group; expected",
    ),
    KubernetesFault(
        "a pod that waits for GPUs",
        lambda words: words.pods.append(
            pod(
                "worker-9",
                phase="Pending",
                created=HALF_AN_HOUR_AGO,
                accelerators=8,
                waits_for="0/4 nodes are available",
            )
        ),
        {"k8s_pending_gpu_pods": CONCERN},
        "train/worker-9 waits for 30 min: 0/4 nodes are available; expected pods that start within 10 min",
    ),
    KubernetesFault(
        "a pod that does not end",
        lambda words: job(words, deleted=HALF_AN_HOUR_AGO),
        {"k8s_gpu_pods": FAIL},
        "gpu001: train/worker-0 should have ended 30 min ago and holds 8; expected pods that end",
    ),
    KubernetesFault(
        "a process outside of any pod",
        lambda words: process(words, held("/user.slice/user-1000.slice/session-4.scope")),
        {"k8s_gpu_pods": FAIL},
        "gpu002: GPU 3: process 4711 (python) belongs to no pod; expected GPUs that pods alone hold",
    ),
    KubernetesFault(
        "a process that calls its own control group a pod's",
        lambda words: process(words, held(f"/user.slice/user-1000.slice{of_pod(2)}")),
        {"k8s_gpu_pods": FAIL},
        "gpu002: GPU 3: process 4711 (python) belongs to no pod",
    ),
    KubernetesFault(
        "a process of a pod that is gone",
        lambda words: process(words, held(of_pod(77))),
        {"k8s_gpu_pods": CONCERN},
        "gpu002: GPU 3: process 4711 (python) is of a pod that Kubernetes does not have on this node; expected",
    ),
    KubernetesFault(
        "a pod that uses GPUs and asks for none",
        lambda words: job(words, gpus=0, most_gpus=0, accelerators=0),
        {"k8s_gpu_pods": CONCERN},
        "is of train/worker-0, which asks for none; expected processes of pods that ask for GPUs",
    ),
    KubernetesFault(
        "a job with the runtime's shared memory",
        lambda words: job(words, shm=""),
        {"k8s_pod_shm": CONCERN},
        "train/worker-0 with 8 GPUs; expected memory at /dev/shm of a container with several GPUs",
    ),
    KubernetesFault(
        "a job whose shared memory is on disk",
        lambda words: job(words, shm="disk"),
        {"k8s_pod_shm": CONCERN},
        "train/worker-0 with 8 GPUs has it on disk; expected",
    ),
    KubernetesFault(
        "a node of another version",
        lambda words: words.nodes[2]["info"].update(kubelet="v1.33.1-eks"),
        {"k8s_versions_uniform": CONCERN},
        "workers: kubelet v1.34.4-eks on 3 and v1.33.1-eks on 1; expected one version of each in a group",
    ),
    KubernetesFault(
        "a node without labels of its network",
        lambda words: words.nodes[2].update(layers=[]),
        {"k8s_topology_labels": CONCERN},
        "gpu003: no label of its network nodes, as another of its group has; expected labels of where it stands",
    ),
    KubernetesFault(
        "a label of another zone",
        lambda words: words.nodes[2].update(zone="us-west-2b"),
        {"k8s_topology_labels": FAIL},
        "gpu003: label us-west-2b, and it is in us-west-2a; expected the same zone",
    ),
    KubernetesFault(
        "labels of other network nodes than EC2's",
        lambda words: words.kubernetes.update(
            instance_topology={"instances": [{"hostname": "gpu003", "NetworkNodes": ["nn-1", "nn-2", "nn-9"]}]}
        ),
        {"k8s_topology_labels": FAIL},
        "gpu003: labels nn-1/nn-2/nn-3, EC2 tells nn-1/nn-2/nn-9; expected the same network nodes",
    ),
    KubernetesFault(
        "a flavor that matches no node",
        lambda words: words.flavors[0].update(nodes=0, labels="pool=gone"),
        {"k8s_queues": CONCERN},
        "h100 (pool=gone) matches no node; expected flavors whose nodes exist",
    ),
    KubernetesFault(
        "a flavor of a topology that is not there",
        lambda words: words.flavors[0].update(has_topology=False),
        {"k8s_queues": FAIL},
        "h100 names the topology rack, which is not there; expected topologies that exist",
    ),
    KubernetesFault(
        "nodes without a label of the topology",
        lambda words: words.flavors[0].update(
            unlabelled=[{"level": "topology.k8s.aws/network-node-layer-2", "nodes": ["gpu003", "gpu004"], "count": 2}]
        ),
        {"k8s_queues": CONCERN},
        "h100: 2 of 4 nodes without topology.k8s.aws/network-node-layer-2 (gpu[003-004]); expected",
    ),
)
__all__ = ["KUBERNETES_FAULTS", "KubernetesFault"]
