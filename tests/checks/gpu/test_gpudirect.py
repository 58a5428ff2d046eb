"""GPUDirect RDMA: modules and PCIe settings, on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node
from tests.builders.samples import sample
from tests.checks.gpu.given import GPU, bus, evaluated

PASS, CONCERN, NA, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.NOT_APPLICABLE, Verdict.INCOMPLETE
PATH = ["pci0000:44", "0000:44:01.0", "0000:45:00.0"]
SETTINGS = {"max_payload": 256, "max_read_request": 4096, "relaxed_ordering": True, "acs": 0}
EFA = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2"}


def function(address: str, kind: str, *above: str, iommu: str = "identity", **settings: Any) -> dict[str, Any]:
    """A PCI Express function as the collector reports it."""
    model = {"gpu": "10de:2330", "nic": "15b3:1021"}.get(kind, "1000:c030")
    where = {"address": address, "kind": kind, "model": model, "path": [*PATH, *above], "iommu": iommu}
    return {**where, "settings": {**SETTINGS, **settings}}


def board(acs: int = 0, **of_gpu: Any) -> list[dict[str, Any]]:
    """A GPU and a network device below one switch, with `acs` on the GPU's port."""
    ports = [function("0000:46:00.0", "port", acs=acs), function("0000:46:01.0", "port", acs=0)]
    ends = [function("0000:53:00.0", "gpu", "0000:46:00.0", **of_gpu), function("0000:54:00.0", "nic", "0000:46:01.0")]
    return [*ports, *ends]


def configured(
    check: str, functions: list[dict[str, Any]], machine: str = "x86_64", *, is_virtual: bool = False
) -> Any:
    report = {"machine": machine, "is_virtual": is_virtual, "functions": functions}
    return result_of(f"gpu.{check}", node("gpu001", boot=boot(), pci_config=report))


@pytest.mark.parametrize(
    ("acs", "verdict", "message"),
    [
        (0, PASS, ""),
        (0x42, PASS, ""),  # TransBlk and DirectTrans send nothing to the CPU
        (0x1D, CONCERN, "has ACS SrcValid ReqRedir CmpltRedir UpstreamFwd on; expected these off"),
        (0x04, CONCERN, "0000:46:00.0, between 0000:53:00.0 and 0000:54:00.0, has ACS ReqRedir on; expected these off"),
    ],
)
def test_ports_between_a_gpu_and_a_network_device_redirect_nothing(acs: int, verdict: Verdict, message: str) -> None:
    expect(configured("pcie_acs", board(acs)), verdict, message)


@pytest.mark.parametrize(("machine", "is_virtual"), [("x86_64", True), ("aarch64", False)])
def test_virtual_machines_and_grace_are_not_held_to_it(machine: str, is_virtual: bool) -> None:
    for check in ("pcie_acs", "pcie_iommu"):
        result = configured(check, board(0x1D, iommu="DMA-FQ"), machine, is_virtual=is_virtual)
        assert result.verdict is NA


def test_a_gpu_below_no_switch_with_a_network_device_has_no_ports_that_could_redirect() -> None:
    elsewhere = {**function("0000:54:00.0", "nic"), "path": ["pci0000:80", "0000:80:01.0"]}
    functions = [function("0000:53:00.0", "gpu"), elsewhere]
    expect(configured("pcie_acs", functions), NA, "no GPU here is below one PCIe switch with a network device")


def test_a_port_that_is_suspended_redirects_nothing_and_hides_no_other() -> None:
    asleep, other, *ends = board()
    asleep["settings"] = None
    assert configured("pcie_acs", [asleep, other, *ends]).verdict is PASS
    other["settings"]["acs"] = 0x1D
    expect(configured("pcie_acs", [asleep, other, *ends]), CONCERN, "0000:46:01.0")


def test_a_node_without_a_gpu_or_a_network_device_is_not_held_to_an_iommu() -> None:
    expect(configured("pcie_iommu", []), NA, "no GPU or network device on the PCI bus")


