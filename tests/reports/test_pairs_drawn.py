"""Measurements between nodes, drawn and listed on a run's page."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.clusters import Simulated
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.evidence.pairs import GroupMeasurement, Measurement, NodeGroup, Reading, pair
from clusterproof.reports.document.heat import MAX_LINES
from clusterproof.reports.document.node_map import blocks, in_order, places
from clusterproof.reports.formats import write_report
from clusterproof.reports.formats.pairs_csv import HEAD, measurements_csv
from clusterproof.reports.pairs import lines_of_pairs, measured_between
from tests.benchmarks.pairwise.pair_faults import HEALTHY, LINK, PairFault, write_recording
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.builders.recordings import boot, node, recorded
from tests.builders.runs import ROOT
from tests.reports.page import Page
from tests.reports.reported import HOSTILE
from tests.reports.sections import FAULTS, SLOW, page, run, section, words_of

MAX_BYTES = 300_000


def some_faults(cluster: Simulated) -> None:
    cluster.slow_nodes = {"n0003": 0.8}
    cluster.dead = ("n0005",)
    cluster.slow_racks = {"rack1": 0.85}


def changed(fault: PairFault, **journal: object) -> PairwiseRun:
    """A fault's run with another journal."""
    (campaign,) = measured(fault).campaigns
    return PairwiseRun((replace(campaign, journal=replace(campaign.journal, **journal)),))  # type: ignore[arg-type]


def named(old: str, new: str) -> PairwiseRun:
    """A run in which one node has another name."""
    (campaign,) = measured(SLOW).campaigns
    journal = campaign.journal
    plan = replace(
        journal.plan,
        nodes=tuple(new if node == old else node for node in journal.plan.nodes),
        places={new if node == old else node: place for node, place in journal.plan.places.items()},
    )
    renamed = tuple(
        replace(measured_pair, pair=pair(*(new if node == old else node for node in measured_pair.pair)))
        for measured_pair in journal.measurements
    )
    return PairwiseRun((Campaign(replace(journal, plan=plan, measurements=renamed)),))


def table(between: PairwiseRun) -> list[dict[str, str]]:
    return list(csv.DictReader((measurements_csv(run(between)) or "").splitlines()))


def test_racks_stand_together_with_lines_between_them() -> None:
    html = page(SLOW)
    assert re.findall(r'class="group"[^>]*>([^<]*)', html) == ["rack0", "rack1", "rack2", "rack3"]
    (lines,) = re.findall(r'class="between" d="([^"]*)"', html)
    assert lines.count("M") == 6


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ("5 pairs of round 4 (a~b), and what would have followed", "left out5 pairs of round 4 (a~b)"),
        (None, "left outwhat followed: it was broken off"),
        ("", ""),
    ],
)
def test_what_was_left_out_is_shown(ended: str | None, words: str) -> None:
    between = changed(SLOW, ended=ended)
    text = words_of(section(between))
    assert (words in text) if words else ("left out" not in text)
    line = " ".join(lines_of_pairs(between, 1000))
    assert ("left out: " in line) is bool(words)


def test_where_all_failed_there_is_no_normal() -> None:
    failed = tuple(
        replace(measurement, reading=replace(measurement.reading, busbw_gb_per_s=None, problem="no answer"))
        for measurement in measured(SLOW).campaigns[0].journal.measurements
    )
    between = changed(SLOW, measurements=failed)
    assert "normal unknown: all failed" in " ".join(lines_of_pairs(between, 1000))
    assert 'class="on-failed"' in section(between)


@pytest.mark.long
@pytest.mark.parametrize("nodes", [64, 65, 300, pytest.param(2048, marks=pytest.mark.long)])
def test_a_large_cluster_is_folded_by_place_with_the_accused_below(nodes: int) -> None:
    html = page(PairFault(f"faults among {nodes}", some_faults, nodes=nodes, first_rounds_only=nodes > 300))
    assert len(html.encode()) < MAX_BYTES
    heat, strip = html.split('<svg class="strip"')
    rows = re.findall(r'class="row[^>]*>([^<]*)', heat)
    if nodes <= 64:
        assert len(rows) == nodes
    else:
        assert sorted(rows[-2:]) == ["▸ n0003", "▸ n0005"]
        assert "▸ rack1" in rows
        assert len(rows) < 40
    shown = re.findall(r'class="row[^>]*>(?:▸ )?([^<]*)', strip)
    assert len(shown) <= MAX_LINES
    assert re.fullmatch(r"\d+ others", shown[-1])
    assert int(shown[-1].split()[0]) + len(shown) - 1 == nodes


