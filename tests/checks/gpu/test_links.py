"""NVLinks and their fabric: which links are expected, what they count, and what was not reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.gpu.facts_parts import NvlinkErrors
from tests.builders.examples import examples
from tests.checks.gpu.given import GPU, UNKNOWN, UNSUPPORTED, beside, bus, evaluated

KINDS = st.dictionaries(
    st.text(max_size=30),
    st.none()
    | st.integers()
    | st.dictionaries(st.text(max_size=30), st.integers() | st.none() | st.text(max_size=5), max_size=4),
    max_size=4,
)


def test_nvlink_errors_that_no_link_has_are_not_applicable() -> None:
    with pytest.raises(NotApplicable):
        assert Gpu(0, {"nvlink_errors": UNSUPPORTED}).nvlink_errors


@pytest.mark.parametrize("data", [{}, {"replay": UNSUPPORTED, "crc_data": UNSUPPORTED}, None, [], UNKNOWN])
def test_nvlink_errors_that_were_not_reported_are_no_pass(data: object) -> None:
    with pytest.raises(Incomplete):
        assert Gpu(0, {"nvlink_errors": data}).nvlink_errors


def test_a_kind_of_nvlink_errors_that_no_link_has_leaves_the_others() -> None:
    errors = {"replay": {"5": 12, "6": UNKNOWN}, "crc_data": UNSUPPORTED, "recovery": UNKNOWN}
    assert Gpu(0, {"nvlink_errors": errors}).nvlink_errors == (
        NvlinkErrors("replay", "5", 12),
        NvlinkErrors("replay", "6", None),
        NvlinkErrors("recovery", "", None),
    )


@examples(200)
@given(data=KINDS)
def test_no_nonsense_about_nvlink_errors_passes(data: dict[str, Any]) -> None:
    result = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": data}], kernel_log={"lines": []})
    counted = all(isinstance(links, dict) and all(type(n) is int for n in links.values()) for links in data.values())
    assert not result.message.startswith("the check itself broke")
    assert (result.verdict is Verdict.PASS) <= (counted and bool(data))


@pytest.mark.parametrize(
    ("kind", "rate", "verdict"),
    [
        ("effective_ber", 1e-12, Verdict.PASS),
        ("effective_ber", 1.1e-12, Verdict.CONCERN),
        ("symbol_ber", 15e-238, Verdict.PASS),  # no error, over several links together
        ("symbol_ber", 1e-20, Verdict.CONCERN),
        ("effective_ber", UNSUPPORTED, Verdict.PASS),
        ("effective_ber", 0x20C, Verdict.INCOMPLETE),
        ("symbol_ber", -1e-9, Verdict.INCOMPLETE),
        ("symbol_ber", float("nan"), Verdict.INCOMPLETE),
        ("replay", 1e-9, Verdict.INCOMPLETE),
    ],
)
def test_a_links_bit_error_rate(kind: str, rate: object, verdict: Verdict) -> None:
    errors = {"malformed": {}, kind: rate if rate is UNSUPPORTED else {"5": rate}}
    assert evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": errors}]).verdict is verdict


def test_many_links_with_errors_are_not_all_named() -> None:
    errors = {"replay": {str(link): 7 for link in range(36)}}
    message = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": errors}]).message
    assert message.startswith("GPU 0: NVLink 0: 7 replay, NVLink 1: 7 replay")
    assert "and 28 more; expected none" in message


def test_a_recovery_whose_xids_cannot_be_read_is_incomplete() -> None:
    result = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": {"recovery": {"5": 2}}}])
    assert (result.verdict, "kernel_log" in result.message) == (Verdict.INCOMPLETE, True)


XID_74 = [[1, "NVRM: Xid (PCI:0000:53:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error"]]


@pytest.mark.parametrize(
    ("log", "verdict", "named"),
    [
        ({"lines": []}, Verdict.CONCERN, ["2 recovery", "3 replay"]),
        ({"lines": XID_74}, Verdict.FAIL, ["2 recovery, and Xid 74", "3 replay"]),
        ({"lines": XID_74, "source": "all programs"}, Verdict.CONCERN, ["2 recovery", "3 replay"]),  # a user may
    ],
)
def test_a_recovery_fails_beside_a_fatal_xid_that_only_the_kernel_wrote(
    log: dict[str, Any], verdict: Verdict, named: list[str]
) -> None:
    counters = {"recovery": {"5": 2}, "replay": {"5": 3}}
    result = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": counters}], kernel_log=log)
    assert result.verdict is verdict, result.message
    assert all(result.message.count(name) == 1 for name in named), result.message
    assert result.message.count("recovery") == 1


@pytest.mark.parametrize(("gpus", "verdict"), [(1, Verdict.FAIL), (2, Verdict.CONCERN)])
def test_a_fatal_error_that_names_no_gpu_counts_against_an_only_one(gpus: int, verdict: Verdict) -> None:
    recovered, *others = beside({"nvlink_errors": {"recovery": {"5": 2}}}, {"nvlink_errors": {"recovery": {}}})
    log = {"lines": [[1, "NVRM: RmInitAdapter failed! (0x25:0x40:1220)"]]}
    result = evaluated("gpu.nvlink_errors", gpus=[recovered, *others][:gpus], kernel_log=log)
    assert (result.verdict, "GPU 0: NVLink 5: 2 recovery" in result.message) == (verdict, True)


@pytest.mark.parametrize(
    ("model", "instance_type", "verdict"),
    [
        ("NVIDIA A100-SXM4-40GB", "p4d.24xlarge", Verdict.NOT_APPLICABLE),
        ("NVIDIA H100 80GB HBM3", "p5.48xlarge", Verdict.FAIL),
    ],
)
def test_a_fabric_that_is_not_supported_is_a_fault_since_hopper(
    model: str, instance_type: str, verdict: Verdict
) -> None:
    fabric = {"state": 0, "status": 0, "health_mask": 0, "health_summary": 0, "clique": 0, "cluster_uuid": "0" * 32}
    assert (
        evaluated("gpu.fabric_state", instance_type, gpus=[{**GPU, "name": model, "fabric": fabric}]).verdict is verdict
    )


def test_a_recording_from_before_the_summary_of_a_fabric_is_evaluated_without_it() -> None:
    fabric = {"state": 3, "status": 0, "health_mask": 0, "clique": 0, "cluster_uuid": "0" * 32}
    assert evaluated("gpu.fabric_state", gpus=[{**GPU, "fabric": fabric}]).verdict is Verdict.PASS


UP, DOWN = [True], [False]
UNREAD = [UNKNOWN]


@pytest.mark.parametrize(
    ("links", "verdict", "message"),
    [
        (UP * 18, Verdict.PASS, ""),
        (UP * 18 + DOWN * 18, Verdict.PASS, ""),  # the expected ones are active, and NVML lists more
        (UP * 18 + UNREAD, Verdict.PASS, ""),
        (DOWN * 2 + UP * 18, Verdict.PASS, ""),
        (UP * 17 + DOWN, Verdict.FAIL, "NVLink 17 inactive; expected 18 active links"),
        (UP * 17, Verdict.FAIL, "17 NVLinks; expected 18 active links"),
        (UP * 17 + UNREAD, Verdict.INCOMPLETE, "NVLink 17 could not be read; expected 18 active links"),
        (UP * 16 + UNREAD + DOWN, Verdict.FAIL, "NVLink 17 inactive"),
        (UP * 17 + UNREAD + DOWN, Verdict.INCOMPLETE, "NVLink 17 could not be read"),
    ],
)
def test_the_links_that_are_due_must_be_active(links: list[object], verdict: Verdict, message: str) -> None:
    result = evaluated("gpu.nvlink_active", gpus=[{**GPU, "nvlinks": links}])
    assert (result.verdict, message in result.message) == (verdict, True), result.message


@pytest.mark.parametrize(
    ("nodes_links", "verdict", "message"),
    [
        ([UP * 3 + DOWN + UP * 14], Verdict.FAIL, "NVLink 3 inactive, 17 others active"),
        ([UP * 4, UP * 4, UP * 3], Verdict.FAIL, "GPU 2: 3 active NVLinks; expected 4, as on another GPU"),
        ([UP * 4, UP * 4, UP * 3 + DOWN], Verdict.FAIL, "GPU 2: 3 active NVLinks; expected 4"),
        ([UP * 4, UP * 4, UP * 3 + UNREAD], Verdict.INCOMPLETE, "instance type"),
        ([DOWN + UP * 3] * 2, Verdict.INCOMPLETE, "NVLink 0 inactive on every GPU; expected active, unless"),
        ([DOWN * 18], Verdict.INCOMPLETE, "GPU 0: all 18 NVLinks inactive; whether this model wires them is unknown"),
        ([UP * 12 + DOWN * 6] * 2, Verdict.INCOMPLETE, "instance type"),
        ([UP * 4] * 3, Verdict.INCOMPLETE, "instance type"),
        ([DOWN * 4] * 3, Verdict.INCOMPLETE, "all 4 NVLinks inactive; whether this model wires them is unknown"),
        ([[]], Verdict.INCOMPLETE, "instance type"),
    ],
)
def test_a_link_that_is_down_needs_no_catalogue(
    nodes_links: list[list[object]], verdict: Verdict, message: str
) -> None:
    gpus = [{**GPU, "index": n, "nvlinks": links} for n, links in enumerate(nodes_links)]
    result = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus)
    assert (result.verdict, message in result.message) == (verdict, True), result.message
    assert ("inactive" in result.message) == ("inactive" in message)


@pytest.mark.parametrize(
    ("model", "verdict"), [("NVIDIA H100 80GB HBM3", Verdict.FAIL), ("NVIDIA H100 NVL", Verdict.INCOMPLETE)]
)
def test_a_gpu_without_nvlinks_beside_one_with_some_fails_if_its_model_wires_them(model: str, verdict: Verdict) -> None:
    gpus: list[dict[str, Any]] = [{**GPU, "nvlinks": UNSUPPORTED}, {**GPU, "index": 1, "nvlinks": UP * 18}]
    gpus = [gpu | {"name": model} for gpu in gpus]
    result = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus)
    assert result.verdict is verdict
    assert ("GPU 0: 0 active NVLinks; expected 18" in result.message) == (verdict is Verdict.FAIL)


def test_gpus_of_another_model_have_links_of_their_own() -> None:
    gpus = [{**GPU, "nvlinks": UP * 4, "name": "A"}, {**GPU, "index": 1, "nvlinks": DOWN * 4, "name": "B"}]
    assert evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("state", "mask", "verdict"),
    [(3, 0x1AA, Verdict.PASS), (3, 0x19A, Verdict.FAIL), (2, 0x1AA, Verdict.FAIL), (0, 0, Verdict.INCOMPLETE)],
)
def test_a_sick_fabric_needs_no_catalogue(state: int, mask: int, verdict: Verdict) -> None:
    fabric = {"state": state, "status": 0, "health_mask": mask, "clique": 0, "cluster_uuid": "0" * 32}
    gpus = [{**GPU, "name": "NVIDIA H100 80GB HBM3", "fabric": fabric}]
    assert evaluated("gpu.fabric_state", "someone.else", gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [({"replay": {}}, Verdict.PASS), ({"replay": {"5": 12}}, Verdict.CONCERN), (UNSUPPORTED, Verdict.NOT_APPLICABLE)],
)
def test_errors_of_nvlinks_need_no_catalogue(counters: object, verdict: Verdict) -> None:
    assert evaluated("gpu.nvlink_errors", "someone.else", gpus=[{**GPU, "nvlink_errors": counters}]).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "gpus_on_bus", "nvswitches", "verdict"),
    [
        ("p5.48xlarge", 8, 4, Verdict.PASS),
        ("p5.48xlarge", 8, 3, Verdict.FAIL),
        ("p5.48xlarge", 8, 0, Verdict.FAIL),
        ("p5.48xlarge", 8, 6, Verdict.PASS),
        ("p4d.24xlarge", 8, 5, Verdict.FAIL),
        ("g5.48xlarge", 8, 0, Verdict.NOT_APPLICABLE),
        ("p6-b200.48xlarge", 8, 0, Verdict.NOT_APPLICABLE),
        ("someone.else", 8, 5, Verdict.FAIL),
        ("someone.else", 8, 3, Verdict.FAIL),
        ("someone.else", 8, 4, Verdict.INCOMPLETE),
        ("someone.else", 8, 0, Verdict.INCOMPLETE),
        ("someone.else", 4, 3, Verdict.INCOMPLETE),  # it may have only a part of a machine's GPUs
    ],
)
def test_how_many_nvswitches_there_should_be(
    instance_type: str, gpus_on_bus: int, nvswitches: int, verdict: Verdict
) -> None:
    pci = bus(*[0] * gpus_on_bus, nvswitches=nvswitches)
    assert evaluated("gpu.nvswitch_count", instance_type, gpus=[GPU], pci=pci).verdict is verdict


@pytest.mark.parametrize(
    ("name", "service", "verdict"),
    [
        ("NVIDIA GB200", {"load": "loaded", "active": "active"}, Verdict.PASS),
        ("NVIDIA GB300", {"load": "loaded", "active": "failed"}, Verdict.CONCERN),
        ("NVIDIA GB200", {"load": "not-found", "active": "inactive"}, Verdict.INCOMPLETE),  # it may not be needed
        ("NVIDIA H100 80GB HBM3", {"load": "not-found", "active": "inactive"}, Verdict.NOT_APPLICABLE),
        (UNKNOWN, {"load": "loaded", "active": "active"}, Verdict.INCOMPLETE),
    ],
)
def test_imex_runs_on_the_trays_of_a_rack(name: object, service: dict[str, str], verdict: Verdict) -> None:
    services = {"services": {"nvidia-imex": service}, "failed": []}
    assert evaluated("gpu.imex", gpus=[{**GPU, "name": name}], services=services).verdict is verdict


@pytest.mark.parametrize("count", [1, 2])
def test_cards_of_an_unknown_model_without_any_active_link_are_not_asked_to_be_reset(count: int) -> None:
    gpus = [{**GPU, "index": n, "nvlinks": DOWN * 12} for n in range(count)]
    message = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).message
    assert "all 12 NVLinks inactive; whether this model wires them is unknown" in message
    assert "concern" not in message


@pytest.mark.parametrize("numbers", ["x", 5, {}, {"error": "DCGM_ST_NO_DATA"}, [0], ["a"] * 18])
def test_odd_numbers_of_links_hide_no_link_that_is_down(numbers: object) -> None:
    gpus = [{**GPU, "nvlinks": UP * 17 + DOWN, "nvlink_numbers": numbers}]
    result = evaluated("gpu.nvlink_active", gpus=gpus)
    assert result.verdict is Verdict.FAIL, result.message


@pytest.mark.parametrize("count", [1, 2])
def test_a_board_without_any_active_link_is_a_concern(count: int) -> None:
    gpus = [{**GPU, "name": "NVIDIA H100 80GB HBM3", "index": n, "nvlinks": DOWN * 18} for n in range(count)]
    message = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).message
    assert "concern: GPU 0" in message
    assert "all 18 NVLinks inactive; expected active ones, unless" in message


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("name", "is_said"), [("NVIDIA B200", True), ("NVIDIA L4", False)])
def test_a_board_of_which_nvidia_smi_only_says_that_all_links_are_down_is_a_concern(
    name: str, is_said: bool, count: int
) -> None:
    gpus: list[dict[str, Any]] = [{**GPU, "name": name, "index": n, "nvlinks": []} for n in range(count)]
    message = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).message
    assert ("no active NVLink; expected active ones, unless" in message) == is_said
