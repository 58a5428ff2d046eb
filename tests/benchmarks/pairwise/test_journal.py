"""A campaign's file: each measurement is in it at once, and any other file is rejected in one line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.pairwise.groups import plan_groups
from clusterproof.plugins.benchmarks.pairwise.journal import SCHEMA, Journal, JournalError, JournalWriter, read, write
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, next_round
from clusterproof.plugins.evidence.pairs import Failure, GroupMeasurement, Measurement, Reading, pair
from tests.benchmarks.pairwise.measured import Cluster, measured, names, racks
from tests.builders.examples import examples

PLAN = PairPlan(
    names(8),
    racks(names(8), 4),
    0.05,
    seed=7,
    asked=(pair("n000", "n001"),),
    absent=frozenset({"n007"}),
    first_rounds=3,
)
READINGS = (
    Reading(problem="iperf3 is missing", failure=Failure.NO_PROGRAM),
    Reading(48.5, 26.0, 1234.5, 1 << 30, True, "efa, 32 devices", seconds=12.5, ranks=16, hosts=("ip-1", "ip-2")),
    Reading(48.5, is_correct=False),
    Reading(problem="did not end in its time", culprit="n001"),
)
JOURNAL = Journal(
    PLAN,
    {"meter": "nccl-tests", "size_bytes": 1 << 30},
    {"n007": "does not answer"},
    tuple(
        Measurement(pair("n000", f"n00{number}"), number, 4, reading)
        for number, reading in enumerate(READINGS, start=1)
    ),
    "nothing",
)


GROUP = plan_groups("4", names(8)[:5], PLAN.places).groups[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path for a campaign's file."""
    return tmp_path / "pairwise.jsonl"


@pytest.mark.parametrize(
    "journal",
    [
        JOURNAL,
        replace(JOURNAL, ended=None),
        replace(JOURNAL, ended="", measurements=()),
        Journal(PairPlan(names(3), {}, 0.05, is_full=True)),
        replace(
            JOURNAL,
            group_plan=plan_groups("4,all,99", names(8)[:5], PLAN.places, 8),
            groups=tuple(GroupMeasurement(GROUP, 2, reading) for reading in READINGS),
        ),
    ],
    ids=["whole", "broken off", "nothing measured", "all pairs", "groups"],
)
def test_what_is_written_is_read_again(path: Path, journal: Journal) -> None:
    write(path, journal)
    assert read(path) == journal


def test_a_run_that_goes_on_behind_its_end_has_not_ended(path: Path) -> None:
    write(path, JOURNAL)
    writer = JournalWriter(path, JOURNAL)
    writer.groups_planned(plan_groups("4", names(8)[:5], PLAN.places))
    writer.close()
    assert read(path).ended is None


def test_every_measurement_is_in_the_file_as_soon_as_it_is_written(path: Path) -> None:
    writer = JournalWriter(path, replace(JOURNAL, measurements=(), ended=None))
    for number, measurement in enumerate(JOURNAL.measurements, start=1):
        writer.measured(measurement)
        assert read(path).measurements == JOURNAL.measurements[:number]
    writer.close()


def test_every_line_is_forced_to_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda _file: synced.append(len(path.read_text().splitlines())))
    write(path, replace(JOURNAL, plan=replace(PLAN, first_rounds=None)))
    assert synced == [1, 2, 3, 4, 5, 6]


def test_a_line_that_was_cut_is_as_if_it_had_not_been_there(path: Path) -> None:
    write(path, JOURNAL)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    before_last = len(b"".join(lines[:-2]))
    for end in range(before_last + 1, before_last + len(lines[-2]) - 1):
        path.write_bytes(whole[:end])
        assert read(path).measurements == JOURNAL.measurements[:-1], whole[before_last:end]


def test_a_file_with_a_cut_line_is_gone_on_with(path: Path) -> None:
    write(path, replace(JOURNAL, ended=None))
    path.write_bytes(path.read_bytes()[:-20])
    writer = JournalWriter(path, JOURNAL)
    writer.measured(JOURNAL.measurements[-1])
    writer.close()
    assert read(path) == replace(JOURNAL, ended=None)


