"""Which node a failure is attributed to."""

from __future__ import annotations

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign, attributed
from clusterproof.plugins.benchmarks.launchers.client_server import reading_of
from clusterproof.plugins.benchmarks.launchers.visit import NodeAnswer, not_reached, read, silenced
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Failure, NodeGroup, Pair, Reading
from clusterproof.plugins.suite.perf.pairs_planning import LAUNCHERS
from clusterproof.plugins.transport import Answer, Unusable
from tests.benchmarks.launchers.launched import PATIENT, all_reduce, cluster_of, measured

ROUND = [Pair("gpu-1", "gpu-2")]
CALLED = {"gpu-1": ["ip-10-0-0-1", "10.0.0.1"], "gpu-2": ["ip-10-0-0-2.ec2.internal"]}


@pytest.mark.parametrize(
    ("culprit", "node"),
    [
        ("gpu-1", "gpu-1"),
        ("ip-10-0-0-1", "gpu-1"),
        ("ip-10-0-0-1.ec2.internal", "gpu-1"),
        ("ip-10-0-0-2", "gpu-2"),
        ("10.0.0.1", "gpu-1"),
        ("10.0.0.2", ""),
        ("gpu-3", ""),
        ("", ""),
    ],
)
def test_a_culprit_has_the_name_that_the_cluster_has_for_it(culprit: str, node: str) -> None:
    assert attributed(Reading(problem="NCCL failure", culprit=culprit), CALLED).culprit == node


SILENT = NodeAnswer("timed out")
TAKEN = read(Answer(unreached=Unreached.BUSY, detail="8 of 8 nvidia.com/gpu by ml/train-0"), "nonce")


@pytest.mark.parametrize(
    ("unreached", "node", "failure"),
    [
        ({"gpu-1": SILENT}, "gpu-1", None),
        ({"gpu-1": SILENT, "gpu-2": SILENT}, "", None),
        ({"gpu-1": TAKEN}, "", Failure.NOT_AT_FAULT),
        ({"gpu-1": TAKEN, "gpu-2": SILENT}, "", Failure.NOT_AT_FAULT),
    ],
)
def test_one_unreached_node_is_at_fault_and_none_that_was_unavailable(
    unreached: dict[str, NodeAnswer], node: str, failure: Failure | None
) -> None:
    reading = not_reached(unreached)
    assert (reading.culprit, reading.failure) == (node, failure)
    for answer in unreached.values():
        alike = fold(name for name, other in unreached.items() if other is answer)
        assert f"{alike} was not reached: {answer.unreached}" in reading.problem


@pytest.mark.parametrize("why", Unreached)
def test_a_node_is_at_fault_as_far_as_what_kept_it_from_answering_speaks_against_it(why: Unreached) -> None:
    answer = read(Answer(unreached=why, detail="so"), "nonce")
    assert answer.is_at_fault is unreached_rows()[why.value].speaks_against_node


def of_group(**answers: NodeAnswer) -> Reading:
    """What the answers of a group come to, where those of others are well."""
    made = MeterCampaign(all_reduce(), MeterSettings(), cluster_of({}, "ssh"), PATIENT)
    group = NodeGroup(("n1", "n2", "n3", "n4"))
    return reading_of(made, group, {**dict.fromkeys(group, NodeAnswer(is_lost=True)), **answers})


def test_of_a_group_nodes_that_only_waited_for_another_are_not_named_beside_it() -> None:
    late = NodeAnswer("nothing came within 5 s after n2 had ended", is_late=True)
    reading = of_group(n1=late, n2=SILENT, n4=late)
    assert (reading.problem, reading.culprit) == ("n2 did not answer: timed out", "")
    alike = of_group(n1=SILENT, n2=SILENT, n3=SILENT)
    assert (alike.problem, alike.culprit) == ("n[1-3] did not answer: timed out", "")
    assert of_group(n3=late).culprit == "n3"
    assert of_group().problem == "n[1-4] lost touch of each other in mid-run"


def test_of_a_group_that_does_not_meet_the_client_says_with_whom() -> None:
    none = NodeAnswer(unmet="the other node did not connect")
    reading = of_group(n1=none, n2=none, n3=none, n4=NodeAnswer(unmet="n2 cannot be reached on port 20000 (…)"))
    assert reading.problem.startswith(
        "n4: n2 cannot be reached on port 20000 (…); expected that nodes reach each other"
    )


def test_a_port_that_a_user_has_taken_is_no_evidence_against_the_node() -> None:
    taken = NodeAnswer(unmet="port 20001 is taken", is_port_taken=True)
    reading = of_group(n2=taken, n4=NodeAnswer(unmet="n2 cannot be reached on port 20000 (…)"))
    assert reading.problem == "n2: port 20001 is taken; expected a free port"
    assert (reading.culprit, reading.failure) == ("n2", Failure.NOT_AT_FAULT)


