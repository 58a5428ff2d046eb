"""The stage `speed` where a node's hardware differs or was not read completely: the node is not called slow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.accept.verdicts import NodeVerdict
from tests.accept.judged import ONE_FAR, Copying, Judged, gpus
from tests.accept.simulated import NAMES, outcomes_of, verdicts
from tests.checks.perf.given import NEAR

HOST = (62, 55, 55, 55)  # GB/s from the host to each GPU


OPEN, REJECTED = NodeVerdict.OPEN, NodeVerdict.REJECTED
ALIKE = {"sockets": (0,) * 4}


@pytest.mark.long
@pytest.mark.parametrize(
    ("usual", "n1", "due"),
    [
        (ALIKE | {"host": HOST}, {"sockets": ONE_FAR}, OPEN),
        (ALIKE | {"host": HOST}, {"sockets": ONE_FAR, "far": NEAR}, None),
        ({"far": NEAR}, {"is_placed": False}, None),
        ({"far": NEAR}, ALIKE, None),
        ({"far": NEAR}, {"is_placed": False, "slow": 3}, OPEN),
        ({"far": NEAR}, {"slow": 3}, REJECTED),
        ({}, {"is_placed": False}, OPEN),
        ({}, {"is_placed": False, "slow": 0}, OPEN),
        ({"host": (55,) * 4}, {"sockets": (0,) * 4, "host": (55, 55, 55, 30)}, REJECTED),
        ({}, {"sockets": (0, 0, 1, 1), "slow": 3}, REJECTED),
    ],
)
def test_how_far_its_gpus_are_from_each_other_makes_no_node_slow(
    usual: Mapping[str, Any], n1: Mapping[str, Any], due: NodeVerdict | None, tmp_path: Path
) -> None:
    outcomes = outcomes_of(tmp_path, Copying(usual=usual, unlike={"n1": n1}))
    assert verdicts(outcomes) == ({"n1": due} if due else {}), outcomes["n1"]


def each(of: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, of)


UNPLACED, PAIRS = {"is_placed": False}, {"sockets": (0, 0, 1, 1)}
BESIDE = {"host": (55,) * 4}  # measured too, and no evidence about copies between GPUs
LINKED = {"sockets": (0,) * 8, "nvlinks": (True,) * 8}
DOWN = {"nvlinks": (*(True,) * 5, False, True, True)} | UNPLACED
LOST = {"sockets": (0,) * 7, "nvlinks": (True,) * 7, "lost": True}
SLOW = {"slow": 3}


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "usual", "unlike", "due"),
    [
        (4, BESIDE, each(UNPLACED, "n1", "n2") | each(UNPLACED | SLOW, "n1"), each(OPEN, *NAMES[:4])),
        (
            8,
            BESIDE,
            each(ALIKE, *NAMES[:3]) | each(UNPLACED | SLOW, "n7") | each(UNPLACED, "n8"),
            each(OPEN, "n7", "n8"),
        ),
        (
            4,
            LINKED | {"host": (55,) * 8},
            each(DOWN, "n1", "n2") | each(DOWN | SLOW, "n1"),
            {"n1": REJECTED},
        ),
        (
            4,
            LINKED | {"host": (55,) * 8},
            each(DOWN, "n1", "n2") | each(DOWN | {"slow": 5}, "n1"),
            each(OPEN, "n1", "n2"),
        ),
        (5, LINKED, each(LOST | SLOW, "n1"), {"n1": REJECTED}),
        (8, {"far": NEAR}, each(UNPLACED, "n1", "n2") | each(UNPLACED | SLOW, "n1"), each(OPEN, "n1", "n2")),
        (8, {"far": NEAR}, each(UNPLACED, "n1") | each(ALIKE | SLOW, "n2"), {"n2": REJECTED}),
        (8, BESIDE, each(PAIRS, "n1"), {"n1": OPEN}),
        (8, BESIDE | ALIKE, each(PAIRS, "n1"), {"n1": OPEN}),
        (8, BESIDE, each(PAIRS | SLOW, "n1"), {"n1": REJECTED}),
        (8, BESIDE, each(PAIRS, "n1", "n2", "n3"), {}),
        (8, BESIDE, each(PAIRS, "n1", "n2", "n3") | each(PAIRS | SLOW, "n1"), {"n1": REJECTED}),
        (5, BESIDE, each(PAIRS, "n1", "n2") | each(UNPLACED, "n3"), each(OPEN, *NAMES[:5])),
        (8, UNPLACED, each(UNPLACED | PAIRS, "n1"), {"n1": OPEN}),
        (8, UNPLACED | ALIKE, each(UNPLACED | PAIRS, "n1"), {"n1": OPEN}),
    ],
)
def test_a_slow_gpu_is_not_accepted_and_a_healthy_one_not_rejected_however_the_nodes_are_built(
    count: int,
    usual: Mapping[str, Any],
    unlike: Mapping[str, Mapping[str, Any]],
    due: Mapping[str, NodeVerdict],
    tmp_path: Path,
) -> None:
    outcomes = outcomes_of(tmp_path, Copying(usual=usual, unlike=unlike), names=NAMES[:count])
    assert verdicts(outcomes) == due, {node: outcomes[node].reasons for node in {*due, *verdicts(outcomes)}}


def test_where_no_place_was_read_on_any_node_none_is_accused(tmp_path: Path) -> None:
    assert REJECTED not in verdicts(outcomes_of(tmp_path, Copying(usual={"is_placed": False}))).values()


@pytest.mark.long
def test_a_node_of_which_nobody_knows_the_models_is_not_slow_where_others_have_several(tmp_path: Path) -> None:
    own = {f"{node}-{gpu}": 0.5 if gpu > 3 else 1.0 for node in NAMES for gpu in range(8)}
    mixed = dict.fromkeys(NAMES[1:], ["20b0"] * 4 + ["1eb8"] * 4)
    nodes = Judged(gpus=gpus(NAMES), models=mixed, gpu_speed=lambda _node, uuid: own[uuid])
    outcomes = outcomes_of(tmp_path, nodes)
    assert verdicts(outcomes) == {"n1": OPEN}
    assert "GPU 4, bfloat16 products of 8192 × 8192: 350 TFLOP/s, 50 % below" in " ".join(outcomes["n1"].reasons)
