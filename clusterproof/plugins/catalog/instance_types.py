"""The packaged instance types, and machines outside EC2: the numbers that counts are compared with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.record import record

FILE = "machines.toml"
GPUS = 8  # on a baseboard


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every row of instance_types.toml by EC2's name. Raises CatalogError."""
    return table(InstanceType, "instance_types.toml", "instance_type", key="name")


def ec2_name(name: str) -> str:
    """A type by EC2's name: SageMaker writes `ml.p5.48xlarge`."""
    return name.strip().removeprefix("ml.")


@record
class Machine:
    """A machine by the name in its firmware: regular expressions for the whole name."""

    vendor: str
    product: str
    family: str  # DGX or HGX
    source: str

    def is_it(self, vendor: str, product: str) -> bool:
        """Whether this firmware name is the machine's."""
        return bool(re.fullmatch(self.vendor, vendor) and re.fullmatch(self.product, product))


@record
class Board:
    """A baseboard of eight GPUs, by their PCI device id."""

    device: str
    model: str
    gpu_memory_mib: int
    nvlinks_per_gpu: int
    nvswitches: int  # on the node's own PCI bus
    source: str
    pcie_gen: int | None = None


def machine_type(vendor: str, product: str, devices: Iterable[str]) -> str:
    """`DGX H100`, `HGX H200`; A100 with its memory; empty if the machine or its GPUs' device ids are unknown."""
    machine = next((row for row in _machines().values() if row.is_it(vendor, product)), None)
    known = Counter(device for device in devices if device in _boards())
    if machine is None or not known:
        return ""
    return _name(machine.family, _boards()[known.most_common(1)[0][0]])


def machine_row(name: str) -> InstanceType | None:
    """The row of a type that `machine_type` names, if there is one."""
    return _rows().get(name)


@cache
def _rows() -> Mapping[str, InstanceType]:
    return {
        _name(family, board): InstanceType(
            name=_name(family, board),
            source=board.source,
            gpus=GPUS,
            gpu_model=board.model,
            gpu_memory_mib=board.gpu_memory_mib,
            nvlinks_per_gpu=board.nvlinks_per_gpu,
            nvswitch=True,
            nvswitches=board.nvswitches,
            pcie_gen=board.pcie_gen,
            ecc=True,
            efa=0,
            rdma=False,
            gdr=False,
            neuron_devices=0,
        )
        for family in {row.family for row in _machines().values()}
        for board in _boards().values()
    }


def _name(family: str, board: Board) -> str:
    boards = sum(other.model == board.model for other in _boards().values())
    size = f" {board.gpu_memory_mib // 1024} GB" if boards > 1 else ""
    return f"{family} {board.model}{size}"


@cache
def _machines() -> Mapping[str, Machine]:
    return table(Machine, FILE, "machine")


@cache
def _boards() -> Mapping[str, Board]:
    return table(Board, FILE, "board", key="device")
