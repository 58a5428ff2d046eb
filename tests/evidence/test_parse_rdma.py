"""RDMA devices in the output of ibv_devinfo, ibstat, rdma link and mlxlink: the same as from sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.network import parse_rdma as rdma
from tests.builders.evaluated import expect
from tests.faults.captured_fault import evaluated

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
IBV = """\
hca_id: rdmap79s0
	transport:			unspecified (4)
	fw_ver:				0.0.0.0
	vendor_id:			0x1d0f
	vendor_part_id:			61346
	phys_port_cnt:			1
		port:	1
			state:			PORT_ACTIVE (4)
			active_width:		4X (2)
			active_speed:		25.0 Gbps (32)
			phys_state:		LINK_UP (5)
			link_layer:		Unspecified
"""
IBSTAT = """\
CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 40
		Link layer: InfiniBand
"""


IBSTAT_SHORT = """\
CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
"""
IBSTAT_PORT = """\
CA: 'mlx5_1'
Port 1:
State: Down
Physical state: Disabled
Rate: 10
Link layer: InfiniBand
"""


def device(collected: Any) -> dict[str, Any]:
    (only,) = collected["rdma"]["devices"]
    return dict(only)


def test_ibv_devinfo_shows_an_efa_device_as_sysfs_does() -> None:
    assert device(rdma.read_ibv_devinfo(IBV)) == {
        "name": "rdmap79s0",
        "vendor": "1d0f",
        "device": "efa2",
        "firmware": "0.0.0.0",
        "ports": [
            {
                "port": 1,
                "state": "4: ACTIVE",
                "physical_state": "5: LinkUp",
                "rate": "100 Gb/sec (4X)",
                "link_layer": "Unspecified",
            }
        ],
    }


@pytest.mark.parametrize(("layer", "physical"), [("Ethernet", {"physical_state": "3: Disabled"}), ("InfiniBand", {})])
def test_an_ethernet_port_that_is_down_is_disabled_also_without_v(layer: str, physical: dict[str, str]) -> None:
    text = f"hca_id:\tmlx5_1\n\tport:\t1\n\t\tstate:\t\tPORT_DOWN (1)\n\t\tlink_layer:\t{layer}\n"
    assert device(rdma.read_ibv_devinfo(text))["ports"] == [
        {"port": 1, "state": "1: DOWN", "link_layer": layer, **physical}
    ]


def test_a_port_of_ibstat_is_read_in_the_words_of_sysfs() -> None:
    hca = device(rdma.read_ibstat(IBSTAT))
    assert (hca["vendor"], hca["device"]) == ("15b3", "1021")
    port = {"port": 1, "state": "1: DOWN", "physical_state": "2: Polling", "rate": "40 Gb/sec"}
    assert hca["ports"] == [port | {"link_layer": "InfiniBand"}]


@pytest.mark.parametrize(
    ("name", "layer", "whose"),
    [
        ("efa_0", "Unknown", {"vendor": "1d0f", "device": "efa"}),
        ("rdmap79s0", "Unspecified", {"vendor": "1d0f", "device": "efa"}),
        ("rdmap79s0", "Ethernet", {}),  # rdma-core's name for an iWARP adapter
    ],
)
def test_ibstat_names_no_type_of_an_efa_device(name: str, layer: str, whose: dict[str, str]) -> None:
    text = f"CA '{name}'\n\tCA type: \n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tLink layer: {layer}\n"
    hca = device(rdma.read_ibstat(text))
    assert {key: hca[key] for key in ("vendor", "device") if key in hca} == whose


def test_a_device_at_which_ibstat_stopped_has_ports_that_could_not_be_read() -> None:
    collected: Any = rdma.read_ibstat(f"{IBSTAT}ibpanic: [7] main: stat of IB device 'mlx5_8' failed: No such file\n")
    assert collected["rdma"]["devices"][-1]["ports"] == {"error": "No such file", "text": "ibstat stopped"}


@pytest.mark.long
def test_of_a_device_at_which_ibstat_stopped_nothing_is_said_of_another() -> None:
    active = IBSTAT.replace("Down", "Active").replace("Polling", "LinkUp")
    panic = "ibpanic: [7] main: stat of IB device 'mlx5_8' failed: No such file or directory\n"
    result = evaluated({"ibstat": active + panic})["network.ib_ports"]
    expect(result, Verdict.INCOMPLETE, "mlx5_8: ports could not be read (No such file or directory)")
    assert "mlx5_0" not in result.message


@pytest.mark.parametrize(
    ("line", "whose"),
    [
        ("link rdmap0s6/1 state ACTIVE physical_state LINK_UP netdev ens6", {}),
        ("0/1: rdmap0s6/1: state ACTIVE physical_state LINK_UP", {"vendor": "1d0f", "device": "efa"}),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ib0", {"vendor": "15b3"}),
    ],
)
def test_rdma_link_shows_states(line: str, whose: dict[str, str]) -> None:
    port = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp"}
    hca = device(rdma.read_rdma_tool(line))
    assert hca == {"name": hca["name"], "ports": [port], **whose}


@pytest.mark.parametrize(
    ("line", "check", "message"),
    [
        ("link mlx5_3/1 state DOWN physical_state POLLING netdev ib3", "network.ib_ports", "mlx5_3: port 1 is 1: DOWN"),
        ("link mlx5_3/1 state INIT physical_state LINK_UP netdev ib3", "network.ib_ports", "mlx5_3: port 1 is 2: INIT"),
        (
            "link rdmap79s0/1 state DOWN physical_state DISABLED",
            "network.efa_port_active",
            "rdmap79s0: port 1 is 1: DOWN",
        ),
    ],
)
def test_a_port_that_is_down_is_so_though_rdma_link_names_no_vendor(line: str, check: str, message: str) -> None:
    result = evaluated({"rdma.txt": f"{line}\n"})[check]
    assert next(finding.message for finding in result.by_verdict if finding.verdict is Verdict.FAIL).startswith(message)


def test_a_counter_that_a_port_does_not_have_is_null() -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    text = f"{folder}/state:4: ACTIVE\n{folder}/counters/link_downed:N/A (no PMA)\n{folder}/counters/symbol_error:7\n"
    (port,) = device(rdma.read_sysfs(text))["ports"]
    assert port == {"port": 1, "state": "4: ACTIVE", "link_downed": None, "symbol_errors": 7}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the captures lie beside the checkout")
def test_what_a_port_counts_is_read_from_sysfs_by_name() -> None:
    capture = SAMPLES / "rdma/sysfs-infiniband-h100-counters-mlx5_0.txt"
    (port,) = device(rdma.read_sysfs(capture.read_text()))["ports"]
    assert port["counters"].items() >= {"port_rcv_errors": 14, "excessive_buffer_overrun_errors": 15}.items()
    assert port["counters"].items() >= {"roce_adp_retrans": 3, "packet_seq_err": 0}.items()


@pytest.mark.parametrize(
    ("captured", "check", "missing"),
    [
        ("counters/port_xmit_discards", "network.ib_lost_packets", "packet_seq_err"),
        ("hw_counters/packet_seq_err", "network.ib_errors", "port_rcv_errors"),
    ],
)
def test_counters_that_nobody_captured_prove_nothing(captured: str, check: str, missing: str) -> None:
    result = evaluated({"rdma.txt": f"/sys/class/infiniband/mlx5_0/ports/1/{captured}:0\n"})[check]
    assert result.verdict is Verdict.INCOMPLETE
    assert f"mlx5_0: {missing} is not in what was captured" in "\n".join(found.message for found in result.by_verdict)


def test_ibstat_s_counts_ports_and_says_nothing_of_them() -> None:
    assert "ports" not in device(rdma.read_ibstat(IBSTAT_SHORT))
    assert evaluated({"ibstat.txt": IBSTAT_SHORT})["network.ib_ports"].verdict is not Verdict.FAIL


def test_ibstat_of_one_port_is_read() -> None:
    ports = device(rdma.read_ibstat(IBSTAT_PORT))["ports"]
    assert ports == [
        {
            "port": 1,
            "state": "1: DOWN",
            "physical_state": "3: Disabled",
            "rate": "10 Gb/sec",
            "link_layer": "InfiniBand",
        }
    ]


MLXLINK = """\
$ sudo mlxlink -d {device}

