"""What an instance type has when nothing is broken."""

from __future__ import annotations

from clusterproof.plugins.core.record import record


@record
class InstanceType:
    """One EC2 instance type. None: not known, so what depends on it is incomplete."""

    name: str
    source: str
    gpus: int | None = None
    gpu_model: str | None = None
    gpu_memory_mib: int | None = None  # of one GPU, as EC2 reports it
    nvlinks_per_gpu: int | None = None  # 0: the type has none
    nvswitch: bool | None = None  # fabric manager must run on the node; false where rack switches run it
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