def test_a_writer_makes_the_folders_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "one/two/pairwise.jsonl"
    JournalWriter(path, JOURNAL).close()
    assert read(path).plan == replace(PLAN, first_rounds=None)


@examples(15)
@given(st.integers(2, 12), st.integers(0, 1000), st.data())
def test_a_campaign_that_was_broken_off_anywhere_repeats_nothing_and_comes_to_the_same_end(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, data: st.DataObject
) -> None:
    plan = PairPlan(names(count), {}, 0.05, seed=seed)
    whole = measured(plan, Cluster(nodes={"n001": 0.8}, seed=seed))
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("resumed") / "pairwise.jsonl"
    write(path, Journal(plan, measurements=tuple(whole[:cut])))
    raw = list(read(path).measurements)
    assert raw == whole[:cut]
    readings = {(measurement.pair, measurement.round): measurement for measurement in whole}
    while True:
        number, pairs = next_round(plan, raw)
        if not pairs:
            break
        assert not {(measurement.pair, measurement.round) for measurement in raw} & {(ends, number) for ends in pairs}
        raw += [readings[ends, number] for ends in pairs]
    assert raw == whole


HEADER: dict[str, object] = {
    "schema": SCHEMA,
    "nodes": ["a", "b", "c"],
    "places": {},
    "min_effect": 0.05,
    "is_full": False,
    "asked": [],
    "seed": 0,
    "absent": {},
    "about": {},
}
KEY = {"instance_type": "", "efa": 0, "nodes": 2, "ranks_per_node": 8, "collective": "all_reduce", "size_bytes": 8}
MEASURED = {"pair": ["a", "b"], "round": 0, "at_once": 1, "reading": {"busbw_gb_per_s": 1.0}}
OF_GROUP = {"group": ["a", "b", "c"], "at_once": 1, "reading": {"busbw_gb_per_s": 1.0}}


