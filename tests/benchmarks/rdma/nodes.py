"""The /sys of nodes with RDMA devices, written into a folder."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.image import Link
from tests.testbed.sysfs import Tree, efa_device, pci_function


def rdma_device(name: str, bus: int, link_layer: str = "InfiniBand", **port: str) -> Tree:
    """A card with one port, on PCI bus `bus`."""
    address = f"0000:{bus:02x}:00.0"
    here = f"devices/pci0000:00/{address}/infiniband/{name}"
    files = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": link_layer}
    return {
        **pci_function(address, "15b3", "1021", "020700", "mlx5_core"),
        f"class/infiniband/{name}": Link(f"../../{here}"),
        f"{here}/device": Link(f"../../../{address}"),
        **{f"{here}/ports/1/{file}": f"{text}\n" for file, text in {**files, **port}.items()},
    }


def with_address(name: str, bus: int, index: int, type_: str = "RoCE v2") -> Tree:
    """An IPv4 address of a RoCE port, at that index of its table."""
    here = f"devices/pci0000:00/0000:{bus:02x}:00.0/infiniband/{name}/ports/1"
    gid = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    return {f"{here}/gids/{index}": f"{gid}\n", f"{here}/gid_attrs/types/{index}": f"{type_}\n"}


def written(folder: Path, tree: Tree) -> str:
    """The root of a node with this /sys."""
    for path, content in tree.items():
        file = folder / "sys" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            file.symlink_to(content.target)
        else:
            file.write_text(str(content))
    return str(folder)


def efas(*buses: int) -> Tree:
    return {
        path: content for number, bus in enumerate(buses) for path, content in efa_device(number, bus, "efa2").items()
    }
