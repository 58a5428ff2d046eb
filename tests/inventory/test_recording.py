"""Recorded clusters: read back as written, and broken ones named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached, load, to_json
from clusterproof.plugins.evidence.recording import (
    begin_recording,
    read_cluster,
    read_control_plane,
    recording_file,
    write_cluster,
    write_control_plane,
    write_node,
)
from clusterproof.plugins.inventory import narrow, resolve
from clusterproof.plugins.transport.gather import replay
from tests.inventory.refused import refusal

RECORDED = Cluster(
    "prod",
    "ssh",
    (
        Target("gpu001", "10.0.0.1", group="train", instance_type="p5.48xlarge", expect={"gpus": 8}),
        Target("a name / of its own"),
    ),
    {"identity_file": "/home/x/secret"},
)


def test_a_recorded_cluster_is_read_back_as_a_replay(tmp_path: Path) -> None:
    write_cluster(tmp_path / "new", RECORDED)
    assert resolve(f"replay:{tmp_path}/new") == Cluster(
        "prod", "replay", RECORDED.targets, {"recording": f"{tmp_path}/new", "recorded_by": "ssh", "ec2": "by evidence"}
    )
    assert "secret" not in (tmp_path / "new" / "cluster.json").read_text()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cluster.json"]


def test_a_recording_of_some_nodes_says_that_there_are_more(tmp_path: Path) -> None:
    write_cluster(tmp_path / "whole", RECORDED)
    write_cluster(tmp_path / "part", narrow(RECORDED, exclude="gpu001"))
    assert [resolve(f"replay:{tmp_path}/{name}").is_part for name in ("whole", "part")] == [False, True]


@pytest.mark.parametrize(
    ("detail", "too_long"),
    [
        ("the answer is longer than its connection carries", True),
        ("its answer is longer than the 24,000 characters that SSM shows; give --ssm-output s3://BUCKET", True),
        ("its program, 2 of 2, was not answered: timed out", False),
    ],
)
def test_a_recording_from_before_an_answer_was_said_to_be_too_long_says_it_in_words(
    detail: str, too_long: bool
) -> None:
    record = to_json(NodeEvidence("n", {"nvml": Collected(Status.CUT, detail=detail)}))
    del record["collectors"]["nvml"]["too_long"]
    assert load(json.dumps(record)).collectors["nvml"].too_long is too_long


@pytest.mark.parametrize("too_long", [True, False])
def test_that_an_answer_was_too_long_is_kept_whatever_its_words_are(too_long: bool) -> None:
    evidence = NodeEvidence("n", {"nvml": Collected(Status.CUT, detail="that SSM shows", too_long=too_long)})
    assert load(json.dumps(to_json(evidence))) == evidence


def test_a_node_says_that_its_answer_was_too_long_by_a_value_and_the_words_are_made_here() -> None:
    answer = {"schema": 2, "node": "n", "collectors": {"nvml": {"status": "cut", "too_long": True, "seconds": 1.0}}}
    assert load(json.dumps(answer)).collectors["nvml"] == Collected(
        Status.CUT, detail="the answer is longer than its connection carries", seconds=1.0, too_long=True
    )


def test_a_recorded_node_lies_under_its_own_file(tmp_path: Path) -> None:
    evidence = NodeEvidence("a name / of its own", detail="\ud800 half a character")
    write_node(tmp_path, evidence)
    assert load((tmp_path / "nodes" / recording_file(evidence.node)).read_bytes()) == evidence


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gpu-001_a.b", "gpu-001_a.b.json"),
        ("..", "%2E..json"),
        (".hidden", "%2Ehidden.json"),
        ("a/b", "a%2Fb.json"),
        ("a%2Fb", "a%252Fb.json"),
        ("a~b", "a%7Eb.json"),
        ("ä", "%C3%A4.json"),
        ("", "%.json"),
    ],
)
def test_a_node_name_becomes_a_safe_file_name(name: str, file: str) -> None:
    assert recording_file(name) == file


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_each_name_has_a_file_of_its_own_on_any_file_system(names: list[str]) -> None:
    first, second = map(recording_file, names)
    assert first != second
    assert all(len(file) <= 240 and file.isascii() and "/" not in file and file[0] != "." for file in (first, second))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is a list; expected a table"),
        ({"schema": 2}, "schema is 2; expected 1"),
        ({"schema": 1}, "has no nodes"),
        ({"schema": 1, "nodes": {}}, "nodes is a table; expected a list"),
        ({"schema": 1, "nodes": [{}]}, "nodes 1 has no name"),
        ({"schema": 1, "nodes": [{"name": "a"}]}, "has no cluster"),
        ({"schema": 1, "cluster": "c", "nodes": [{"name": "a"}, {"name": "a"}]}, "has the node 'a' twice"),
        ({"schema": 1, "cluster": "c", "nodes": [{"name": "a", "expect": {"gpus": "8"}}]}, "gpus is text"),
    ],
)
def test_a_broken_recording_is_one_line_that_says_where(tmp_path: Path, record: object, message: str) -> None:
    (tmp_path / "cluster.json").write_text(record if isinstance(record, str) else json.dumps(record))
    assert message in refusal(f"replay:{tmp_path}")


def test_a_recording_has_nothing_that_its_nodes_answered_to_an_older_run(tmp_path: Path) -> None:
    write_cluster(tmp_path, RECORDED)
    for target in RECORDED.targets:
        write_node(tmp_path, NodeEvidence(target.name))
    write_control_plane(tmp_path, NodeEvidence("prod", detail="of then"))
    begin_recording(tmp_path, RECORDED)
    assert {each.unreached for each in replay(tmp_path, RECORDED).values()} == {Unreached.UNRECORDED}
    assert read_control_plane(tmp_path, "prod") == NodeEvidence("prod")


def test_a_recording_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    write_cluster(tmp_path, RECORDED)
    unwritable = Cluster("c", "ssh", (Target("a", expect={"gpus": object()}),))  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        write_cluster(tmp_path, unwritable)
    assert read_cluster(tmp_path).name == "prod"
