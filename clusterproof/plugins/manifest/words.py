"""The words of a golden manifest's rules, and which parts of an image work only with a device attached."""

from __future__ import annotations

from collections.abc import Mapping

ABSENT = "absent"
LOADED, INSTALLED, NOT_LOADED = "loaded", "installed", "not loaded"
WHOLE = "whole"
ACTIVE = "active"
MODULE = (LOADED, INSTALLED, NOT_LOADED, ABSENT)
LIBRARY = (WHOLE, ABSENT)
SERVICE = (
    ACTIVE,
    "inactive",
    "failed",
    INSTALLED,
    ABSENT,
    "enabled",
    "disabled",
    "static",
    "masked",
    "indirect",
    "alias",
)
SIZES = ("cpus", "memory_gib", "gpus", "efa", "nvme_disks", "root_gib", "dev_shm_gib")
FABRIC_MANAGER = "fabric_manager"  # a component whose version its own program prints

GPU, EFA, NEURON = "NVIDIA GPU", "EFA device", "Neuron device"
IB, RDMA = "InfiniBand or RoCE device", "RDMA device"
DRIVERS = ("driver", "efa", "gdrcopy", "neuron_driver", "ofed")  # components that show their version once loaded
DEVICE_OF: Mapping[str, str] = {  # what must be attached before a driver, a module or a service shows itself at work
    **dict.fromkeys(("driver", "gdrcopy", "gdrdrv", "nvidia", "nvidia_uvm", "nvidia_peermem", "nvidia_fs"), GPU),
    **dict.fromkeys(("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "dcgm"), GPU),
    **dict.fromkeys(("neuron_driver", "neuron"), NEURON),
    **dict.fromkeys(("ofed", "mlx5_core", "mlx5_ib"), IB),
    **dict.fromkeys(("ib_core", "ib_uverbs"), RDMA),
    "efa": EFA,
}


def listed(rule: str) -> list[str]:
    """The words of a rule that has several: `active, enabled`."""
    return [word.strip() for word in rule.split(",")]


def component(name: str) -> str:
    """A component by the name that the probe has for it: `EFA-installer` is `efa_installer`."""
    return name.lower().replace("-", "_")