@pytest.mark.parametrize(("mode", "verdict"), [("identity", PASS), ("", PASS), ("DMA", CONCERN), ("DMA-FQ", CONCERN)])
def test_an_iommu_passes_through_or_is_off(mode: str, verdict: Verdict) -> None:
    assert configured("pcie_iommu", board(iommu=mode)).verdict is verdict


def test_what_only_root_may_read_is_incomplete() -> None:
    denied = {"error": "EPERM", "text": "configuration space: only root may read it"}
    functions = [{**entry, "settings": denied} for entry in board()]
    for check in ("pcie_acs", "pcie_settings"):
        expect(configured(check, functions), INCOMPLETE, "PCIe settings could not be read (EPERM)")
    assert configured("pcie_iommu", functions).verdict is PASS


def below(model: str, payload: int = 128) -> list[dict[str, Any]]:
    """A GPU whose payload size differs from its port's; the port is of this model."""
    port, *others = board(max_payload=payload)
    return [{**port, "model": model}, *others]


@pytest.mark.parametrize(
    ("model", "is_virtual", "verdict"),
    [
        ("1000:c030", False, CONCERN),
        ("1000:c030", True, PASS),
        ("1b36:000c", False, PASS),  # QEMU's, as a guest of aarch64 shows it
        ("15ad:07a0", False, PASS),  # VMware's
        ("1d0f:0200", False, PASS),  # of Nitro
    ],
)
def test_a_payload_is_not_held_against_an_emulated_port(model: str, is_virtual: bool, verdict: Verdict) -> None:
    assert configured("pcie_settings", below(model), is_virtual=is_virtual).verdict is verdict


def test_read_requests_are_compared_on_virtual_machines_too() -> None:
    odd = function("0000:55:00.0", "nic", "0000:46:01.0", max_read_request=512)
    others = [function(f"0000:56:0{number}.0", "nic", "0000:46:01.0") for number in range(2)]
    expect(
        configured("pcie_settings", [*board(), *others, odd], is_virtual=True), CONCERN, "MaxReadReq of 0000:55:00.0"
    )


@pytest.mark.long
def test_a_published_lspci_shows_nothing_amiss() -> None:
    collectors, _ = read_text("\n".join(sample("lspci/gpud-vvv-part-around-gpu.txt").lines))
    result = result_of("gpu.pcie_settings", node("gpu001", boot=boot(), pci_config=collectors["pci_config"]))
    assert result.verdict is PASS, result.message


@pytest.mark.parametrize(
    ("kernel", "taint", "modules", "verdict"),
    [
        ("6.8.0-1021-aws", "OE", ["gdrdrv"], Verdict.PASS),
        ("5.12.0", "OE", ["gdrdrv"], Verdict.PASS),
        ("5.9.16", "OE", ["gdrdrv"], Verdict.CONCERN),
        ("5.10.228", "OE", ["gdrdrv", "nvidia_peermem"], Verdict.PASS),
        ("6.8.0-1021-aws", "POE", ["gdrdrv"], Verdict.CONCERN),
        ("6.8.0-1021-aws", "POE", ["gdrdrv", "nvidia_peermem"], Verdict.PASS),
        ("6.8.0-1021-aws", "OE", ["nvidia_peermem"], Verdict.CONCERN),
        ("6.8.0-1021-aws", "", ["gdrdrv"], Verdict.INCOMPLETE),
        ("a kernel", "OE", ["gdrdrv"], Verdict.INCOMPLETE),
    ],
)
def test_gpudirect_needs_peermem_or_dma_buf_and_gdrcopy(
    kernel: str, taint: str, modules: list[str], verdict: Verdict
) -> None:
    rdma = {"devices": [EFA], "modules": modules, "uverbs": [], "nvidia_taint": taint}
    assert evaluated("gpu.peermem", gpus=[GPU], rdma=rdma, boot={"kernel": kernel}).verdict is verdict


