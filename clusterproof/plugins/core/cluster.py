"""A cluster: its nodes, how each is reached, and what each is expected to be."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import field, record

INSTANCE_ID = r"i-[0-9a-f]{8,17}"  # of EC2, as a pattern


@record
class InstanceType:
    """One EC2 instance type. None is unknown, and makes what depends on it incomplete."""

    name: str
    source: str
    gpus: int | None = None
    gpu_model: str | None = None
    gpu_memory_mib: int | None = None  # of one GPU, as EC2 reports it
    nvlinks_per_gpu: int | None = None  # 0: the type has none
    nvswitch: bool | None = None  # fabric manager must run on the node; false where rack switches run it
    trays: tuple[int, ...] | None = None  # that an NVLink domain of a rack has, by the sizes that it is offered in
    nvswitches: int | None = None  # on the node's own PCI bus; from Blackwell on they are not
    efa: int | None = None  # devices at most
    efa_gbps: int | None = None  # of one device: what its port's rate must reach
    network_gbps: int | None = None
    rdma: bool | None = None  # EFA's RDMA read and write, not FI_EP_RDM, which every EFA device has
    rdma_read: bool | None = None  # EFA's RDMA read alone, where `rdma` is not true
    gdr: bool | None = None  # EFA's GPUDirect RDMA: devices that reach the GPUs' memory themselves
    ecc: bool | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None  # of one GPU, where the type wires fewer than the GPU has
    neuron_devices: int | None = None
    numa_balancing: bool | None = None  # what its vendor wants of kernel.numa_balancing; None: nothing
    vcpus: int | None = None
    memory_mib: int | None = None  # of the instance, as EC2 reports it; the kernel's MemTotal is a few percent less
    nvme: int | None = None  # local NVMe disks (instance storage); 0: the type has none
    nvme_gb: int | None = None  # of each, in 10^9 bytes

    @property
    def is_made_for_efa(self) -> bool:
        """Whether nobody takes it without EFA, which reaches its GPUs' memory itself, or that of its Neuron devices."""
        return bool(self.gdr) or bool(self.neuron_devices and self.rdma)


@record
class Target:
    """One node: its name, how it is reached, and what it is expected to be.

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
    efa_attached: int | None = None  # None: nobody asked AWS, or it does not say


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
    notes: tuple[str, ...] = ()  # what a person should know of it, for the header
    is_part: bool = False  # whether the inventory is known to have more nodes


class InventoryError(ClusterproofError, ValueError):
    """An X that names no cluster; the message is one line: what was wrong and what is expected."""


def each_once(targets: tuple[Target, ...], where: str) -> tuple[Target, ...]:
    """The same nodes. Raises InventoryError where two have one name: one's evidence would stand for the other's."""
    seen: set[str] = set()
    for target in targets:
        if target.name in seen:
            raise InventoryError(f"{where} has the node {target.name!r:.80} twice; expected it once")
        seen.add(target.name)
    return targets


def is_of_aws(cluster: Cluster) -> bool:
    """Whether AWS knows the cluster: its inventory came from there, now or when it was recorded."""
    return "region" in cluster.settings


def is_of_hyperpod(cluster: Cluster) -> bool:
    """Whether it is a cluster of SageMaker HyperPod, whose skills are at home there."""
    return "arn" in cluster.settings  # which has another name where names are redacted


def is_of_slurm(cluster: Cluster) -> bool:
    """Whether Slurm knows the cluster: there is a host where its commands are, now or when it was recorded."""
    return "submit_host" in cluster.settings


def is_of_kubernetes(cluster: Cluster) -> bool:
    """Whether Kubernetes knows the cluster: there is a way to its API, now or when it was recorded."""
    return "kubernetes" in cluster.settings


def is_loaded_by_pods(cluster: Cluster) -> bool:
    """Whether pods load its nodes: those of Kubernetes, also where a gate's agents report what is on them."""
    return cluster.connection in ("kubernetes", "agents")
