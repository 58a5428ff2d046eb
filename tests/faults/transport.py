"""Variables that jobs inherit."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.gpu_link import a10g
from tests.faults.infiniband import infiniband
from tests.faults.roce import roce
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_cpu, with_file, with_line

PLAN = "network.transport_plan"
PROFILE = "/etc/profile.d/nccl.sh"
PROLOG = "/opt/slurm/etc/task_prolog.sh"


def g6() -> NodeImage:
    """A node of a type whose EFA may or may not have RDMA."""
    return healthy_gpu_node("L4")


def on_premises() -> NodeImage:
    """A node of another vendor."""
    image = with_file(healthy_cpu(), "/sys/class/dmi/id/sys_vendor", "Dell Inc.\n")
    return with_file(image, "/sys/class/dmi/id/product_name", "PowerEdge XE9680\n")


def with_list(image: NodeImage, *devices: str) -> NodeImage:
    """Every job is told to use these RDMA devices."""
    return with_file(image, "/etc/nccl.conf", f"NCCL_IB_HCA=={','.join(devices)}\n")


def listed() -> NodeImage:
    """A node with four ConnectX devices, all of which jobs are told to use."""
    return with_list(infiniband(), "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def variable(line: str) -> Callable[[NodeImage], NodeImage]:
    """Every program of the node has this variable."""
    return lambda image: with_line(image, "/etc/environment", line)


OF_NVLINK = (
    ("no direct traffic between GPUs", "NCCL_P2P_DISABLE=1", "NCCL does not use NVLink; expected no such variable"),
    ("no GPU near enough for direct traffic", "NCCL_P2P_LEVEL=LOC", "NCCL does not use NVLink; expected no such"),
)
OF_INFINIBAND = (
    (
        "NCCL told not to use InfiniBand",
        "NCCL_IB_DISABLE=1",
        FAIL,
        "NCCL uses TCP; expected no such variable on a node",
    ),
    ("NCCL told to use sockets beside InfiniBand", "NCCL_NET=Socket", FAIL, "NCCL uses TCP; expected no such variable"),
    (
        "NCCL told to use a network device that is not there",
        "NCCL_IB_HCA==mlx5_9:1",
        CONCERN,
        "chooses no device of this node; expected one of mlx5_0, mlx5_1, mlx5_2, mlx5_3",
    ),
    ("NCCL told to use no Mellanox device", "NCCL_IB_HCA=^mlx5", CONCERN, "chooses no device of this node"),
    ("GPUDirect RDMA switched off for NCCL", "NCCL_NET_GDR_LEVEL=LOC", CONCERN, "is copied through host memory"),
)
OF_ROCE = (
    ("NCCL told not to use RoCE", "NCCL_IB_DISABLE=1", "NCCL uses TCP; expected no such variable on a node with RoCE"),
    ("NCCL told to use sockets beside RoCE", "NCCL_NET=Socket", "NCCL uses TCP"),
    ("NCCL told to use an address of RoCE that is not routed", "NCCL_IB_GID_INDEX=0", "is of RoCE version 1"),
)
OF_ALL = (
    ("no shared memory between processes for NCCL", "NCCL_SHM_DISABLE=1", CONCERN, "goes through the network"),
    (
        "GPUs hidden from every program",
        "CUDA_VISIBLE_DEVICES=0,1",
        CONCERN,
        "hides all but 2 of 8 GPUs from every program",
    ),
    ("libfabric told not to use EFA", "FI_PROVIDER=^efa", FAIL, "libfabric may not use EFA; expected efa"),
    ("libfabric told to use verbs on a node with EFA", "FI_PROVIDER=verbs", FAIL, "libfabric may not use EFA"),
    (
        "NCCL told to use an interface that reaches no other node",
        "NCCL_SOCKET_IFNAME=lo,docker0",
        CONCERN,
        "chooses docker0, lo, which reaches no other node; expected one of ens32",
    ),
    (
        "a variable of NCCL that the other nodes do not set",
        "NCCL_BUFFSIZE=1048576",
        CONCERN,
        "NCCL_BUFFSIZE 1048576; expected not set as on 3 of 4 nodes",
    ),
)


def with_task_prolog(image: NodeImage, script: str) -> NodeImage:
    """Slurm runs this before each task."""
    image = with_file(image, "/opt/slurm/etc/slurm.conf", f"ClusterName=train\nTaskProlog={PROLOG}\n")
    return with_file(image, PROLOG, script) if script else image


FAULTS = (
    Fault(
        "RDMA asked of an EFA device that has none",
        lambda image: with_line(image, "/etc/environment", "FI_EFA_USE_DEVICE_RDMA=1"),
        {PLAN: FAIL},
        "libfabric aborts on a device without RDMA; expected no such variable",
        base=a10g,
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
        "chooses no interface of this node; expected one of ens32",
    ),
    Fault(
        "NCCL's algorithm pinned, and its interface not there",
        lambda image: with_file(image, "/etc/nccl.conf", "NCCL_ALGO=Ring\nNCCL_SOCKET_IFNAME==eth0\n"),
        {PLAN: CONCERN},
        "NCCL_SOCKET_IFNAME==eth0 (/etc/nccl.conf line 2) chooses no interface of this node; expected one of ens32",
    ),
    Fault(
        "a task prolog of Slurm's that is not there",
        lambda image: with_task_prolog(image, ""),
        {PLAN: INCOMPLETE},
        f"could not be read: {PROLOG}",
    ),
    *(Fault(name, variable(line), {PLAN: FAIL}, message) for name, line, message in OF_NVLINK),
    *(
        Fault(f"{name}, of cards", variable(line), {PLAN: CONCERN}, "through host memory", base=g6)
        for name, line, _ in OF_NVLINK[:1]
    ),
    *(
        Fault(name, variable(line), {PLAN: verdict}, message, base=infiniband)
        for name, line, verdict, message in OF_INFINIBAND
    ),
    Fault(
        "NCCL told to use a network device by the number that it has on another node",
        lambda image: with_list(image, "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4"),
        {PLAN: CONCERN},
        "NCCL_IB_HCA chooses 3 of 15b3:1021; expected 4 of 15b3:1021 as on 3 of 4 nodes",
        base=listed,
    ),
    *(Fault(name, variable(line), {PLAN: CONCERN}, message, base=roce) for name, line, message in OF_ROCE),
    *(Fault(name, variable(line), {PLAN: verdict}, message) for name, line, verdict, message in OF_ALL),
)
