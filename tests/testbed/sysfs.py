"""Parts of a node's /sys: PCI functions, EFA devices, DMI."""

from __future__ import annotations

from collections.abc import Mapping

from tests.testbed.image import Content, File, Folder, Link

Tree = dict[str, Content]  # by path under /sys


def pci_function(
    address: str,
    vendor: str,
    device: str,
    pci_class: str,
    driver: str = "",
    *,
    link: tuple[int, str] | None = None,
) -> Tree:
    """One PCI function; `link` is its lanes and speed, both of the device and of its slot."""
    here = f"devices/pci0000:00/{address}"
    tree: Tree = {
        f"bus/pci/devices/{address}": Link(f"../../../{here}"),
        f"{here}/vendor": f"0x{vendor}\n",
        f"{here}/device": f"0x{device}\n",
        f"{here}/class": f"0x{pci_class}\n",
        f"{here}/numa_node": f"{int(address[5:7], 16) // 0x90}\n",  # four GPUs of a p5 on each of two nodes
        f"{here}/subsystem": Link("../../../bus/pci"),
    }
    if driver:
        tree[f"bus/pci/drivers/{driver}/{address}"] = Link(f"../../../../{here}")
        tree[f"{here}/driver"] = Link(f"../../../bus/pci/drivers/{driver}")
    if link:
        lanes, speed = link
        for name in ("current", "max"):
            tree[f"{here}/{name}_link_width"] = f"{lanes}\n"
            tree[f"{here}/{name}_link_speed"] = f"{speed}\n"
    return tree


def below(tree: Mapping[str, Content], address: str, *bridges: str, host_bridge: str = "pci0000:00") -> Tree:
    """The same tree with a PCI function of it below these bridges, from the top down."""
    link = tree[f"bus/pci/devices/{address}"]
    assert isinstance(link, Link)
    old = link.target.removeprefix("../../../")
    new = "/".join(["devices", host_bridge, *bridges, address])

    def moved(path: str, content: Content) -> Content:
        if not isinstance(content, Link):
            return content
        if path.startswith(f"{old}/") and "../bus/" in content.target:
            return Link("../" * (new.count("/") + 1) + content.target[content.target.index("bus/") :])
        return Link(f"{content.target}/".replace(f"{old}/", f"{new}/")[:-1])

    return {path.replace(f"{old}/", f"{new}/"): moved(path, content) for path, content in tree.items()}


def aer(correctable: int = 0, nonfatal: int = 0, fatal: int = 0) -> dict[str, str]:
    """The kernel's files of PCIe error counts for a device; each ends with the total."""
    uncorrected = "Undefined {0}\nDLP {0}\nSDES 0\nTLP 0\nCmpltTO 0\nUnsupReq 0\n"
    return {
        "aer_dev_correctable": f"RxErr 0\nBadTLP {correctable}\nBadDLLP 0\nRollover 0\nTOTAL_ERR_COR {correctable}\n",
        "aer_dev_nonfatal": f"{uncorrected.format(nonfatal)}TOTAL_ERR_NONFATAL {nonfatal}\n",
        "aer_dev_fatal": f"{uncorrected.format(fatal)}TOTAL_ERR_FATAL {fatal}\n",
    }


def efa_device(number: int, bus: int, device: str) -> Tree:
    """An EFA device on PCI bus `bus`, the node's `number`th, in the RDMA subsystem's format."""
    address, name = f"0000:{bus:02x}:00.0", f"rdmap{bus}s0"
    here = f"devices/pci0000:00/{address}/infiniband/{name}"
    verbs = f"devices/pci0000:00/{address}/infiniband_verbs/uverbs{number}"
    return {
        **pci_function(address, "1d0f", device, "020000", "efa"),
        f"class/infiniband/{name}": Link(f"../../{here}"),
        f"{here}/device": Link(f"../../../{address}"),
        f"{here}/node_type": "7: unspecified\n",
        f"{here}/ports/1/state": "4: ACTIVE\n",
        f"{here}/ports/1/phys_state": "5: LinkUp\n",
        f"{here}/ports/1/rate": "100 Gb/sec (4X EDR)\n",
        f"{here}/ports/1/link_layer": "Unspecified\n",
        f"class/infiniband_verbs/uverbs{number}": Link(f"../../{verbs}"),
        f"{verbs}/ibdev": f"{name}\n",
        f"{verbs}/device": Link(f"../../../{address}"),
    }


def dmi(vendor: str, product: str) -> Tree:
    """The machine's identity from its firmware; as on real machines, only root may read its serial."""
    here = "devices/virtual/dmi/id"
    return {
        "class/dmi/id": Link(f"../../{here}"),
        f"{here}/sys_vendor": f"{vendor}\n",
        f"{here}/product_name": f"{product}\n",
        f"{here}/board_vendor": f"{vendor}\n",
        f"{here}/board_name": "Not Specified\n",
        f"{here}/bios_version": "1.0\n",
        f"{here}/board_asset_tag": "i-0f1e2d3c4b5a69788\n",
        f"{here}/product_serial": File("ec2f1e2d-3c4b-5a69-7887-96a5b4c3d2e1\n", 0o400),
    }


def module(name: str, version: str = "") -> Tree:
    """A loaded kernel module."""
    tree: Tree = {f"module/{name}/initstate": "live\n"}
    return {**tree, f"module/{name}/version": f"{version}\n"} if version else tree


def common(cpus: int) -> Tree:
    """What every /sys contains."""
    return {
        "devices/system/cpu/online": f"0-{cpus - 1}\n",
        "devices/system/cpu/possible": f"0-{cpus - 1}\n",
        "class/infiniband": Folder(),
        "bus/pci/devices": Folder(),
        "kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "fs/cgroup": Folder(),
    }


def resolved(tree: Mapping[str, Content], path: str) -> str:
    """`path` with the tree's own links followed, as the kernel would."""
    done: list[str] = []
    parts = [word for word in path.split("/") if word]
    while parts:
        word = parts.pop(0)
        if word == "..":
            done.pop()
            continue
        entry = tree.get("/".join([*done, word]))
        if isinstance(entry, Link) and parts:
            parts = [*entry.target.split("/"), *parts]
        else:
            done.append(word)
    return "/".join(done)
