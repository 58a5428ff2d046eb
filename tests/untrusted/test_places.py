"""Recorded nodes with one value in place of another: no check breaks, whichever the two values are."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import from_json, load, to_json
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.wheel import ROOT
from tests.checks.gpu.racks import tray
from tests.checks.network.given import roce_host, roce_port

H200 = Path(__file__).parents[1] / "recordings" / "h200"
DEMO = ROOT / "clusterproof" / "fixtures" / "demo" / "nodes" / "gpu001.json"
RECORDED = {
    **{name: to_json(load((H200 / name / "nodes" / "node1.json").read_text())) for name in ("idle", "job", "perf")},
    "demo": to_json(load(DEMO.read_text())),
    "rack": to_json(tray(0)),
    "roce": to_json(roce_host(roce_port(0), roce_port(1))),
}
ALIKE = 2  # of a list: the further entries are read in the same way
OTHERS: tuple[Any, ...] = ("text", -1, None, [], {}, True, ["text"], {"text": "text"}, 1e300)
AT_ONCE = 25  # places per recording in a test run; `places` has all of them

Place = tuple[Any, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place of a value in another, by keys and indexes, including itself."""
    within = value.items() if isinstance(value, dict) else enumerate(value[:ALIKE]) if isinstance(value, list) else ()
    for key, entry in within:
        yield from places(entry, (*at, key))
    if at:
        yield at


def broken(recorded: dict[str, Any], collector: str, place: Place, other: object) -> list[str]:
    """The errors of checks that read this collector and break with another value in that place."""
    changed = copy.deepcopy(recorded)
    holder = changed["collectors"][collector]["value"]
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = other
    evidence = from_json(changed)
    (node,) = nodes(Cluster("c", "local", (Target(evidence.node),)), {evidence.node: evidence}).values()
    checks = [check for check in node_checks().values() if collector in check.collectors]
    evaluated = [evaluate(check, node) for check in checks]
    return [f"{result.check}: {result.message}" for result in evaluated if "the check itself broke" in result.message]


@pytest.mark.parametrize(
    ("name", "collector", "place", "other"),
    [
        ("job", "container", ("gpus_asked", "NVIDIA_VISIBLE_DEVICES"), "text"),
        ("idle", "pci_config", ("functions", 0, "address"), None),
    ],
)
def test_a_value_that_broke_a_check_breaks_none_any_more(
    name: str, collector: str, place: Place, other: object
) -> None:
    assert broken(RECORDED[name], collector, place, other) == []


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_no_value_in_the_place_of_another_breaks_a_check(name: str) -> None:
    recorded, chance = RECORDED[name], random.Random(name)  # the same in each run
    every = [
        (collector, place)
        for collector, answer in recorded["collectors"].items()
        if isinstance(answer.get("value"), dict)
        for place in places(answer["value"])
    ]
    for collector, place in chance.sample(every, min(AT_ONCE, len(every))):
        other = chance.choice(OTHERS)
        assert broken(recorded, collector, place, other) == [], (collector, place, other)
