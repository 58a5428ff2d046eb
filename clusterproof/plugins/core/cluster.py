"""A cluster as resolved from X in `--cluster X`: its nodes, and what each is expected to have."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import field, record

INSTANCE_ID = r"i-[0-9a-f]{8,17}"  # EC2's instance ids, as a pattern


@record
class InstanceType:
    """One EC2 instance type. None means unknown: checks that depend on the value are incomplete."""

    name: str
    source: str
    gpus: int | None = None
    gpu_model: str | None = None
    gpu_memory_mib: int | None = None  # of one GPU, as EC2 reports it
    nvlinks_per_gpu: int | None = None  # 0: the type has none
    nvswitch: bool | None = None  # fabric manager must run on the node; false where rack switches run it
    trays: tuple[int, ...] | None = None  # the numbers of trays that an NVLink domain of a rack is offered with
    nvswitches: int | None = None  # on the node's own PCI bus; none from Blackwell on
    efa: int | None = None  # maximum number of devices
    efa_gbps: int | None = None  # of one device: the minimum rate of its port
    network_gbps: int | None = None
    rdma: bool | None = None  # EFA's RDMA read and write, not FI_EP_RDM, which every EFA device has
    rdma_read: bool | None = None  # EFA's RDMA read alone, where `rdma` is not true
    gdr: bool | None = None  # EFA's GPUDirect RDMA: devices access GPU memory directly
    ecc: bool | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None  # of one GPU, where the type wires fewer than the GPU supports
    neuron_devices: int | None = None
    numa_balancing: bool | None = None  # the vendor's recommended kernel.numa_balancing; None: no recommendation
    vcpus: int | None = None
    memory_mib: int | None = None  # of the instance, as EC2 reports it; the kernel's MemTotal is a few percent less
    nvme: int | None = None  # local NVMe disks (instance storage); 0: the type has none
    nvme_gb: int | None = None  # of each, in 10^9 bytes

    @property
    def is_made_for_efa(self) -> bool:
        """Whether the type is only used with EFA that reaches the memory of its GPUs or Neuron devices directly."""
        return bool(self.gdr) or bool(self.neuron_devices and self.rdma)


@record
class Target:
    """One node: its name, how to reach it, and what it is expected to have, where known.

    `expect` holds numbers by name (`gpus`, `efa`) that outrank the instance type's; `efa_attached` is how many EFA
    devices AWS says are attached to it.
    """

    name: str
    address: str = ""  # empty: the name itself
    user: str = ""
    port: int = 0  # 0: the connection's default
    group: str = ""
    instance_type: str = ""
    expect: Mapping[str, int] = field(default_factory=dict)
    efa_attached: int | None = None  # None: AWS was not asked, or does not report it


@record
class Cluster:
    """The nodes of a run and the connection that reaches them.

    `connection` is a key of `clusterproof.plugins.core.kinds.CONNECTIONS`; `settings` are that connection's own
    (`recording` for replay, `capture` for capture, `identity_file` for ssh, `region` and `arn`
    for a cluster of AWS's, …).
    """

    name: str
    connection: str
    targets: tuple[Target, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # shown to the user in the header
    is_part: bool = False  # whether the inventory is known to have more nodes


class InventoryError(ClusterproofError, ValueError):
    """An X that names no cluster; the one-line message says what was wrong and what is right."""


def require_unique(targets: tuple[Target, ...], where: str) -> tuple[Target, ...]:
    """Return the targets unchanged. Raises InventoryError for a duplicate name: their evidence would be mixed up."""
    seen: set[str] = set()
    for target in targets:
        if target.name in seen:
            raise InventoryError(f"{where} has the node {target.name!r:.80} twice; expected it once")
        seen.add(target.name)
    return targets


def is_of_aws(cluster: Cluster) -> bool:
    """Whether the inventory came from AWS, now or when it was recorded."""
    return "region" in cluster.settings


def is_of_hyperpod(cluster: Cluster) -> bool:
    """Whether this is a SageMaker HyperPod cluster, where the owner skills are available."""
    return "arn" in cluster.settings  # redacted clusters have another name


def is_of_slurm(cluster: Cluster) -> bool:
    """Whether Slurm manages the cluster: a host with its commands is known, now or when it was recorded."""
    return "submit_host" in cluster.settings


def is_of_kubernetes(cluster: Cluster) -> bool:
    """Whether Kubernetes manages the cluster: its API is reachable, now or when it was recorded."""
    return "kubernetes" in cluster.settings


def is_loaded_by_pods(cluster: Cluster) -> bool:
    """Whether load on its nodes runs in pods: true on Kubernetes, also when a gate's agents report on the nodes."""
    return cluster.connection in ("kubernetes", "agents")
