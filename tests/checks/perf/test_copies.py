"""Copies between GPUs over PCIe: distance determines their speed, and is no fault of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.checks.perf.given import FAR, NEAR, copying

PASS, CONCERN, FAIL, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("sockets", "verdict", "message"),
    [
        ((0, 0, 1, 1), PASS, ""),
        ((0, 0, 0, 0, 1, 1), PASS, ""),
        ((0, 0, 1), INCOMPLETE, "GPU 2, GPU to GPU by nvbandwidth, others 2 SYS: 21.9 GB/s; expected further GPUs or"),
    ],
)
def test_a_healthy_gpu_that_is_farther_from_the_others_is_not_accused(
    sockets: tuple[int, ...], verdict: Verdict, message: str
) -> None:
    result = result_of("gpu.gpu_bandwidth", copying(sockets), occasion="perf")
    assert (result.verdict, result.message[: len(message)]) == (verdict, message), result.message


@pytest.mark.parametrize("slow", [0, 2])
def test_nodes_built_alike_show_which_of_their_gpus_is_slow(slow: int) -> None:
    others = [copying((0, 0, 1), f"gpu00{number}") for number in (2, 3, 4)]
    assert result_of("gpu.gpu_bandwidth", copying((0, 0, 1)), *others, occasion="perf").verdict is PASS
    result = result_of("gpu.gpu_bandwidth", copying((0, 0, 1), slow=slow), *others, occasion="perf")
    assert result.verdict is FAIL
    assert f"GPU {slow}, GPU to GPU" in result.message


@pytest.mark.parametrize(("sockets", "slow"), [((0, 0, 1, 1), 3), ((0, 0, 0, 0, 1, 1), 5), ((0, 0, 0, 0, 1, 1), 2)])
def test_a_slow_gpu_among_such_as_are_as_near_is_named(sockets: tuple[int, ...], slow: int) -> None:
    result = result_of("gpu.gpu_bandwidth", copying(sockets, slow=slow), occasion="perf")
    assert result.verdict is FAIL
    assert f"GPU {slow}, GPU to GPU" in result.message


@pytest.mark.parametrize("is_placed", [True, False])
def test_where_all_are_as_fast_or_no_way_is_known_all_are_compared(is_placed: bool) -> None:
    assert (
        result_of("gpu.gpu_bandwidth", copying((0, 0, 1), far=NEAR, is_placed=is_placed), occasion="perf").verdict
        is PASS
    )


ALONE = "GPU 3, GPU to GPU by nvbandwidth, others at unknown distances from GPU 3: 21.9 GB/s; expected further GPUs or"


@pytest.mark.parametrize("placed", [{"sockets": (0, 0, 0, 1), "is_placed": False}, {"sockets": (0, 0, 0, -1)}])
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("nvlinks", [(), (False,) * 4, (True, True, True, False)])
def test_where_no_distance_is_known_a_gpu_that_copies_more_slowly_is_no_fault(
    nvlinks: tuple[bool, ...], others: int, placed: dict[str, Any]
) -> None:
    beside = [copying((0, 0, 0, 1), f"gpu00{number}") for number in range(2, 2 + others)]
    result = result_of("gpu.gpu_bandwidth", copying(**placed, nvlinks=nvlinks), *beside, occasion="perf")
    assert result.verdict is INCOMPLETE
    assert ALONE in result.message


def test_where_the_type_has_a_floor_too_what_no_distance_is_known_of_is_no_pass() -> None:
    copied = copying((0, 0, 0, 1), is_placed=False, host=(55,) * 4)
    result = result_of("gpu.gpu_bandwidth", copied, occasion="perf", instance_type="p5.48xlarge")
    assert "GPU 3, GPU to GPU by nvbandwidth, others at unknown distances" in result.message


@pytest.mark.parametrize("is_placed", [True, False])
def test_nvlinks_make_all_gpus_as_near_wherever_they_are(is_placed: bool) -> None:
    linked = copying((0, 0, 0, 0), slow=3, is_placed=is_placed, nvlinks=(True,) * 4)
    result = result_of("gpu.gpu_bandwidth", linked, occasion="perf")
    assert result.verdict is FAIL
    assert "GPU 3, GPU to GPU by nvbandwidth: 13.17 GB/s, 50 % below the best GPU" in result.message


@pytest.mark.parametrize(("sockets", "slow"), [((0, 0, 1), 2), ((0, 0, 0, 1), 3)])
def test_a_slow_gpu_that_alone_is_so_far_is_named_beside_nodes_where_the_way_makes_no_difference(
    sockets: tuple[int, ...], slow: int
) -> None:
    others = [copying(sockets, f"gpu00{number}", far=NEAR) for number in (2, 3, 4)]
    result = result_of("gpu.gpu_bandwidth", copying(sockets, far=NEAR, slow=slow), *others, occasion="perf")
    assert result.verdict is FAIL
    assert f"GPU {slow}, GPU to GPU" in result.message


@pytest.mark.parametrize(
    "unlike",
    [
        {"sockets": (0,) * 7, "nvlinks": (True,) * 7, "lost": True},
        {"sockets": (0,) * 8, "nvlinks": (*(True,) * 5, False, True, True), "is_placed": False},
    ],
    ids=["one is lost", "the links of one are down"],
)
@pytest.mark.parametrize("others", [0, 4])
def test_a_gpu_that_is_lost_or_has_no_links_hides_no_slow_one(unlike: dict[str, Any], others: int) -> None:
    beside = [copying((0,) * 8, f"gpu00{number}", nvlinks=(True,) * 8) for number in range(2, 2 + others)]
    result = result_of("gpu.gpu_bandwidth", copying(**unlike, slow=3), *beside, occasion="perf")
    assert result.verdict is FAIL
    assert "GPU 3, GPU to GPU by nvbandwidth: 13.17 GB/s, 50 % below the best GPU" in result.message
    assert "GPU 0" not in result.message


def test_nvlinks_to_one_other_gpu_make_none_as_near_to_all() -> None:
    pairs = copying((0, 0, 0, 0, 1, 1), is_placed=False, nvlinks=(True,) * 6, bridged=True)
    assert result_of("gpu.gpu_bandwidth", pairs, occasion="perf").verdict is INCOMPLETE


@pytest.mark.parametrize("usual", [(0, 0, 0, 0), (0, 0, 0, 1)])
@pytest.mark.parametrize(
    ("unlike", "verdict"),
    [
        ({}, INCOMPLETE),  # healthy or not, its position may make it as slow
        ({"is_placed": False}, INCOMPLETE),
        ({"slow": 3}, FAIL),
        ({"is_placed": False, "slow": 3}, INCOMPLETE),
        ({"far": NEAR}, PASS),
        ({"far": NEAR, "is_placed": False}, PASS),
    ],
)
def test_a_node_that_alone_is_built_so_fails_by_its_own_gpus_alone(
    usual: tuple[int, ...], unlike: dict[str, Any], verdict: Verdict
) -> None:
    beside = [copying(usual, f"gpu00{number}") for number in range(2, 9)]
    result = result_of("gpu.gpu_bandwidth", copying((0, 0, 1, 1), **unlike), *beside, occasion="perf")
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize(("own", "due"), [((0, 0, 1), PASS), ((0, 1, 1), INCOMPLETE)])
def test_where_no_node_knows_its_distances_what_is_slower_than_the_same_gpu_of_others_is_no_fault(
    own: tuple[int, ...], due: Verdict
) -> None:
    beside = [copying((0, 0, 1), f"gpu00{number}", is_placed=False) for number in (2, 3, 4)]
    assert result_of("gpu.gpu_bandwidth", copying(own, is_placed=False), *beside, occasion="perf").verdict is due


@pytest.mark.parametrize("far", [NEAR, FAR])
def test_a_gpu_of_another_model_is_compared_with_none_that_is_as_near(far: float) -> None:
    mixed = copying((*(0,) * 6, 1, 1), far=far, slow=0, first="1eb8")
    beside = [copying((*(0,) * 6, 1, 1), f"gpu00{number}", far) for number in (2, 3, 4)]
    result = result_of("gpu.gpu_bandwidth", mixed, *beside, occasion="perf")
    assert result.verdict is INCOMPLETE
    assert result.message.count("GPU to GPU") == 1
