"""Faults of pods and of processes that hold GPUs, differences within groups, faults of topology and queues."""

from __future__ import annotations

from tests.checks.control_plane.kubernetes_cluster import HALF_AN_HOUR_AGO, JUST_NOW, NAMES, held, of_pod, pod, waiting
from tests.checks.control_plane.kubernetes_fault import (
    CONCERN,
    FAIL,
    INCOMPLETE,
    PLUGIN,
    KubernetesFault,
    ill,
    job,
    missing,
    process,
)

POD_FAULTS = (
    KubernetesFault(
        "a device plugin that crashes",
        lambda reports: ill(reports, PLUGIN, waiting("CrashLoopBackOff", "back-off 5m0s", "plugin", 12)),
        {"k8s_system_pods": FAIL},
        f"gpu002: kube-system/{PLUGIN}-2, which gives GPUs to pods: plugin: CrashLoopBackOff (back-off 5m0s), 12 re",
    ),
    KubernetesFault(
        "a network agent that is not ready for days",
        lambda reports: ill(reports, "aws-node", waiting("", container="aws-node")),
        {"k8s_system_pods": FAIL},
        "gpu002: kube-system/aws-node-2, which connects pods: aws-node is not ready; expected",
    ),
    KubernetesFault(
        "an exporter without its image",
        lambda reports: ill(reports, "nvidia-dcgm-exporter", waiting("ImagePullBackOff"), created=JUST_NOW),
        {"k8s_system_pods": CONCERN},
        "gpu002: kube-system/nvidia-dcgm-exporter-2, which watches the GPUs: main: ImagePullBackOff; expected",
    ),
    KubernetesFault(
        "a node without kube-proxy",
        lambda reports: missing(reports, "kube-proxy"),
        {"k8s_system_pods": FAIL},
        "gpu003: no pod of kube-proxy, which leads to services, as on 3 of 3 others of its group; expected",
    ),
    KubernetesFault(
        "a node without kube-proxy, with a user's daemon set of that name",
        lambda reports: [
            missing(reports, "kube-proxy"),
            reports.pods.append(pod("kube-proxy-3", NAMES[2], owner="DaemonSet/kube-proxy")),
        ],
        {"k8s_system_pods": FAIL},
        "gpu003: no pod of kube-proxy, which leads to services, as on 3 of 3 others of its group; expected",
    ),
    KubernetesFault(
        "a pod that waits for GPUs",
        lambda reports: reports.pods.append(
            pod(
                "worker-9",
                phase="Pending",
                created=HALF_AN_HOUR_AGO,
                accelerators=8,
                waits_for="0/4 nodes are available",
            )
        ),
        {"k8s_pending_gpu_pods": CONCERN},
        "train/worker-9 has been pending for 30 min: 0/4 nodes are available; expected pods that start within 10 min",
    ),
    KubernetesFault(
        "a pod that waits for a claim of GPUs",
        lambda reports: reports.pods.append(
            pod(
                "worker-9",
                phase="Pending",
                created=HALF_AN_HOUR_AGO,
                claims=1,
                waits_for="0/4 nodes are available: 4 cannot allocate all claims",
            )
        ),
        {"k8s_pending_gpu_pods": CONCERN},
        "train/worker-9 has been pending for 30 min: 0/4 nodes are available: 4 cannot allocate all claims; expected",
    ),
    KubernetesFault(
        "a pod with a claim that does not terminate",
        lambda reports: reports.pods.append(pod("worker-9", NAMES[1], deleted=HALF_AN_HOUR_AGO, claims=1)),
        {"k8s_gpu_pods": FAIL},
        "gpu002: train/worker-9 should have ended 30 min ago and holds 1 resource claim; expected pods that terminate",
    ),
    KubernetesFault(
        "a pod that does not terminate",
        lambda reports: job(reports, deleted=HALF_AN_HOUR_AGO),
        {"k8s_gpu_pods": FAIL},
        "gpu001: train/worker-0 should have ended 30 min ago and holds 8 accelerators; expected pods that terminate",
    ),
    KubernetesFault(
        "a process outside of any pod",
        lambda reports: process(reports, held("/user.slice/user-1000.slice/session-4.scope")),
        {"k8s_gpu_pods": FAIL},
        "gpu002: GPU 3: process 4711 (python) belongs to no pod; expected only pods to use GPUs",
    ),
    KubernetesFault(
        "a process that ended while it was read, which is accused of nothing",
        lambda reports: process(reports, held("", pid=4710, name="")),
        {"k8s_gpu_pods": INCOMPLETE},
        "gpu002: the control group of process 4710 was not reported; expected one while it runs",
    ),
    KubernetesFault(
        "a process outside of any pod, beside one that ended while it was read",
        lambda reports: process(
            reports, held("", pid=4710, name=""), held("/user.slice/user-1000.slice/session-4.scope")
        ),
        {"k8s_gpu_pods": FAIL},
        "gpu002: GPU 3: process 4711 (python) belongs to no pod; expected only pods to use GPUs",
    ),
    KubernetesFault(
        "a process that calls its own control group a pod's",
        lambda reports: process(reports, held(f"/user.slice/user-1000.slice{of_pod(2)}")),
        {"k8s_gpu_pods": FAIL},
        "gpu002: GPU 3: process 4711 (python) belongs to no pod",
    ),
    KubernetesFault(
        "a process of a pod that is gone",
        lambda reports: process(reports, held(of_pod(77))),
        {"k8s_gpu_pods": CONCERN},
        "gpu002: GPU 3: process 4711 (python) belongs to a pod that Kubernetes does not list on this node; expected",
    ),
    KubernetesFault(
        "a pod that uses GPUs and asks for none",
        lambda reports: job(reports, gpus=0, most_gpus=0, accelerators=0),
        {"k8s_gpu_pods": CONCERN},
        "belongs to train/worker-0, which requests none; expected only pods that request GPUs",
    ),
    KubernetesFault(
        "a job with the runtime's shared memory",
        lambda reports: job(reports, shm=""),
        {"k8s_pod_shm": CONCERN},
        "train/worker-0 with 8 GPUs; expected memory at /dev/shm of a container with several GPUs",
    ),
    KubernetesFault(
        "a job whose shared memory is on disk",
        lambda reports: job(reports, shm="disk"),
        {"k8s_pod_shm": CONCERN},
        "train/worker-0 with 8 GPUs has it on disk; expected",
    ),
    KubernetesFault(
        "a node of another version",
        lambda reports: reports.nodes[2]["info"].update(kubelet="v1.33.1-eks"),
        {"k8s_versions_uniform": CONCERN},
        "workers: kubelet v1.34.4-eks on 3 and v1.33.1-eks on 1; expected one version of each in a group",
    ),
    KubernetesFault(
        "a node without labels of its network",
        lambda reports: reports.nodes[2].update(layers=[]),
        {"k8s_topology_labels": CONCERN},
        "gpu003: no label for its network nodes, as another of its group has; expected labels for its zone and",
    ),
    KubernetesFault(
        "a label of another zone",
        lambda reports: reports.nodes[2].update(zone="us-west-2b"),
        {"k8s_topology_labels": FAIL},
        "gpu003: label us-west-2b, but the node is in us-west-2a; expected the same zone",
    ),
    KubernetesFault(
        "labels of other network nodes than EC2's",
        lambda reports: reports.kubernetes.update(
            instance_topology={"instances": [{"hostname": "gpu003", "NetworkNodes": ["nn-1", "nn-2", "nn-9"]}]}
        ),
        {"k8s_topology_labels": FAIL},
        "gpu003: labels nn-1/nn-2/nn-3, but EC2 reports nn-1/nn-2/nn-9; expected the same network nodes",
    ),
    KubernetesFault(
        "an IMEX daemon of a compute domain that is not ready",
        lambda reports: reports.domain["nodes"][2].update(status="NotReady"),
        {"k8s_compute_domains": CONCERN},
        "train/domain: NotReady on gpu003; expected every node's IMEX daemon Ready, in a clique",
    ),
    KubernetesFault(
        "a node of a compute domain without a clique",
        lambda reports: reports.domain["nodes"][1].update(clique=""),
        {"k8s_compute_domains": CONCERN},
        "train/domain: no clique on gpu002, as the others have; expected",
    ),
    KubernetesFault(
        "a compute domain that waits for a node",
        lambda reports: reports.domain.update(wanted=5),
        {"k8s_compute_domains": CONCERN},
        "train/domain: 4 of 5 nodes; expected",
    ),
    KubernetesFault(
        "more compute domains than were looked at",
        lambda reports: reports.kubernetes["k8s_compute_domains"].update(left_out=2),
        {"k8s_compute_domains": INCOMPLETE},
        "2 more compute domains not checked; expected at most 1",
    ),
    KubernetesFault(
        "a flavor that matches no node",
        lambda reports: reports.flavors[0].update(nodes=0, labels="pool=gone"),
        {"k8s_queues": CONCERN},
        "h100 (pool=gone) matches no node; expected every flavor to have nodes with",
    ),
    KubernetesFault(
        "more flavors than were looked at",
        lambda reports: reports.kubernetes["k8s_queues"].update(left_out=3),
        {"k8s_queues": INCOMPLETE},
        "3 more flavors were not checked; expected at most 1",
    ),
    KubernetesFault(
        "a flavor of a topology that is not there",
        lambda reports: reports.flavors[0].update(has_topology=False),
        {"k8s_queues": FAIL},
        "h100 names the topology rack, which does not exist; expected topologies that exist",
    ),
    KubernetesFault(
        "nodes without a label of the topology",
        lambda reports: reports.flavors[0].update(
            unlabelled=[{"level": "topology.k8s.aws/network-node-layer-2", "nodes": ["gpu003", "gpu004"], "count": 2}]
        ),
        {"k8s_queues": CONCERN},
        "h100: 2 of 4 nodes without topology.k8s.aws/network-node-layer-2 (gpu[003-004]); expected",
    ),
)