@pytest.mark.long
def test_every_pair_of_64_nodes_fits_too() -> None:
    (campaign,) = measured(SLOW).campaigns
    reading = campaign.journal.measurements[-1].reading
    nodes = [f"n{number:04}" for number in range(64)]
    measurements = tuple(
        Measurement(pair(first, other), 0, 1, reading) for at, first in enumerate(nodes) for other in nodes[at + 1 :]
    )
    plan = replace(campaign.journal.plan, nodes=tuple(nodes))
    assert len(section(changed(SLOW, plan=plan, measurements=measurements)).encode()) < MAX_BYTES


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 100_000], ids=[*map(ascii, HOSTILE), "long"])
def test_what_a_node_calls_itself_is_text(name: str) -> None:
    between = named("n0003", name)
    html = section(between)
    assert {tag for tag, _ in Page(html).elements} == {tag for tag, _ in Page(page(SLOW)).elements}
    assert "<script" not in html
    assert len(html) < MAX_BYTES
    assert not re.search("[\0-\x08\x1b\u202e]", html + "".join(lines_of_pairs(between, 100)))


def test_nodes_are_in_the_order_of_their_places_and_numbers() -> None:
    places = {"n10": "rack2", "n9": "rack2", "a1": "rack10", "z": ""}
    assert in_order(places, places) == ["n9", "n10", "a1", "z"]


def test_nodes_without_places_are_folded_one_after_another() -> None:
    names = [f"n{number:04}" for number in range(100)]
    folded = blocks(names, {})
    assert [block.name for block in folded[:2]] == ["n[0000-0003]", "n[0004-0007]"]
    assert [node for block in folded for node in block.nodes] == names


def test_a_slow_place_is_never_folded_with_its_neighbours() -> None:
    names = [f"n{number:04}" for number in range(1000)]
    places = {name: f"rack{number // 4}" for number, name in enumerate(names)}
    folded = [block.name for block in blocks(names, places, {"rack3"})]
    assert folded[:3] == ["rack0 … rack2", "rack3", "rack4 … rack11"]
    assert len(folded) < 40


def test_the_table_has_every_measurement() -> None:
    (campaign,) = measured(SLOW).campaigns
    rows = table(measured(SLOW))
    assert list(rows[0]) == list(HEAD)
    assert len(rows) == len(campaign.journal.measurements)
    of_slow = next(row for row in rows if "n0003" in (row["a"], row["b"]))
    assert of_slow["pair"] == f"{of_slow['a']}~{of_slow['b']}"
    assert 0.75 < float(of_slow["share_of_normal"]) < 0.85
    assert (of_slow["round"], of_slow["at_once"], of_slow["correct"]) == ("1", "16", "yes")
    assert (of_slow["size_bytes"], of_slow["network"]) == (str(8 * 2**30), "efa, 32 devices")


def in_groups() -> PairwiseRun:
    """Pairs, then a group of four twice, the first time without success, and one of eight."""
    journal = measured(HEALTHY).campaigns[0].journal
    four, eight = (NodeGroup(journal.plan.nodes[:count]) for count in (4, 8))
    readings = ((four, Reading(problem="no route")), (four, Reading(300.0)), (eight, Reading(200.0)))
    return changed(HEALTHY, groups=tuple(GroupMeasurement(group, 1, reading) for group, reading in readings))


def test_the_table_has_every_measurement_of_a_group_behind_the_pairs() -> None:
    of_groups = in_groups()
    rows = table(of_groups)
    assert {row["nodes"] for row in rows[:-3]} == {"2"}
    cells = [(row["pair"], row["a"], row["round"], row["nodes"], row["busbw_gb_per_s"], row["problem"]) for row in rows]
    four, eight = (
        str(of_groups.campaigns[0].journal.groups[0].group),
        str(of_groups.campaigns[0].journal.groups[2].group),
    )
    assert cells[-3:] == [
        (four, "", "", "4", "", "no route"),
        (four, "", "", "4", "300", ""),
        (eight, "", "", "8", "200", ""),
    ]


