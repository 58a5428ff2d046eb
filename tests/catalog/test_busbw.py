"""Expected bandwidths: the catalogue's, for exactly this key."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output
from clusterproof.plugins.benchmarks.meters.selection import METERS, key_of
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.catalog.busbw import (
    BusbwKey,
    expected_busbw,
    measured_busbw,
    of_wire,
    rows_of,
    size_bytes_for,
)
from clusterproof.plugins.catalog.rows import CatalogError
from tests.builders.samples import sample

GIB = 2**30
P5 = BusbwKey(
    instance_type="p5.48xlarge", efa=32, nodes=2, ranks_per_node=8, collective="all_reduce", size_bytes=8 * GIB
)
# Type, EFA devices, nodes, GiB: GB/s.
PUBLISHED = {
    ("p4d.24xlarge", 4, 2, 1): 57.17,
    ("p4d.24xlarge", 4, 3, 1): 31.75,
    ("p4d.24xlarge", 4, 4, 1): 29.61,
    ("p4de.24xlarge", 4, 2, 2): 78.33,
    ("p5.48xlarge", 32, 2, 1): 436.95,
    ("p5.48xlarge", 32, 2, 2): 442.06,
    ("p5.48xlarge", 32, 2, 4): 464.33,
    ("p5.48xlarge", 32, 2, 8): 478.95,
    ("p5.48xlarge", 32, 2, 16): 487.09,
    ("p5en.48xlarge", 16, 16, 16): 369.42,
    ("p6-b200.48xlarge", 8, 4, 1): 367.0,
    ("p6-b200.48xlarge", 8, 4, 4): 375.0,
    ("p6-b200.48xlarge", 8, 4, 16): 377.0,
    ("p6-b300.48xlarge", 16, 2, 16): 654.0,
    ("p6-b300.48xlarge", 16, 2, 64): 751.0,
}


def test_the_catalogue_has_what_was_measured_and_nothing_else() -> None:
    rows = {(k.instance_type, k.efa, k.nodes, k.size_bytes // GIB): r for k, r in measured_busbw().items()}
    assert {short: row.busbw_gb_per_s for short, row in rows.items()} == PUBLISHED
    assert {(row.ranks_per_node, row.collective) for row in rows.values()} == {(8, "all_reduce")}


def test_every_row_is_of_a_known_type_with_as_many_devices_as_it_can_have() -> None:
    for key in measured_busbw():
        row = PACKAGED.instance_type(key.instance_type)
        assert row is not None
        assert (key.efa, key.ranks_per_node) == (row.efa, row.gpus)


@pytest.mark.parametrize("file", ["awsome-p5-srun-prefixed", "awsome-topology-aware"])
def test_rows_are_what_the_meter_reads_of_their_own_source(file: str) -> None:
    lines = sample(f"nccl-tests/{file}.txt").text.splitlines()
    columns = next(line for line in lines if "busbw" in line)
    measured = {row.busbw_gb_per_s for row in measured_busbw().values()}
    for line in lines:
        read = METERS["nccl-tests"].read(MeterSettings(), (Output(f"{columns}\n{line}\n", 0),))
        if read.size_bytes >= GIB:
            assert read.busbw_gb_per_s in measured


def floor_gb_per_s(key: BusbwKey, catalog: Catalog = PACKAGED) -> float | None:
    """The minimum for pairs with this key, without a baseline."""
    journal = Journal(plan(["a", "b"], {}, 0.05, seed=1), {"key": asdict(key)}, {}, (), "")
    return Campaign(journal, catalog=catalog).floor_gb_per_s


def test_a_floor_is_the_stated_share_of_what_was_measured_with_the_same_key() -> None:
    assert floor_gb_per_s(P5) == pytest.approx(0.8 * 478.95)


def test_a_site_states_another_share() -> None:
    assert floor_gb_per_s(P5, Catalog({"busbw.floor_share": 0.5})) == pytest.approx(0.5 * 478.95)


@pytest.mark.parametrize(
    "other",
    [
        {"instance_type": "p5e.48xlarge"},
        {"efa": 31},
        {"efa": 0},
        {"nodes": 1},
        {"nodes": 3},
        {"nodes": 16},
        {"ranks_per_node": 4},
        {"collective": "all_gather"},
        {"size_bytes": 6 * GIB},
        {"size_bytes": 32 * GIB},
        {"size_bytes": GIB // 2},
    ],
)
def test_another_key_has_no_floor(other: dict[str, Any]) -> None:
    assert expected_busbw(replace(P5, **other)) is None
    assert floor_gb_per_s(replace(P5, **other)) is None


ROW = {
    "instance_type": "x",
    "efa": 1,
    "nodes": 2,
    "ranks_per_node": 8,
    "collective": "all_reduce",
    "size_bytes": GIB,
    "busbw_gb_per_s": 10.0,
    "source": "s",
}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, {**ROW, "busbw_gb_per_s": 11.0}], "measured 2: the key is there before: all_reduce of 1073741824 bytes"),
        (
            [{**ROW, "size_bytes": GIB // 2}],
            "measured 1: 10.0 GB/s of 536870912 bytes; expected more than 0, of at least 1073741824",
        ),
        ([{**ROW, "busbw_gb_per_s": 0}], "measured 1: 0 GB/s of"),
        ([{**ROW, "source": "t"}], "measured 1: source 't' is not explained"),
        ([{**ROW, "colour": 1}], "measured 1: unknown key 'colour'"),
        ({}, "expected tables"),
    ],
)
def test_a_row_that_is_not_right_is_one_clear_error(rows: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        rows_of({"sources": {"s": "said"}, "measured": rows})


@pytest.mark.parametrize(
    ("name", "efa", "ranks", "gib"),
    [
        ("p5.48xlarge", 32, 8, 8),
        ("ml.p5.48xlarge", 32, 8, 8),
        ("p5e.48xlarge", 32, 8, 8),
        ("p6-b300.48xlarge", 16, 8, 8),
        ("p5.48xlarge", 0, 8, 1),
        ("p4d.24xlarge", 4, 8, 1),
        ("p4de.24xlarge", 4, 8, 2),
        ("g5.48xlarge", 1, 8, 1),
        ("trn1.32xlarge", 8, 32, 1),
        ("nobody-knows", 8, 8, 1),
    ],
)
def test_the_size_is_one_that_has_a_floor_else_8_gib_with_rdma_and_never_below_1(
    name: str, efa: int, ranks: int, gib: int
) -> None:
    assert size_bytes_for(name, efa, ranks, PACKAGED) == gib * GIB


@pytest.mark.parametrize(
    ("key", "busbw", "share", "note"),
    [
        (P5, 478.95, 1.197375, "above the wire: with 2 nodes NCCL's tree and NVLS"),
        (P5, 300.0, 0.75, "with 2 nodes NCCL's tree and NVLS"),
        (replace(P5, nodes=4), 300.0, 0.75, ""),
        (replace(P5, nodes=4), 500.0, 1.25, "above the wire: no flat ring does that"),
        (replace(P5, efa=16), 100.0, 0.5, "with 2 nodes"),
        (replace(P5, instance_type="g5.48xlarge", efa=0, ranks_per_node=1), 6.25, 0.5, ""),
    ],
)
def test_a_reading_is_a_share_of_the_wire_and_says_how_to_take_it(
    key: BusbwKey, busbw: float, share: float, note: str
) -> None:
    reading = of_wire(busbw, key, PACKAGED)
    assert reading is not None
    assert reading.share == pytest.approx(share)
    assert reading.note.startswith(note)
    assert bool(reading.note) == bool(note)


@pytest.mark.parametrize(
    "key",
    [
        replace(P5, nodes=1),  # no network
        replace(P5, efa=0),  # the share of Ethernet on these cards is not known
        replace(P5, instance_type="nobody-knows"),
    ],
)
def test_where_the_wire_is_not_known_no_share_is_given(key: BusbwKey) -> None:
    assert of_wire(100.0, key, PACKAGED) is None


def test_the_key_of_a_reading_names_the_collective_or_the_meter_of_two_ends() -> None:
    settings = MeterSettings()
    assert key_of(METERS["nccl-tests"], settings, 8 * GIB, "ml.p5.48xlarge", 32, 8) == P5
    key = key_of(METERS["iperf3"], settings, 131072, "m7i.large", 0, 8)
    assert (key.collective, key.ranks_per_node) == ("iperf3", 1)
