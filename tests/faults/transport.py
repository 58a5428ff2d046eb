"""Variables that jobs inherit."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_cpu, with_file, with_line

PLAN = "network.transport_plan"
PROFILE = "/etc/profile.d/nccl.sh"
PROLOG = "/opt/slurm/etc/task_prolog.sh"


def g5() -> NodeImage:
    """A node of a type whose EFA has no RDMA."""
    return healthy_gpu_node("A10G")


def g6() -> NodeImage:
    """A node of a type whose EFA may or may not have RDMA."""
    return healthy_gpu_node("L4")


def on_premises() -> NodeImage:
    """A node of another vendor."""
    image = with_file(healthy_cpu(), "/sys/class/dmi/id/sys_vendor", "Dell Inc.\n")
    return with_file(image, "/sys/class/dmi/id/product_name", "PowerEdge XE9680\n")


def with_task_prolog(image: NodeImage, script: str) -> NodeImage:
    """Slurm runs that before each task."""
    image = with_file(image, "/opt/slurm/etc/slurm.conf", f"ClusterName=train\nTaskProlog={PROLOG}\n")
    return with_file(image, PROLOG, script) if script else image


FAULTS = (
    Fault(
        "RDMA asked of an EFA device that has none",
        lambda image: with_line(image, "/etc/environment", "FI_EFA_USE_DEVICE_RDMA=1"),
        {PLAN: FAIL},
        "libfabric aborts on a device without RDMA; expected no such variable",
        base=g5,
    ),
    Fault(
        "RDMA asked of an EFA device of which nothing is known",
        lambda image: with_line(image, "/etc/environment", "FI_EFA_USE_DEVICE_RDMA=1"),
        {PLAN: INCOMPLETE},
        "no rdma_read for g6.48xlarge",
        base=g6,
    ),
    Fault(
        "RDMA asked of EFA where no device is attached",
        lambda image: with_line(image, "/etc/environment", "FI_EFA_USE_DEVICE_RDMA=1"),
        {PLAN: CONCERN},
        "there is no EFA device that could have RDMA",
        base=healthy_cpu,
    ),
    Fault(
        "NCCL told to load EFA's plugin where no device is attached",
        lambda image: with_line(image, "/etc/environment", "NCCL_NET_PLUGIN=ofi"),
        {PLAN: CONCERN},
        "NCCL loads the plugin for EFA, which finds no device; expected none on a node without EFA",
        base=healthy_cpu,
    ),
    Fault(
        "NCCL told to use nothing but EFA where no device is attached",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_NET=AWS Libfabric\n"),
        {PLAN: FAIL},
        "NCCL may use no other network than EFA",
        base=healthy_cpu,
    ),
    Fault(
        "EFA's RDMA switched off",
        lambda image: with_file(image, PROFILE, "export FI_EFA_USE_DEVICE_RDMA=0\n"),
        {PLAN: CONCERN},
        "EFA's RDMA is switched off",
    ),
    Fault(
        "NCCL without its network plugin on a node with EFA",
        lambda image: with_file(image, PROFILE, "# tuning\nNCCL_NET_PLUGIN='none'\nexport NCCL_NET_PLUGIN\n"),
        {PLAN: FAIL},
        f"NCCL_NET_PLUGIN=none ({PROFILE} line 2)",
    ),
    Fault(
        "NCCL without its network plugin on a condition",
        lambda image: with_file(image, PROFILE, "if ! fi_info -p efa; then\n  export NCCL_NET_PLUGIN=none\nfi\n"),
        {PLAN: CONCERN},
        f"({PROFILE} line 2, on a condition)",
    ),
    Fault(
        "NCCL told to use sockets on a node with EFA",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_DEBUG=WARN\nNCCL_NET=Socket\n"),
        {PLAN: FAIL},
        "NCCL uses TCP",
    ),
    Fault(
        "libfabric told to use TCP by Slurm's task prolog",
        lambda image: with_task_prolog(image, '#!/bin/bash\necho "export FI_PROVIDER=tcp"\n'),
        {PLAN: FAIL},
        f"FI_PROVIDER=tcp ({PROLOG} line 2): libfabric uses TCP",
    ),
    Fault(
        "libfabric told to use EFA on a node without",
        lambda image: with_line(image, "/etc/environment", "FI_PROVIDER=efa"),
        {PLAN: CONCERN},
        "libfabric finds no device for it",
        base=on_premises,
    ),
    Fault(
        "NCCL's algorithm and protocol pinned",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_ALGO=Ring\nNCCL_PROTO=Simple\n"),
        {PLAN: CONCERN},
        "NCCL_PROTO=Simple (/etc/nccl.conf line 2): NCCL may not choose the protocol; expected NCCL's own choice",
    ),
    Fault(
        "a threshold that NCCL no longer knows",
        lambda image: with_line(image, "/etc/environment", "NCCL_TREE_THRESHOLD=0"),
        {PLAN: CONCERN},
        "no NCCL since 2.5 knows it",
    ),
    Fault(
        "NCCL told to use an interface that is not there",
        lambda image: with_line(image, "/etc/environment", "NCCL_SOCKET_IFNAME==eth0,eth1"),
        {PLAN: CONCERN},
        "chooses no interface of this node; expected one of docker0, ens32, lo",
    ),
    Fault(
        "NCCL's algorithm pinned, and its interface not there",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_ALGO=Ring\nNCCL_SOCKET_IFNAME==eth0\n"),
        {PLAN: CONCERN},
        "NCCL_SOCKET_IFNAME==eth0 (/etc/nccl.conf line 2) chooses no interface of this node; expected one of docker0",
    ),
    Fault(
        "a task prolog of Slurm's that is not there",
        lambda image: with_task_prolog(image, ""),
        {PLAN: INCOMPLETE},
        f"could not be read: {PROLOG}",
    ),
)
