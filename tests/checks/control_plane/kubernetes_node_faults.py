"""Faults of nodes in Kubernetes, and of the devices that it gives to pods."""

from __future__ import annotations

from tests.checks.control_plane.kubernetes_cluster import (
    HALF_AN_HOUR_AGO,
    LONG_AGO,
    POLICIES,
    STATES,
    condition,
    waiting,
)
from tests.checks.control_plane.kubernetes_fault import (
    CONCERN,
    FAIL,
    INCOMPLETE,
    KubernetesFault,
    give,
    gpu_of,
    ill,
    kubelet,
    label,
    one_gpu_lost,
    others_gpus,
    set_condition,
    taint,
)

NODE_FAULTS = (
    KubernetesFault(
        "a kubelet that is not ready",
        lambda reports: set_condition(
            reports, condition("Ready", "False", "KubeletNotReady", "no network", HALF_AN_HOUR_AGO)
        ),
        {"k8s_node_ready": FAIL, "k8s_system_pods": INCOMPLETE},
        "gpu003: Ready is False for 30 min (KubeletNotReady: no network); expected a node that is Ready",
    ),
    KubernetesFault(
        "a kubelet that is not ready because its network agent crashes",
        lambda reports: (
            set_condition(reports, condition("Ready", "False", "KubeletNotReady", "cni plugin not initialized"), 1),
            ill(reports, "aws-node", waiting("CrashLoopBackOff", "back-off 5m0s", "aws-node", 12)),
            ill(reports, "kube-proxy", waiting("", container="kube-proxy")),  # as of every pod there
        ),
        {"k8s_system_pods": FAIL, "k8s_node_ready": FAIL},
        "gpu002: kube-system/aws-node-2, which connects pods: aws-node: CrashLoopBackOff (back-off 5m0s), 12 restarts; "
        "expected the system pods of a node ready",
    ),
    KubernetesFault(
        "a kubelet that no longer reports, whose network agent crashed before",
        lambda reports: (
            set_condition(reports, condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting"), 1),
            ill(reports, "aws-node", waiting("CrashLoopBackOff")),
        ),
        {"k8s_system_pods": INCOMPLETE, "k8s_node_ready": FAIL},
        "gpu002: it is not Ready, so the state of its pods is unknown; expected a node that is Ready",
    ),
    KubernetesFault(
        "a kubelet that no longer reports",
        lambda reports: set_condition(
            reports, condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting")
        ),
        {"k8s_node_ready": FAIL, "k8s_system_pods": INCOMPLETE},
        "gpu003: Ready is Unknown for 23 days (NodeStatusUnknown: Kubelet stopped posting); expected",
    ),
    KubernetesFault(
        "a node short of disk",
        lambda reports: set_condition(reports, condition("DiskPressure", "True", "KubeletHasDiskPressure")),
        {"k8s_node_ready": FAIL},
        "gpu003: DiskPressure is True for 23 days (KubeletHasDiskPressure); expected enough memory, disk and",
    ),
    KubernetesFault(
        "a node without the condition Ready that is short of disk",
        lambda reports: (
            reports.nodes[2].update(conditions=[]),
            set_condition(reports, condition("DiskPressure", "True", "KubeletHasDiskPressure")),
        ),
        {"k8s_node_ready": FAIL, "k8s_system_pods": INCOMPLETE},
        "gpu003: DiskPressure is True for 23 days (KubeletHasDiskPressure); expected enough memory, disk and",
    ),
    KubernetesFault(
        "a condition that nobody confirms",
        lambda reports: set_condition(reports, {**condition("Ready", "True"), "heard": HALF_AN_HOUR_AGO}),
        {"k8s_node_ready": CONCERN},
        "gpu003: Ready was last confirmed 30 min ago; expected an update at least every 10 min",
    ),
    KubernetesFault(
        "an agent of EKS that found a fault",
        lambda reports: set_condition(
            reports, condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "Xid 79")
        ),
        {"k8s_node_ready": CONCERN},
        "gpu003: AcceleratedHardwareReady is False for 23 days (NvidiaXID79Error: Xid 79); expected no condition",
    ),
    KubernetesFault(
        "a condition of another agent that outlived its writer",
        lambda reports: set_condition(reports, {**condition("GPUMissing", "True", "Missing"), "heard": LONG_AGO}),
        {"k8s_node_ready": CONCERN},
        "gpu003: GPUMissing is True for 23 days (Missing), last confirmed 23 days ago",
    ),
    KubernetesFault(
        "a cordoned node",
        lambda reports: reports.nodes[1].update(cordoned=True),
        {"k8s_node_takes_pods": FAIL},
        "gpu002: it is cordoned; expected a node that takes pods",
    ),
    KubernetesFault(
        "a taint that the others do not have",
        lambda reports: taint(reports, 1, "ToBeDeletedByClusterAutoscaler"),
        {"k8s_node_takes_pods": FAIL},
        "gpu002: taint ToBeDeletedByClusterAutoscaler:NoSchedule; expected only those that most of its group have",
    ),
    KubernetesFault(
        "a taint by hand that outlived the outage of its node",
        lambda reports: taint(reports, 1, "node.kubernetes.io/out-of-service", "NoExecute"),
        {"k8s_node_takes_pods": FAIL},
        "gpu002: taint node.kubernetes.io/out-of-service:NoExecute; expected only those that most of its group have",
    ),
    KubernetesFault(
        "a taint that outlived its condition",
        lambda reports: taint(reports, 1, "node.kubernetes.io/not-ready"),
        {"k8s_node_takes_pods": CONCERN},
        "gpu002: taint node.kubernetes.io/not-ready:NoSchedule, and no condition that says why; expected a node that",
    ),
    KubernetesFault(
        "a taint of this suite's own gate",
        lambda reports: taint(reports, 1, "clusterproof.dev/unfit"),
        {"k8s_node_takes_pods": CONCERN},
        "gpu002: taint clusterproof.dev/unfit:NoSchedule; expected a node that takes pods",
    ),
    KubernetesFault(
        "a node that HyperPod is about to replace",
        lambda reports: label(
            reports, 3, hyperpod_health="UnschedulablePendingReplacement", hyperpod_fault="NvidiaGPUError"
        ),
        {"hyperpod_node_health": FAIL},
        "gpu004: HyperPod reports it as UnschedulablePendingReplacement (NvidiaGPUError); expected Schedulable",
    ),
    KubernetesFault(
        "a deep health check that failed",
        lambda reports: label(reports, 3, hyperpod_deep_check="Failed"),
        {"hyperpod_node_health": FAIL},
        "gpu004: its deep health checks failed; expected them to pass",
    ),
    KubernetesFault(
        "a deep health check that runs",
        lambda reports: label(reports, 3, hyperpod_deep_check="InProgress"),
        {"hyperpod_node_health": CONCERN},
        "gpu004: its deep health checks are still running; expected a node that takes pods",
    ),
    KubernetesFault(
        "a fault that HyperPod names of a node which it schedules",
        lambda reports: label(reports, 3, hyperpod_fault="NvidiaGPUError", hyperpod_reason="Xid 63"),
        {"hyperpod_node_health": CONCERN},
        "gpu004: HyperPod reports it as Schedulable and names a fault: NvidiaGPUError: Xid 63; expected none",
    ),
    KubernetesFault(
        "a GPU that the device plugin found unhealthy",
        lambda reports: give(reports, 1, {"gpu": 8}, {"gpu": 7}),
        {"k8s_gpu_allocatable": FAIL},
        "gpu002: 7 of 8 nvidia.com/gpu allocatable; expected every device allocatable",
    ),
    KubernetesFault(
        "a device plugin that died",
        lambda reports: give(reports, 1, {"gpu": 0}),
        {"k8s_gpu_allocatable": FAIL, "k8s_gpu_seen": FAIL},
        "gpu002: 0 GPUs allocatable; expected 8",
    ),
    KubernetesFault(
        "an EFA device that is not allocatable",
        lambda reports: give(reports, 1, {"efa": 31}),
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
        "label nvidia.com/gpu.product is NVIDIA H100 80GB HBM3, NVML reports NVIDIA A100-SXM4-80GB; expected the same",
    ),
    KubernetesFault(
        "labels of another GPU, beside a GPU that is lost",
        lambda reports: (others_gpus(reports), gpu_of(reports, 5).update(name={"error": "GPU_IS_LOST"})),
        {"k8s_gpu_labels": FAIL, "k8s_gpu_pods": INCOMPLETE},
        "label nvidia.com/gpu.product is NVIDIA H100 80GB HBM3, NVML reports NVIDIA A100-SXM4-80GB; expected the same",
    ),
    KubernetesFault(
        "a label of an older driver",
        lambda reports: label(reports, 1, driver="570.86.15"),
        {"k8s_gpu_labels": CONCERN},
        "gpu002: label nvidia.com/cuda.driver-version.full is 570.86.15, the driver 580.126.09; expected the same",
    ),
    KubernetesFault(
        "a node without labels of its GPUs",
        lambda reports: reports.nodes[1].update(labels={"hyperpod_health": "Schedulable"}),
        {"k8s_gpu_labels": CONCERN},
        "gpu002: its GPUs have no labels, but those of its group do; expected nvidia.com/gpu.product",
    ),
    KubernetesFault(
        "huge pages that were reserved after the kubelet started",
        lambda reports: give(reports, 1, {"hugepages_2mi": 0}),
        {"k8s_hugepages": FAIL},
        "gpu002: Kubernetes offers 0 MiB of huge pages, but the kernel has reserved 10256 MiB; expected the same",
    ),
    KubernetesFault(
        "a kubelet without the policies of its group",
        lambda reports: kubelet(reports, 1, configured={}, in_force={**STATES, "cpuManagerPolicy": "none"}),
        {"k8s_kubelet_policy": CONCERN},
        "gpu002: cpuManagerPolicy none, topologyManagerPolicy none; expected static as on 3 of 4 nodes, restricted as",
    ),
    KubernetesFault(
        "a kubelet that aligns pods where the others align containers",
        lambda reports: kubelet(reports, 2, configured={**POLICIES, "topologyManagerScope": "pod"}),
        {"k8s_kubelet_policy": CONCERN},
        "gpu003: topologyManagerScope pod; expected container as on 3 of 4 nodes",
    ),
    KubernetesFault(
        "a kubelet that was not restarted",
        lambda reports: kubelet(reports, 1, in_force={**STATES, "cpuManagerPolicy": "none"}),
        {"k8s_kubelet_policy": CONCERN},
        "gpu002: cpuManagerPolicy is none in force and static in its files; expected the configured",
    ),
    KubernetesFault(
        "a configuration that is newer than its kubelet",
        lambda reports: kubelet(reports, 1, changed=["/var/lib/kubelet/config.yaml"]),
        {"k8s_kubelet_policy": INCOMPLETE},
        "gpu002: /var/lib/kubelet/config.yaml changed after the kubelet started; expected older",
    ),
)