Operational Info
----------------
State                              : {state}
Physical state                     : {physical}
Speed                              : IB-NDR
Width                              : 4x

Troubleshooting Info
--------------------
Status Opcode                      : 0
Recommendation                     : No issue was observed
"""


@pytest.mark.parametrize(
    ("state", "physical", "message"),
    [
        ("Active", "LinkUp", ""),
        ("Polling", "ETH_AN_FSM_ENABLE", "mlx5_1: port 1 is 1: DOWN; expected 4: ACTIVE"),
        ("Disable", "Disabled", ""),
        ("N/A", "N/A", ""),
    ],
)
def test_mlxlink_shows_whether_the_port_of_its_command_is_up(state: str, physical: str, message: str) -> None:
    result = evaluated({"t": MLXLINK.format(device="mlx5_1", state=state, physical=physical)})["network.ib_ports"]
    assert (result.verdict is Verdict.FAIL) == bool(message)
    assert message in result.message


def test_mlxlink_of_a_device_that_its_command_does_not_name_is_refused() -> None:
    _, problems = read_text(MLXLINK.format(device="/dev/mst/mt4129_pciconf0", state="Active", physical="LinkUp"))
    assert "mlxlink does not say of which device" in problems[0]


@pytest.mark.long
@pytest.mark.parametrize("text", [IBSTAT_PORT, MLXLINK.format(device="mlx5_1", state="Active", physical="LinkUp")])
def test_one_device_that_was_asked_for_does_not_count_the_others(text: str) -> None:
    result = evaluated({"t": text})["network.ib_count"]
    expect(result, Verdict.INCOMPLETE, "only single devices, queried by name")
    both = evaluated({"a": text, "b": IBSTAT})["network.ib_count"]
    assert "only single devices" not in both.message