def test_a_node_that_is_taken_when_it_is_cleaned_up_says_nothing_of_the_network() -> None:
    reading = silenced(Reading(problem="it ended with 1"), {"gpu-2": TAKEN}, Pair("gpu-1", "gpu-2"))
    assert reading.failure is Failure.NOT_AT_FAULT


def test_what_programs_say_when_they_are_ended_from_outside_names_no_culprit() -> None:
    reading = Reading(problem="srun: error: gpu-1: task 0: Terminated", culprit="gpu-1")
    assert attributed(reading, CALLED, was_ended=True).culprit == ""


@pytest.mark.parametrize(
    ("silent", "culprit"),
    [({}, "gpu-1"), ({"gpu-2": SILENT}, "gpu-2"), ({"gpu-1": SILENT, "gpu-2": SILENT}, "gpu-1")],
)
def test_a_node_that_is_silent_alone_is_at_fault_whatever_the_other_says(
    silent: dict[str, NodeAnswer], culprit: str
) -> None:
    reading = silenced(Reading(problem="it ended with 1", culprit="gpu-1"), silent, Pair("gpu-1", "gpu-2"))
    assert reading.culprit == culprit
    assert all(f"{node} does not answer any more: timed out" in reading.problem for node in silent)


def test_a_measurement_is_one_even_if_a_node_is_silent_since() -> None:
    both = Pair("gpu-1", "gpu-2")
    assert silenced(Reading(busbw_gb_per_s=1.0), {"gpu-2": SILENT}, both) == Reading(busbw_gb_per_s=1.0)


def test_a_node_of_a_group_that_is_silent_afterwards_is_reported_and_not_at_fault() -> None:
    group = NodeGroup(("gpu-1", "gpu-2", "gpu-3"))
    reading = silenced(
        Reading(problem="it did not end in its time"), {"gpu-2": NodeAnswer("no answer within 15 s")}, group
    )
    assert reading.culprit == ""
    assert "gpu-2 does not answer any more: no answer within 15 s" in reading.problem


@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_settings_that_a_meter_does_not_take_are_refused_before_anything_starts(name: str) -> None:
    def ranks(settings: MeterSettings) -> str:
        raise ValueError(f"{settings.collective!r} is not a collective; expected all_reduce")

    meter = Meter("nccl-tests", all_reduce().read, ranks=ranks)
    settings = MeterSettings(collective="all_reduse")
    with pytest.raises(Unusable, match="nccl-tests: 'all_reduse' is not a collective; expected all_reduce"):
        LAUNCHERS[name](MeterCampaign(meter, settings, cluster_of({}, "local"), PATIENT))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"job": "7", "is_ours": True, "refused": [], "addresses": {}},
        {"job": "7", "is_ours": True, "refused": {}, "addresses": "gpu-1"},
        {"job": "7", "is_ours": True, "refused": {}, "addresses": {"gpu-1": None}},
        {"job": "7", "refused": {}, "addresses": {}},
    ],
    ids=["nothing", "a list", "a text", "no addresses", "nobody's"],
)
def test_a_submit_host_that_answers_in_another_form_is_reported_in_one_line(
    answer: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.benchmarks.launchers.srun.ask_submit_host", lambda *_: answer)
    with pytest.raises(Unusable, match="this host: its answer does not have its form"):
        measured(
            LAUNCHERS["srun"](MeterCampaign(all_reduce(), MeterSettings(), cluster_of({}, "local"), PATIENT)), ROUND
        )


RESERVED = {"job": "7", "is_ours": True, "addresses": {}, "mpi": {"config": "", "listed": ""}}


@pytest.mark.parametrize(
    ("refused", "problem", "culprit"),
    [
        ({"gpu-2": "busy: Slurm reports it as ALLOCATED"}, "gpu-2 was not reached: busy: Slurm reports it as", "gpu-2"),
        ({}, "the submit host does not answer", ""),
    ],
)
def test_what_slurm_does_not_give_or_start_is_no_fault_of_the_node(
    refused: dict[str, str], problem: str, culprit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> dict[str, object]:
        if not asking:
            raise Unusable("the submit host does not answer")
        return asking.pop()

    asking: list[dict[str, object]] = [{**RESERVED, "refused": refused}]
    monkeypatch.setattr("clusterproof.plugins.benchmarks.launchers.srun.ask_submit_host", asked)
    launcher = LAUNCHERS["srun"](MeterCampaign(all_reduce(), MeterSettings(), cluster_of({}, "local"), PATIENT))
    readings: list[Reading] = []
    launcher.measure(ROUND, lambda _, reading: readings.append(reading))
    (reading,) = readings
    assert (reading.failure, reading.culprit) == (Failure.NOT_AT_FAULT, culprit)
    assert reading.problem.startswith(problem)