def fabric(layer: str, state: str = "4: ACTIVE") -> dict[str, Any]:
    """A ConnectX with a port of that kind."""
    port = {"port": 1, "state": state, "physical_state": "5: LinkUp", "rate": "400 Gb/sec", "link_layer": layer}
    return {"name": "mlx5_0", "vendor": "15b3", "device": "1021", "ports": [port]}


@pytest.mark.parametrize(
    ("device", "links", "modules", "verdict"),
    [
        (fabric("InfiniBand"), 18, [], CONCERN),
        (fabric("InfiniBand"), 18, ["nvidia_peermem"], PASS),
        (fabric("InfiniBand"), 0, [], CONCERN),
        (fabric("Ethernet"), 18, [], CONCERN),
        (fabric("Ethernet"), 0, [], NA),  # it may serve storage
        (fabric("InfiniBand", "1: DOWN"), 18, [], NA),
        ({**fabric("InfiniBand"), "ports": {"error": "EIO", "text": ""}}, 18, [], INCOMPLETE),
    ],
)
def test_gpudirect_is_asked_of_other_fabrics_than_efa(
    device: dict[str, Any], links: int, modules: list[str], verdict: Verdict
) -> None:
    rdma = {"devices": [device], "modules": modules, "uverbs": [], "nvidia_taint": "POE"}
    collectors = {"rdma": rdma, "boot": boot("6.8.0-60-generic"), "pci": bus(0, 0)}
    expect_of = {"gpus": 2, "efa": 0, "nvlinks": links}
    result = result_of("gpu.peermem", node("gpu001", **collectors), expect=expect_of)
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize(("is_virtual", "verdict"), [(False, CONCERN), (True, PASS)])
def test_a_node_all_of_whose_devices_have_a_smaller_payload_than_others_is_a_concern(
    is_virtual: bool, verdict: Verdict
) -> None:
    def host(name: str, payload: int) -> NodeEvidence:
        functions = [{**entry, "settings": {**entry["settings"], "max_payload": payload}} for entry in board()]
        config = {"machine": "x86_64", "is_virtual": is_virtual, "functions": functions}
        return node(name, boot=boot(), pci_config=config)

    result = result_of("gpu.pcie_settings", host("n1", 128), host("n2", 256), host("n3", 256))
    assert result.verdict is verdict, result.message


def with_requests(name: str, *sizes: int) -> NodeEvidence:
    """A node whose network devices have these maximum read request sizes."""
    nics = [function(f"0000:{0x54 + at:02x}:00.0", "nic", max_read_request=size) for at, size in enumerate(sizes)]
    return node(name, boot=boot(), pci_config={"machine": "x86_64", "is_virtual": False, "functions": nics})


STORAGE_LESS, STORAGE_MORE, ALL_LESS = (4096, 4096, 4096, 512), (512, 512, 512, 4096), (512, 512, 512, 512)
HALF, ALL_MORE = (512, 512, 4096, 4096), (4096, 4096, 4096, 4096)


