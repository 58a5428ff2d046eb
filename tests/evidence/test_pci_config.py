"""PCIe settings between GPUs and network devices, from configuration space and from lspci -vvv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.evidence.pci.collect_pci_config import read
from clusterproof.plugins.evidence.pci.facts_config import PciSettings
from tests.builders.samples import sample
from tests.testbed.pci import space

GPU = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
PORT, END = "devices/pci0000:44/0000:44:01.0", "devices/pci0000:44/0000:44:01.0/0000:53:00.0"


def collected(root: Path, of_gpu: bytes, of_port: bytes = b"", **files: str) -> Any:
    """The collector's report on a GPU below one port."""
    for folder, data in ((PORT, of_port), (END, of_gpu)):
        at = root / "sys" / folder
        (at / "power").mkdir(parents=True)
        (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (root / "sys/bus/pci/devices" / at.name).symlink_to(Path("../../..") / folder)
        for name, text in GPU.items() if folder == END else ():
            (at / name).write_text(f"{text}\n")
        (at / "config").write_bytes(data)
    for name, text in files.items():
        path = root / "sys" / END / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    return read(Node(str(root)))


@pytest.mark.parametrize(
    ("payload", "request_bytes", "relaxed", "acs"),
    [(128, 512, True, None), (256, 4096, False, 0), (512, 128, True, 0x1D), (4096, 2048, False, 0x5F)],
)
def test_settings_are_those_of_the_capabilities(
    tmp_path: Path, payload: int, request_bytes: int, relaxed: bool, acs: int | None
) -> None:
    config = space(payload, request_bytes, relaxed=relaxed, acs=acs)
    port, gpu = collected(tmp_path, config, space())["functions"]
    assert (port["address"], gpu["address"]) == ("0000:44:01.0", "0000:53:00.0")
    expected = {"max_payload": payload, "max_read_request": request_bytes, "relaxed_ordering": relaxed, "acs": acs}
    assert gpu["settings"] == expected
    assert (gpu["kind"], gpu["model"], gpu["path"]) == ("gpu", "10de:2330", ["pci0000:44", "0000:44:01.0"])


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"vendor": "0x14e4", "class": "0x020000", "infiniband__bnxt_re0": ""}, "nic"),
        ({"vendor": "0x14e4", "class": "0x020000"}, None),
        ({"vendor": "0x15b3", "class": "0x020700"}, "nic"),
        ({"vendor": "0x14e4", "class": "0x010802", "infiniband__bnxt_re0": ""}, None),
    ],
)
def test_a_network_device_is_one_that_has_rdma_whoever_made_it(
    tmp_path: Path, files: dict[str, str], kind: str | None
) -> None:
    functions = collected(tmp_path, space(), space(), **files)["functions"]
    assert [row["kind"] for row in functions if row["address"] == "0000:53:00.0"] == ([kind] if kind else [])


def test_what_only_root_may_read_is_an_error(tmp_path: Path) -> None:
    *_, gpu = collected(tmp_path, space()[:64])["functions"]
    assert gpu["settings"]["error"] == "EPERM"


def test_a_function_without_extended_capabilities_has_no_access_control(tmp_path: Path) -> None:
    *_, gpu = collected(tmp_path, space(acs=0x1D)[:256])["functions"]
    assert (gpu["settings"]["max_read_request"], gpu["settings"]["acs"]) == (512, None)


def test_a_list_of_capabilities_that_goes_round_ends(tmp_path: Path) -> None:
    config = bytearray(space())
    config[0x60:0x62] = b"\x05\x40"
    config[0x102:0x104] = b"\x01\x10"
    *_, gpu = collected(tmp_path, bytes(config))["functions"]
    assert gpu["settings"] == dict.fromkeys(("max_payload", "max_read_request", "relaxed_ordering", "acs"))


def test_a_device_that_is_suspended_is_not_woken(tmp_path: Path) -> None:
    *_, gpu = collected(tmp_path, space(), power__runtime_status="suspended")["functions"]
    assert "settings" not in gpu


def test_the_mode_of_the_iommu_is_that_of_the_group(tmp_path: Path) -> None:
    port, gpu = collected(tmp_path, space(), iommu_group__type="identity")["functions"]
    assert (gpu["iommu"], port["iommu"]) == ("identity", "")


@pytest.mark.parametrize(("flags", "is_virtual"), [("fpu hypervisor lahf", True), ("fpu vme lahf", False)])
def test_a_virtual_machine_is_one_by_its_processor_s_flags(tmp_path: Path, flags: str, is_virtual: bool) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    value: Any = read(Node(str(tmp_path)))
    assert value["is_virtual"] is is_virtual


@pytest.mark.long
def test_a_published_lspci_has_the_same_settings_and_no_access_control_that_redirects() -> None:
    collectors, _ = read_text("\n".join(sample("lspci/gpud-vvv-part-around-gpu.txt").lines))
    functions: Any = collectors["pci_config"]
    settings = [PciSettings(function["settings"]) for function in functions["functions"]]
    assert len(settings) > 8
    assert {setting.redirects for setting in settings} == {()}
    assert {setting.max_read_request for setting in settings} == {128, 4096}


def test_access_control_is_read_in_lspci_s_words() -> None:
    text = (
        "0000:6f:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n"
        "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+\n"
        "\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    )
    collectors, _ = read_text(text)
    (function,) = collectors["pci_config"]["functions"]  # type: ignore[index]
    assert function["settings"] == {"max_payload": 256, "max_read_request": 4096, "relaxed_ordering": True, "acs": 0x1D}
    assert PciSettings(function["settings"]).redirects == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


@pytest.mark.parametrize(("sign", "said"), [("+", ", of which 2 have ACS on"), ("-", "")])
def test_settings_without_their_devices_are_not_passed_over(sign: str, said: str) -> None:
    off = "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
    text = "$ sudo lspci -vvv | grep ACSCtl\n" + off + off.replace("ReqRedir-", f"ReqRedir{sign}") * 2
    values, problems = read_text(text)
    assert "pci_config" not in values
    expected = f"lspci -vvv: it has settings without their devices{said}; expected grep -E '^[0-9a-f]|ACSCtl'"
    assert problems == [expected]


VMD = (
    "10000:e0:06.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    "\n"
    "18:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "\tNUMA node: 1\n"
    "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-\n"
    "\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes\n"
    "\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
    "\tKernel driver in use: mlx5_core\n"
)


@pytest.mark.parametrize("text", [VMD, VMD.expandtabs()])
def test_a_pasted_lspci_reads_the_same_with_spaces_for_tabs(text: str) -> None:
    collectors: Any = read_text(text)[0]
    port, nic = collectors["pci_config"]["functions"]
    assert (port["address"], port["settings"]["acs"]) == ("10000:e0:06.0", 0x1D)  # behind Intel's VMD
    assert (nic["address"], nic["model"]) == ("0000:18:00.0", "Mellanox Technologies MT2910 Family [ConnectX-7]")
    assert (nic["settings"]["relaxed_ordering"], nic["settings"]["max_read_request"]) == (True, 4096)
    (device,) = collectors["pci"]["devices"]
    assert (device["width"], device["numa"], device["driver"]) == (16, 1, "mlx5_core")
