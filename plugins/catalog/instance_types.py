"""What an instance type has when nothing is broken: the numbers that counts are held against."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.machines import machine_row
from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.catalog.site import own_instance_types
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


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every row of instance_types.toml by EC2's name. Raises CatalogError."""
    return table(InstanceType, "instance_types.toml", "instance_type", key="name")


def instance_type(name: str) -> InstanceType | None:
    """The row of a type by EC2's or SageMaker's name (`ml.p5.48xlarge`) or a machine's (`DGX H100`), if there is one.

    A site's own stand first.
    """
    name = name.strip().removeprefix("ml.")
    return own_instance_types.get(name) or instance_types().get(name) or machine_row(name)


_ACCELERATED = re.compile(r"(?:ml\.)?(?:p|g|gr|trn|inf|dl)\d")  # families of types that have accelerators


def accelerators(name: str) -> int | None:
    """How many GPUs or Neuron devices an instance of a type has; None where the catalogue does not tell."""
    row = instance_type(name)
    if row is None:
        return None if _ACCELERATED.match(name) else 0
    return row.gpus or row.neuron_devices or (0 if row.gpus == 0 else None)


def efa_devices_of(name: str) -> int | None:
    """How many EFA devices an instance of a type has at most; None where the catalogue does not tell."""
    row = instance_type(name)
    return row.efa if row else None
