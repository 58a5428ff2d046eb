"""What jobs' variables do to NCCL and libfabric, in cases that no fault of a fake node produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node
from tests.checks.network.given import efa, mlx5, port, verdict

FAIL, CONCERN, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.PASS


def environment(*assigned: tuple[str, str, int], efa_devices: int = 1) -> dict[str, Any]:
    """Variables from one file, by line, on a node with this many EFA devices."""
    variables = [
        {"name": name, "value": value, "file": "/etc/environment", "line": line, "conditional": False}
        for name, value, line in assigned
    ]
    devices = {"rdma": {"devices": [efa()] * efa_devices}, "pci": {"devices": []}}
    return {"environment": {"variables": variables, "unread": {}}, "interfaces": {"names": ["e0"]}, **devices}


@pytest.mark.parametrize(
    ("instance_type", "assigned", "says"),
    [
        ("p4d.24xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], PASS),  # it has RDMA read
        ("p5.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], PASS),
        ("g4dn.metal", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], FAIL),
        ("g6.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1)], Verdict.INCOMPLETE),  # unknown
        ("p5.48xlarge", [("NCCL_NET_PLUGIN", "none", 1), ("NCCL_NET_PLUGIN", "ofi", 2)], PASS),
        ("p5.48xlarge", [("NCCL_NET_PLUGIN", "ofi", 1), ("NCCL_NET_PLUGIN", "none", 2)], FAIL),
        ("g6.48xlarge", [("FI_EFA_USE_DEVICE_RDMA", "1", 1), ("FI_PROVIDER", "sockets", 2)], FAIL),
        ("p5.48xlarge", [("NCCL_SOCKET_IFNAME", "$IFACE", 1)], PASS),
        ("p5.48xlarge", [("NCCL_SOCKET_IFNAME", "^e", 1)], CONCERN),
    ],
)
def test_the_transport_is_evaluated_by_the_instance_type(
    instance_type: str, assigned: list[tuple[str, str, int]], says: Verdict
) -> None:
    assert verdict("network.transport_plan", environment(*assigned), instance_type=instance_type).verdict is says


@pytest.mark.parametrize(
    ("file", "value", "says"),
    [
        ("/etc/profile.d/nccl.sh", "${NCCL_SHM_DISABLE:-1}", CONCERN),
        ("/etc/profile.d/nccl.sh", "${NCCL_SHM_DISABLE-1}", CONCERN),
        ("/opt/slurm/task_prolog", "${NCCL_SHM_DISABLE:=1}", CONCERN),
        ("/opt/slurm/task_prolog", "${NCCL_SHM_DISABLE:-$OTHER}", PASS),
        ("/opt/slurm/task_prolog", "${NCCL_SHM_DISABLE}", PASS),
        ("/etc/environment", "${NCCL_SHM_DISABLE:-1}", PASS),  # where nothing expands it
    ],
)
def test_what_jobs_get_from_a_script_unless_they_set_it_is_evaluated(file: str, value: str, says: Verdict) -> None:
    collectors = environment(("NCCL_SHM_DISABLE", value, 7))
    collectors["environment"]["variables"][0]["file"] = file
    result = verdict("network.transport_plan", collectors, instance_type="p5.48xlarge")
    expect(result, says, f"NCCL_SHM_DISABLE=1 ({file} line 7): what does not go" if says is CONCERN else "")


@pytest.mark.parametrize("value", ["1 # for a test", "1\t# for a test", '"1"  # for a test'])
def test_a_comment_behind_a_value_hides_no_fault(value: str) -> None:
    result = verdict("network.transport_plan", environment(("NCCL_SHM_DISABLE", value, 7)), instance_type="p5.48xlarge")
    expect(result, CONCERN, "NCCL_SHM_DISABLE=1 (/etc/environment line 7): what does not go from GPU to GPU")


RDMA = ("FI_EFA_USE_DEVICE_RDMA", "1")


@pytest.mark.parametrize(
    ("instance_type", "name", "value", "says"),
    [
        ("g5.16xlarge", *RDMA, FAIL),  # libfabric aborts on its devices
        ("g6.48xlarge", *RDMA, CONCERN),  # nothing reads it without a device
        ("c6i.32xlarge", *RDMA, CONCERN),
        ("g5.16xlarge", "FI_EFA_USE_DEVICE_RDMA", "0", PASS),
        ("g5.16xlarge", "NCCL_NET_PLUGIN", "none", PASS),
        ("g5.16xlarge", "NCCL_NET_PLUGIN", "ofi", CONCERN),
        ("g5.16xlarge", "NCCL_NET_PLUGIN", "aws-ofi", CONCERN),
        ("g5.16xlarge", "NCCL_NET_PLUGIN", "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", CONCERN),
        ("g5.16xlarge", "NCCL_NET_PLUGIN", "libnccl-net-sharp.so", PASS),
        ("g5.16xlarge", "NCCL_NET", "Socket", PASS),
        ("g5.16xlarge", "NCCL_NET", "AWS Libfabric", FAIL),
        ("g5.16xlarge", "FI_PROVIDER", "efa", CONCERN),
    ],
)
def test_where_no_efa_is_attached_what_asks_for_it_is_out_of_place(
    instance_type: str, name: str, value: str, says: Verdict
) -> None:
    collectors = environment((name, value, 1), efa_devices=0)
    assert verdict("network.transport_plan", collectors, instance_type=instance_type).verdict is says


@pytest.mark.parametrize(
    ("on_bus", "name", "value", "message"),
    [
        (1, "NCCL_NET_PLUGIN", "none", "NCCL does not load the plugin that uses EFA"),
        (1, "NCCL_NET_GDR_LEVEL", "LOC", "all that the network sends and receives is copied through host memory"),
        (0, "NCCL_NET", "AWS Libfabric", "NCCL may use no other network than EFA"),
    ],
)
def test_the_bus_shows_whether_a_node_has_efa_where_its_driver_was_not_asked(
    on_bus: int, name: str, value: str, message: str
) -> None:
    collectors = environment((name, value, 1))
    del collectors["rdma"]
    collectors["pci"] = {"devices": [{"vendor": "1d0f", "device": "efa2", "class": "020000"}] * on_bus}
    assert message in verdict("network.transport_plan", collectors, instance_type="g5.16xlarge").message


@pytest.mark.parametrize("unread", ["file", "line", "conditional", "name", "value"])
def test_a_variable_of_which_a_value_is_unread_hides_no_other(unread: str) -> None:
    collectors = environment(("NCCL_DEBUG", "INFO", 1), ("NCCL_NET_PLUGIN", "none", 2))
    collectors["environment"]["variables"][0][unread] = None
    result = verdict("network.transport_plan", collectors, instance_type="p5.48xlarge")
    assert result.verdict is FAIL, result.message


@pytest.mark.parametrize(("unread", "says"), [("file", FAIL), ("line", FAIL), ("conditional", Verdict.INCOMPLETE)])
def test_a_variable_is_named_wherever_it_is_set(unread: str, says: Verdict) -> None:
    collectors = environment(("NCCL_NET_PLUGIN", "none", 1))
    collectors["environment"]["variables"][0][unread] = None
    result = verdict("network.transport_plan", collectors, instance_type="p5.48xlarge")
    assert (result.verdict, "NCCL_NET_PLUGIN=none (" in result.message) == (says, True), result.message


def test_efa_that_is_expected_and_not_seen_is_still_what_jobs_should_use() -> None:
    collectors = environment(("NCCL_NET_PLUGIN", "none", 1), efa_devices=0)
    result = verdict("network.transport_plan", collectors, instance_type="p5.48xlarge", expect={"efa": 1})
    assert result.verdict is FAIL, result.message


def test_nodes_with_files_that_nobody_could_read_do_not_outvote_the_one_whose_files_were_read() -> None:
    unread = environment()
    unread["environment"]["unread"] = {"/etc/profile.d/nccl.sh": "EACCES"}
    read = node("gpu001", **environment(("NCCL_DEBUG", "WARN", 1)))
    others = [node(f"gpu00{number}", **unread) for number in (2, 3, 4)]
    assert "NCCL_DEBUG" not in result_of("network.transport_plan", read, *others, instance_type="p5.48xlarge").message
    bare = [node(f"gpu00{number}", **environment()) for number in (5, 6, 7)]
    result = result_of("network.transport_plan", read, *others, *bare, instance_type="p5.48xlarge")
    assert (result.verdict, "expected not set as on 3 of 4 nodes" in result.message) == (CONCERN, True), result.message
    assert "NCCL_DEBUG" not in result_of("network.transport_plan", *others, read, instance_type="p5.48xlarge").message


LIST = "mlx5_0,mlx5_1,mlx5_2"


@pytest.mark.parametrize(
    ("value", "devices", "message"),
    [
        (f"={LIST}", ("1021", "1021", "1021"), ""),
        (
            f"={LIST}",
            ("1021", "1021", "101d", "1021"),
            "NCCL_IB_HCA chooses 1 of 15b3:101d and 2 of 15b3:1021; exp",
        ),
        (
            f"={LIST}",
            ("1021", "1021"),
            "NCCL_IB_HCA chooses 2 of 15b3:1021; expected 3 of 15b3:1021 as on 3 of 4 nodes",
        ),
        ("^mlx5_3", ("1021", "1021"), ""),  # see network.ib_count
    ],
)
def test_a_list_of_devices_chooses_as_many_of_each_model_as_on_other_nodes(
    value: str, devices: tuple[str, ...], message: str
) -> None:
    def host(name: str, *models: str) -> NodeEvidence:
        collectors = environment(("NCCL_IB_HCA", value, 1), efa_devices=0)
        rows = [mlx5(number, port(), device=model) for number, model in enumerate(models)]
        return node(name, **{**collectors, "rdma": {"devices": rows}})

    others = [host(name, "1021", "1021", "1021") for name in ("n2", "n3", "n4")]
    result = result_of("network.transport_plan", host("n1", *devices), *others, instance_type="someone.else")
    assert (result.verdict, message in result.message) == (CONCERN if message else PASS, True), result.message


def test_asking_a_g5s_efa_device_for_rdma_stops_jobs() -> None:
    result = verdict("network.transport_plan", environment((*RDMA, 1)), instance_type="g5.16xlarge")
    assert result.verdict is FAIL
    assert "libfabric aborts on a device without RDMA; expected no such variable" in result.message