def without(raw: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in raw.items() if name != key}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "its first line is not a plan"),
        ("hello", "its first line is not a plan"),
        ("[]", "its first line is not a plan"),
        ("null", "its first line is not a plan"),
        ("[" * 5000, "its first line is not a plan"),
        (json.dumps({"schema": 1}), "schema 1 is not 'clusterproof pairs 1'"),
        (json.dumps({**HEADER, "schema": "x" * 500}), "is not 'clusterproof pairs 1'"),
        *((json.dumps(without(HEADER, key)), f"'{key}'") for key in HEADER),
        (json.dumps({**HEADER, "nodes": [1, 2]}), "expected texts"),
        (json.dumps({**HEADER, "asked": [["a"]]}), "its first line is not a plan"),
        (json.dumps({**HEADER, "min_effect": "much"}), "its first line is not a plan"),
        *((json.dumps({**HEADER, "min_effect": x}), f"min_effect is {x}") for x in (math.nan, math.inf, 0.0, -1.0)),
        (json.dumps({**HEADER, "about": {"meter": ["iperf3"]}}), "about: meter is ['iperf3']"),
        (json.dumps({**HEADER, "about": {"stack": 5}}), "its first line is not a plan"),
        (json.dumps({**HEADER, "about": {"stack": {"driver": 5}}}), "about: stack: driver is 5"),
        *(
            (json.dumps({**HEADER, "about": {"key": {**KEY, name: ["x"]}}}), f"about: key: {name} is ['x']")
            for name in KEY
        ),
    ],
    ids=lambda value: value[:30],
)
def test_a_file_that_is_no_campaign_is_reported_in_one_line(path: Path, header: str, message: str) -> None:
    path.write_text(header + "\n")
    raw = problem_of(path)
    assert message in raw
    assert raw.endswith("expected a pairwise.jsonl that a run wrote")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({**MEASURED, "pair": ["a", "z"]}, "a~z is not a pair of its nodes"),
        ({**MEASURED, "pair": ["a", "b", "a"]}, "too many values"),
        ({**MEASURED, "pair": [1, 2]}, "expected texts"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": -1.0}}, "-1.0 is not a bandwidth"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": 1e30}}, "1e+30 is not a bandwidth"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": 5e-324}}, "5e-324 is not a bandwidth"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": float("nan")}}, "nan is not a bandwidth"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": "fast"}}, "'fast' is not a value of busbw_gb_per_s"),
        ({**MEASURED, "reading": {"busbw_gb_per_s": True}}, "True is not a value of busbw_gb_per_s"),
        ({**MEASURED, "reading": {"colour": "red"}}, "a reading has no 'colour'"),
        ({**MEASURED, "reading": {"problem": ["no", "text"]}}, "is not a value of problem"),
        ({**MEASURED, "reading": 3}, "expected a measurement"),
        ({**MEASURED, "round": "first"}, "'first'"),
        ({**MEASURED, "round": -1}, "-1 is not a round"),
        ({**MEASURED, "at_once": 0}, "0 at once is impossible"),
        ({**OF_GROUP, "at_once": True}, "True at once is impossible"),
        ({**OF_GROUP, "group": ["a", "b"]}, "a group of 2"),
        *(
            ({**OF_GROUP, "group": group}, "its nodes are not in the plan, or not once")
            for group in (["a", "b", "b"], ["a", "b", "z"], "abc", {"a": 1, "b": 1, "c": 1}, None)
        ),
        ({**OF_GROUP, "group": [1, 2, 3]}, "expected texts"),
        ({"groups": "abc", "most_nodes": 8, "left_out": ""}, "its nodes are not in the plan, or not once"),
        ({"groups": [["a", "b", "z"]], "most_nodes": 8, "left_out": ""}, "its nodes are not in the plan, or not once"),
        ({"groups": [["a", "b"]], "most_nodes": 8, "left_out": ""}, "a group of 2"),
        ({"groups": [], "most_nodes": "many", "left_out": ""}, "expected a measurement"),
        ({**OF_GROUP, "at_once": 0}, "0 at once is impossible"),
        (without(OF_GROUP, "reading"), "'reading'"),
        ({"first_rounds": None}, "expected a measurement"),
        (without(MEASURED, "reading"), "'reading'"),
    ],
    ids=str,
)
def test_a_line_that_is_no_measurement_is_reported_with_its_number(path: Path, line: object, message: str) -> None:
    path.write_text(json.dumps(HEADER) + "\n" + json.dumps(MEASURED) + "\n" + json.dumps(line) + "\n")
    raw = problem_of(path)
    assert raw.startswith(f"{path}:3: ")
    assert message in raw


@pytest.mark.parametrize("line", ["3", "null", '"text"', "[1]"])
def test_a_line_of_json_that_is_no_object_is_reported(path: Path, line: str) -> None:
    path.write_text(json.dumps(HEADER) + "\n" + line + "\n" + json.dumps(MEASURED) + "\n")
    assert problem_of(path).startswith(f"{path}:2: ")


def test_a_file_that_is_not_there_is_reported(path: Path) -> None:
    assert problem_of(path) == f"{path}: No such file or directory; expected a pairwise.jsonl that a run wrote"


def test_bytes_that_are_no_text_are_reported(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{}")
    assert problem_of(path) == f"{path}: byte 0 is not UTF-8; expected a pairwise.jsonl that a run wrote"


def problem_of(path: Path) -> str:
    with pytest.raises(JournalError) as raised:
        read(path)
    raw = str(raised.value)
    assert "\n" not in raw
    assert len(raw) < len(str(path)) + 200
    return raw


@given(st.binary(max_size=300))
def test_whatever_the_file_holds_it_is_a_campaign_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    for before in (b"", json.dumps(HEADER).encode() + b"\n"):
        path.write_bytes(before + content)
        try:
            journal = read(path)
        except JournalError:
            continue
        assert journal.plan.nodes == ("a", "b", "c")
