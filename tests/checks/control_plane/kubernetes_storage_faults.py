"""Faults of storage in Kubernetes: CSI drivers of nodes, and claims without a volume."""

from __future__ import annotations

from tests.checks.control_plane.kubernetes_cluster import EBS, FSX, claim, pod, storage_class
from tests.checks.control_plane.kubernetes_fault import CONCERN, FAIL, KubernetesFault, unbound, without_driver

STORAGE_FAULTS = (
    KubernetesFault(
        "a node with which a CSI driver has not registered",
        lambda reports: without_driver(reports, 2, FSX),
        {"k8s_storage": FAIL},
        "gpu003: no CSI driver fsx.csi.aws.com, as 3 of 3 others of its group have; expected the drivers of its group",
    ),
    KubernetesFault(
        "a kubelet with which no CSI driver has registered",
        lambda reports: reports.storage["nodes"].pop(2),
        {"k8s_storage": FAIL},
        "gpu003: no CSI driver ebs.csi.aws.com, as 3 of 3 others of its group have, fsx.csi.aws.com, as 3 of 3 others",
    ),
    KubernetesFault(
        "a pod on a node whose group lacks the driver of its volume",
        lambda reports: [
            reports.storage["claims"].append(claim("home", driver="efs.csi.aws.com")),
            reports.pods.append(pod("notebook", "gpu002", volume_claims=["home"])),
        ],
        {"k8s_storage": CONCERN},
        "gpu002: no CSI driver efs.csi.aws.com, of which train/notebook has the volume of claim home; expected",
    ),
    KubernetesFault(
        "a claim whose provisioner makes no volume",
        lambda reports: unbound(reports, claim("scratch", "Pending"), gates=0),
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        "train/scratch of train/worker-9, 30 min old: fsx.csi.aws.com, of storage class fsx, has made no volume; expec",
    ),
    KubernetesFault(
        "a claim of a storage class that is not there",
        lambda reports: unbound(reports, claim("scratch", "Pending", **{"class": "fxs"})),
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        "30 min old: no volume fits it, and there is no storage class fxs; expected claims that have a volume",
    ),
    KubernetesFault(
        "a claim of no storage class",
        lambda reports: unbound(reports, claim("scratch", "Pending", **{"class": ""})),
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        "30 min old: no volume fits it, and it names no storage class; expected",
    ),
    KubernetesFault(
        "a claim whose volume somebody has to create",
        lambda reports: [
            reports.storage["classes"].append(storage_class("local", "kubernetes.io/no-provisioner")),
            unbound(reports, claim("scratch", "Pending", **{"class": "local"})),
        ],
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        "30 min old: no volume fits it; expected",
    ),
    KubernetesFault(
        "a claim whose node is chosen and that has no volume",
        lambda reports: unbound(reports, claim("scratch", "Pending", selected=True, **{"class": "gp3"})),
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        f"30 min old: {EBS}, of storage class gp3, has made no volume; expected",
    ),
    KubernetesFault(
        "a claim of a volume that is not there",
        lambda reports: unbound(reports, claim("scratch", "Pending", volume="pv-9")),
        {"k8s_volume_claims": CONCERN, "k8s_pending_gpu_pods": CONCERN},
        "30 min old: the volume pv-9 that it names is not there, or is another's; expected",
    ),
    KubernetesFault(
        "a job whose volume is gone",
        lambda reports: reports.storage["claims"][0].update(phase="Lost", driver=""),
        {"k8s_volume_claims": CONCERN},
        "train/data of train/worker-0, 23 days old: its volume pvc-1 is gone; expected",
    ),
    KubernetesFault(
        "a job whose claim nobody made",
        lambda reports: reports.storage["claims"].clear(),
        {"k8s_volume_claims": CONCERN},
        "train/data of train/worker-0, 23 days old: there is no such claim; expected",
    ),
)
