"""Which pairs exchange again after the first rounds, and that each node has partners enough."""

from __future__ import annotations

from collections import Counter

import pytest

from clusterproof.plugins.benchmarks.pairwise.mesh_rounds import LEAST_PARTNERS
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.meshes import Wiring, measured, planned


@pytest.mark.parametrize("count", [2, 3, 4, 5, 15, 16, 33])
@pytest.mark.parametrize("rack", [0, 4])
def test_each_node_has_three_partners_or_all_there_are(count: int, rack: int) -> None:
    for seed in range(6):
        made = planned(count, rack, seed)
        data = measured(made, Wiring())
        partners = Counter(node for one in {one.pair for one in data} for node in one)
        assert min(partners.values()) >= min(LEAST_PARTNERS, count - 1)
        assert max(one.round for one in data) < 8


def test_a_dead_rail_is_not_measured_again_and_a_path_once() -> None:
    of_rail = Counter(one.pair for one in measured(planned(16), Wiring(rails=[3])))
    assert max(of_rail.values()) == 1
    ends = planned(16).first[0][0]
    of_path = Counter(one.pair for one in measured(planned(16), Wiring(paths=[(ends, 2)])))
    assert of_path.pop(ends) == 2
    assert max(of_path.values()) == 1


def test_a_node_that_two_partners_do_not_reach_is_not_measured_further() -> None:
    dead = [(node, rail) for node in names(16)[3:4] for rail in range(8)]
    assert len(measured(planned(16), Wiring(dead))) == len(measured(planned(16), Wiring()))
