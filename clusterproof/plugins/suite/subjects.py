"""What a check is called for: a node, each of its devices, the cluster, a pair of nodes, or a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from clusterproof.plugins.core.result import OF_A_MEMBER
from clusterproof.plugins.evidence.node import Node

# The argument of a light check says what it is called for: once for the node, or once for each of its devices. A check
# of devices may ask for the node besides.
SUBJECTS: dict[str, Callable[[Node], Iterable[Any]]] = {
    "node": lambda node: (node,),
    "gpu": lambda node: node.gpus,
    "pci_device": lambda node: node.pci_devices,
    "efa_device": lambda node: node.efa_devices,
    "ib_device": lambda node: node.ib_devices,
    "mount": lambda node: node.mounts,
    "lustre_client": lambda node: node.lustre_clients,
    "ost": lambda node: node.osts,
    "mdt": lambda node: node.mdts,
    "nvme": lambda node: node.nvme_controllers,
    "neuron_device": lambda node: node.neuron_devices,
}
# Or for two nodes that were measured together.
SUBJECTS_OF_PAIR: dict[str, Callable[[Any], Iterable[Any]]] = {"pair": lambda pair: pair.subjects}


def _file_systems(cluster: Any) -> Iterable[Any]:
    from clusterproof.plugins.evidence.fsx.mounted import file_systems  # no node has any

    return file_systems(cluster)


# Once for the cluster, or for each thing that the cluster has; or for one node of it, as its control plane has that.
SUBJECTS_OF_CLUSTER: dict[str, Callable[[Any], Iterable[Any]]] = {
    "cluster": lambda cluster: (cluster,),
    "file_system": _file_systems,
    OF_A_MEMBER: lambda owner: (owner.member,),
}
# Once for a training run, or for each of its ranks.
SUBJECTS_OF_RUN: dict[str, Callable[[Any], Iterable[Any]]] = {"run": lambda run: (run,), "rank": lambda run: run.ranks}
ALL_SUBJECTS = {**SUBJECTS, **SUBJECTS_OF_PAIR, **SUBJECTS_OF_CLUSTER, **SUBJECTS_OF_RUN}
WHOLE = ("node", "cluster", "run")  # what has no devices beside it
UNLABELLED = (*WHOLE, *SUBJECTS_OF_PAIR, OF_A_MEMBER)
DEVICES = {
    "gpu": "NVIDIA GPU",
    "pci_device": "GPU, network adapter or NVMe controller on the PCI bus",
    "efa_device": "EFA device",
    "ib_device": "InfiniBand or RoCE device",
    "mount": "mount",
    "file_system": "FSx file system",
    "lustre_client": "connection to a Lustre server",
    "ost": "Lustre OST",
    "mdt": "Lustre MDT",
    "nvme": "NVMe controller",
    "neuron_device": "Neuron device",
    "rank": "rank",
}
COUNTED = {"gpu": "gpus", "efa_device": "efa"}  # devices of which a node is expected to have a number


class Owner(Protocol):
    """A node, a pair of nodes, or the cluster: what a result is about."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type_name(self) -> str:
        """Its instance type, else empty."""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """The UUIDs of its GPUs."""