def test_the_history_keeps_what_each_node_had_in_groups_of_each_size() -> None:
    of_groups = in_groups()
    kept = [entry for entry in measured_between(of_groups) if entry.name.startswith("busbw in groups of")]
    nodes = of_groups.campaigns[0].journal.plan.nodes
    assert [(entry.node, entry.value) for entry in kept if "of 4 nodes: " in entry.name] == [
        (name, 300.0) for name in nodes[:4]
    ]
    assert [(entry.node, entry.value) for entry in kept if "of 8 nodes: " in entry.name] == [
        (name, 200.0) for name in nodes[:8]
    ]


@pytest.mark.long
def test_a_measurement_that_failed_has_a_problem_and_no_bandwidth() -> None:
    rows = table(measured(FAULTS["two nodes that reckon wrong together"]))
    wrong = next(row for row in rows if row["pair"] == str(LINK))
    assert (wrong["busbw_gb_per_s"], wrong["share_of_normal"]) == ("", "")
    assert (wrong["correct"], wrong["problem"]) == ("no", "3 values are wrong")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r\n=cmd|' /C calc'!A0", "＝1"])
def test_no_cell_of_the_table_is_a_formula(name: str) -> None:
    renamed = named("n0003", name)
    (campaign,) = renamed.campaigns
    first = campaign.journal.measurements[0]
    reading = replace(first.reading, network=name, problem=name)
    journal = replace(campaign.journal, measurements=(replace(first, reading=reading), *campaign.journal.measurements))
    text = measurements_csv(run(PairwiseRun((replace(campaign, journal=journal),)))) or ""
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@", "＝"))]
    assert len(text.splitlines()) == len(journal.measurements) + 1


def test_the_table_is_there_only_where_pairs_were_measured(tmp_path: Path) -> None:
    write_report(tmp_path, run(measured(HEALTHY)))
    assert (tmp_path / "pairs.csv").read_text().startswith("pair,a,b,round,")
    write_report(tmp_path, run(None))
    assert not (tmp_path / "pairs.csv").exists()


@pytest.mark.long
def test_redacted_reports_of_a_recording_name_no_node_and_no_place(tmp_path: Path) -> None:
    names = [f"secretnode{number:02d}" for number in range(4)]
    cluster = recorded(tmp_path / "recording", [node(name, boot=boot(hostname=f"{name}-hidden")) for name in names])
    silent = replace(Reading(), problem="secretnode02-hidden fell silent", culprit="n0002")

    def dead(there: Simulated) -> None:
        there.racks = {name: f"secret{number // 2}" for number, name in enumerate(there.nodes)}

    def fails(measurement: Measurement) -> Measurement:
        return replace(measurement, reading=silent) if "n0002" in measurement.pair else measurement

    write_recording(PairFault("a dead one", dead, fails, nodes=len(names)), tmp_path / "recording", names)
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pytest.toml"), "-q"]
    command += ["-p", "no:cacheprovider", str(ROOT / "checks/perf/test_pairwise.py"), "-m", "perf"]
    command += ["--cluster", cluster, "--redact", "--report", "out"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert not [name for name, text in {**files, "terminal": ran.stdout}.items() if "secret" in text]
    assert "node1~node2" in files["pairs.csv"]
    assert "node3 fell silent" in files["pairs.csv"]
    assert "place-2" in files["report.html"]


def test_the_map_has_the_places_of_all_kinds_of_nodes_that_were_measured() -> None:
    (campaign,) = measured(HEALTHY).campaigns
    of_each = [
        replace(campaign, journal=replace(campaign.journal, plan=replace(campaign.journal.plan, places=where)))
        for where in ({"n0000": "rack1", "n0001": "rack1"}, {"n0002": "rack2", "n0003": "rack2"})
    ]
    known = {kind: (names, numbers[:4]) for kind, names, numbers in places(run(PairwiseRun(tuple(of_each))))}
    assert known["place"] == (["rack1", "rack2"], [0, 0, 1, 1])