@pytest.mark.parametrize(
    ("own", "others", "message"),
    [
        (STORAGE_LESS, [], "MaxReadReq of 0000:57:00.0 is 512; expected 4096, as on most of its model here"),
        (STORAGE_LESS, [STORAGE_LESS, STORAGE_LESS], ""),  # every node has a port for another purpose
        (STORAGE_LESS, [ALL_MORE] * 2, "MaxReadReq of 0000:57:00.0 is 512; expected 4096"),
        (STORAGE_MORE, [], "MaxReadReq of 0000:54:00.0 is 512; expected 4096, like 1 of its model here"),
        (STORAGE_MORE, [STORAGE_MORE], ""),
        (STORAGE_LESS, [STORAGE_LESS], ""),
        (HALF, [], "MaxReadReq of 0000:54:00.0 is 512; expected 4096, like 2 of its model here"),
        (HALF, [(4096, 4096, 512, 512)] * 2, ""),  # neither setting is known to be the usual one
        (HALF, [ALL_MORE] * 2, "MaxReadReq of 15b3:1021 512 and 4096; expected 4096 as on 2 of 3 nodes"),
        (HALF, [ALL_MORE], "MaxReadReq of 15b3:1021 differs from node to node (512 and 4096 on n0, 4096 on n1)"),
        (HALF, [ALL_LESS] * 2, ""),
        (ALL_LESS, [HALF] * 2, "MaxReadReq of 15b3:1021 512; expected 512 and 4096 as on 2 of 3 nodes"),
        (ALL_MORE, [HALF] * 2, ""),
        (HALF, [HALF], ""),
        (ALL_LESS, [ALL_MORE], "MaxReadReq of 15b3:1021 differs from node to node (512 on n0, 4096 on n1)"),
        ((4096,) * 4, [ALL_LESS], ""),
        (ALL_LESS, [STORAGE_LESS] * 2, "MaxReadReq of 15b3:1021 512; expected 4096 as on 2 of 3 nodes"),
        (STORAGE_LESS, [STORAGE_MORE] * 2, "MaxReadReq of 0000:57:00.0 is 512; expected 4096"),
    ],
)
def test_read_requests_are_compared_with_the_model_and_with_the_same_device_of_the_group(
    own: tuple[int, ...], others: list[tuple[int, ...]], message: str
) -> None:
    nodes = [with_requests(f"n{at}", *sizes) for at, sizes in enumerate([own, *others])]
    result = result_of("gpu.pcie_settings", *nodes)
    expect(result, CONCERN if message else PASS, message)
    assert " 4096; expected 512" not in result.message


@pytest.mark.parametrize(
    ("instance_type", "message"),
    [
        ("g6e.48xlarge", "no GPUDirect RDMA"),
        ("p3dn.24xlarge", "no GPUDirect RDMA"),
        ("p5.4xlarge", "no GPUDirect RDMA"),
    ],
)
def test_gpudirect_is_not_asked_for_where_there_is_none(instance_type: str, message: str) -> None:
    result = evaluated("gpu.peermem", instance_type, gpus=[GPU], rdma={"devices": [EFA]})
    assert (result.verdict, message in result.message) == (Verdict.NOT_APPLICABLE, True)


MISFIT = "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client"


@pytest.mark.parametrize(("modules", "verdict"), [([], CONCERN), (["nvidia_peermem"], NA)])
def test_a_peermem_that_did_not_fit_is_a_concern_until_it_is_loaded_on_any_node(
    modules: list[str], verdict: Verdict
) -> None:
    log = {"lines": [[1.0, MISFIT]], "read": 1, "dropped": 0, "truncated": False, "whole_from": 0.0}
    rdma = {"devices": [], "modules": modules}
    result = evaluated("gpu.peermem", "g6e.48xlarge", gpus=[GPU], kernel_log=log, rdma=rdma)
    assert result.verdict is verdict, result.message
    assert ("nvidia-peermem does not fit the kernel" in result.message) is (verdict is CONCERN)


def test_access_control_at_a_port_of_a_capture_without_paths_is_incomplete() -> None:
    unplaced = [{**row, "path": None} for row in board(0x1D)]
    expect(
        configured("pcie_acs", unplaced), INCOMPLETE, "ACS is on at 0000:46:00.0 (SrcValid ReqRedir CmpltRedir Upstr"
    )
    expect(configured("pcie_acs", [{**row, "path": None} for row in board()]), NA, "no port known here has ACS")
    unread = [{**row, "path": None} for row in board({"error": "EACCES", "text": ""})]  # type: ignore[arg-type]
    expect(configured("pcie_acs", unread), INCOMPLETE, "acs could not be read (EACCES)")


def test_a_device_without_an_address_leaves_the_settings_of_pcie_incomplete() -> None:
    alone = [{**row, "address": None} for row in board() if row["kind"] == "gpu"]
    expect(configured("pcie_settings", alone), INCOMPLETE, "address was not reported")
