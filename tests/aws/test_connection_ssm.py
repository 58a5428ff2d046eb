"""SendCommand to many instances at once, and fetching each answer."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status, Unreached
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.transport import Answer, Program
from clusterproof.plugins.transport.ssm import MAX_INSTANCES, MIN_DELIVERY_S, Ssm
from tests.aws.send_command import LIMITS, gathered, targets
from tests.aws.service import DENIED, Service
from tests.aws.service import Answer as Refusal
from tests.aws.systems_manager import SystemsManager, here
from tests.builders.probed import padded, reported


def test_instances_answer(manager: SystemsManager) -> None:
    answers = gathered(3)
    assert [evidence.unreached for evidence in answers] == [None] * 3
    assert answers[2].collectors["boot"].value["uptime_s"] > 0


@pytest.mark.parametrize(("fanout", "sizes"), [(64, [20, 50, 50]), (50, [20, 50, 50]), (40, [40, 40, 40])])
def test_a_command_takes_fifty_instances_or_as_many_as_may_be_asked_at_once(
    manager: SystemsManager, fanout: int, sizes: list[int]
) -> None:
    calm = manager.run("", ["/bin/true"])
    manager.run = lambda _target, _words: calm
    gathered(120, replace(LIMITS, fanout=fanout))
    assert sorted(len(command) for command in manager.commands.values()) == sizes


def long_report(folder: Path, count: int, characters: int) -> Mapping[str, NodeEvidence]:
    """Two instances' reports from this many long collectors."""
    return reported("ssm", targets(2), [padded(folder, characters, f"padded_{n}") for n in range(count)], LIMITS)


def test_what_is_too_long_for_one_command_takes_as_many_as_it_needs(manager: SystemsManager, tmp_path: Path) -> None:
    by_name = long_report(tmp_path, 4, 20_000)
    assert [len(command) for command in manager.commands.values()] == [2, 2]
    for evidence in by_name.values():
        read = {name: collector.value for name, collector in evidence.collectors.items() if name != "boot"}
        assert read == {f"padded_{n}": 20_000 for n in range(4)}
        assert evidence.collectors["boot"].value["uptime_s"] > 0


def test_one_collector_that_no_command_takes_is_said_and_costs_no_other(
    manager: SystemsManager, tmp_path: Path
) -> None:
    evidence = long_report(tmp_path, 1, 80_000)["gpu000"]
    assert evidence.collectors["boot"].status is Status.READ
    assert evidence.collectors["padded_0"].status is Status.CUT
    assert re.fullmatch(
        r"its program has \d{5} characters; its connection takes at most 60000", evidence.collectors["padded_0"].detail
    )


def test_a_command_that_ends_without_an_answer_costs_its_own_collectors_alone(
    manager: SystemsManager, tmp_path: Path
) -> None:
    manager.run = lambda target, command: b"" if len(manager.commands) == 1 else here(target, command)
    evidence = long_report(tmp_path, 4, 20_000)["gpu000"]
    silent = {name for name, collector in evidence.collectors.items() if collector.status is Status.CUT}
    assert evidence.unreached is None
    assert set(evidence.collectors) == {"boot", *(f"padded_{n}" for n in range(4))}
    assert 0 < len(silent) < 5
    assert {evidence.collectors[name].detail for name in silent} == {
        "its program, 2 of 2, was not answered: garbled: the answer is empty"
    }


def test_an_instance_that_is_not_reached_is_sent_nothing_more(manager: SystemsManager, tmp_path: Path) -> None:
    manager.refuses = {targets(2)[1].address}
    by_name = long_report(tmp_path, 4, 20_000)
    assert by_name["gpu001"].unreached is Unreached.NOT_CONNECTED
    assert by_name["gpu000"].collectors["padded_3"].value == 20_000
    assert [len(command) for command in manager.commands.values()] == [1, 1]


def test_an_instance_without_its_agent_costs_no_other(manager: SystemsManager, service: Service) -> None:
    states = {targets(3)[0].address: "Online", targets(3)[2].address: "ConnectionLost"}
    listed = [{"InstanceId": instance, "PingStatus": state} for instance, state in states.items()]
    service.serves("DescribeInstanceInformation", lambda _request: {"InstanceInformationList": listed})
    answers = gathered(3)
    assert [evidence.unreached for evidence in answers] == [None, *[Unreached.NOT_CONNECTED] * 2]
    assert "not registered with Systems Manager" in answers[1].detail
    assert answers[2].detail == "Systems Manager says ConnectionLost of its agent; expected Online"


def test_an_instance_that_stops_just_before_the_command_costs_no_other(
    manager: SystemsManager, service: Service
) -> None:
    def all_are_online(request: dict[str, Any]) -> dict[str, Any]:
        return {"InstanceInformationList": [{"InstanceId": one, "PingStatus": "Online"} for one in online]}

    online = [target.address for target in targets(5)]
    service.serves("DescribeInstanceInformation", all_are_online)
    manager.refuses = {online[3]}
    answers = gathered(5)
    assert [evidence.unreached for evidence in answers] == [None, None, None, Unreached.NOT_CONNECTED, None]
    assert "InvalidInstanceId" in answers[3].detail


def test_how_a_command_ended_says_why_nothing_is_known(manager: SystemsManager) -> None:
    ended = {
        "Undeliverable": Unreached.NOT_CONNECTED,
        "ExecutionTimedOut": Unreached.TIMED_OUT,
        "AccessDenied": Unreached.AUTH,
        "Cancelled": Unreached.API,  # by a person; nothing that the node did
        "Terminated": Unreached.API,
    }
    manager.statuses = dict(zip((target.address for target in targets(5)), ended, strict=True))
    assert [evidence.unreached for evidence in gathered(6)] == [*ended.values(), None]


def test_a_run_that_is_interrupted_waits_for_no_command(manager: SystemsManager) -> None:
    first, *others = targets(MAX_INSTANCES + 1)
    manager.statuses = {target.address: "InProgress" for target in others}
    answered: list[str] = []

    def interrupted(target: Target, _answer: Answer) -> None:
        answered.append(target.name)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ssm().run([first, *others], Program("true"), replace(LIMITS, connect_s=0, answer_s=1), interrupted)
    assert answered == [first.name]


def test_a_denied_command_names_the_action(manager: SystemsManager, service: Service) -> None:
    service.says("SendCommand", DENIED)
    (evidence,) = gathered()
    assert evidence.unreached is Unreached.AUTH
    assert "ssm:SendCommand is not allowed" in evidence.detail


def test_a_right_to_see_which_instances_have_answered_that_is_lacked_is_none_of_the_nodes(
    manager: SystemsManager, service: Service
) -> None:
    service.says("ListCommandInvocations", DENIED)
    (evidence,) = gathered()
    assert evidence.unreached is Unreached.AUTH
    assert "ssm:ListCommandInvocations is not allowed" in evidence.detail
    assert service.calls.count("ListCommandInvocations") == 1


def test_a_service_that_never_says_which_instances_have_answered_is_none_of_the_nodes(
    manager: SystemsManager, service: Service
) -> None:
    service.serves("ListCommandInvocations", lambda _request: Refusal(400, "Odd", "It is odd."))
    (evidence,) = gathered(limits=replace(LIMITS, connect_s=2.0 - MIN_DELIVERY_S, answer_s=0.0))  # two seconds
    assert (evidence.unreached, evidence.detail) == (Unreached.API, "ssm:ListCommandInvocations: Odd: It is odd.")


def test_an_instance_that_ends_while_aws_passes_on_the_answer_of_another_is_not_too_late(
    manager: SystemsManager, service: Service
) -> None:
    first, second = (target.address for target in targets(2))
    manager.statuses = {second: "InProgress"}
    passed_on = service.served["GetCommandInvocation"]

    def slowly(request: dict[str, Any]) -> Any:
        if request["InstanceId"] == first:
            time.sleep(3.0)  # AWS throttles, and the call is repeated
            manager.statuses = {second: "Success"}
        return passed_on(request)

    service.serves("GetCommandInvocation", slowly)
    answers = gathered(2, replace(LIMITS, connect_s=2.0 - MIN_DELIVERY_S, answer_s=0.0))  # two seconds
    assert [evidence.unreached for evidence in answers] == [None, Unreached.GARBLED]
    assert answers[1].detail == "the answer is empty"  # of the double, once it has ended


def test_the_time_that_aws_takes_to_accept_a_command_is_not_the_instances(
    manager: SystemsManager, service: Service
) -> None:
    manager.statuses = {targets(1)[0].address: "InProgress"}
    accepted, listed = service.served["SendCommand"], service.served["ListCommandInvocations"]
    looks: list[object] = []

    def slowly(request: dict[str, Any]) -> Any:
        time.sleep(3.0)
        return accepted(request)

    def ended_at_the_second_look(request: dict[str, Any]) -> Any:
        looks.append(request)
        manager.statuses = manager.statuses if len(looks) == 1 else {targets(1)[0].address: "Success"}
        return listed(request)

    service.serves("SendCommand", slowly)
    service.serves("ListCommandInvocations", ended_at_the_second_look)
    (evidence,) = gathered(limits=replace(LIMITS, connect_s=2.5 - MIN_DELIVERY_S, answer_s=0.0))
    assert evidence.unreached is Unreached.GARBLED  # not too late: the double has no answer of it


BROKEN = Refusal(400, "InternalServerError", "An internal error occurred.")
EXPIRED = Refusal(400, "ExpiredTokenException", "The security token included in the request is expired")


@pytest.mark.parametrize("call", ["SendCommand", "GetCommandInvocation"])
@pytest.mark.parametrize(
    ("failure", "unreached"), [(EXPIRED, Unreached.AUTH), (BROKEN, Unreached.API)], ids=["expired", "broken"]
)
def test_a_failure_of_aws_is_none_of_the_nodes(
    manager: SystemsManager, service: Service, call: str, failure: Refusal, unreached: Unreached
) -> None:
    service.serves(call, lambda _request: failure)
    assert {evidence.unreached for evidence in gathered(2)} == {unreached}
    assert not unreached_rows()[unreached.value].speaks_against_node


@pytest.mark.parametrize(
    ("address", "owner", "command"),
    [
        ("i-0123456789abcdef0", "hyperpod-ssm", "aws ssm start-session --target i-0123456789abcdef0"),
        (
            "sagemaker-cluster:a1b2c3d4e5f6_workers-i-0123",
            "hyperpod-ssm",
            "aws ssm start-session --target sagemaker-cluster:a1b2c3d4e5f6_workers-i-0123",
        ),
        ("10.0.0.1", "hyperpod-node-debugger", "ssh 10.0.0.1 true"),
        ("", "hyperpod-node-debugger", "ssh gpu001 true"),
    ],
)
def test_the_owner_of_an_unreached_node_explains_how_it_is_reached(address: str, owner: str, command: str) -> None:
    target = Target("gpu001", address)
    lost = NodeEvidence(target.name, unreached=Unreached.NOT_CONNECTED)
    (node,) = nodes(Cluster("one", "ssm", (target,)), {target.name: lost}).values()
    result = evaluate(node_checks()["node.reachable"], node)
    assert (result.verdict, result.owner, result.evidence) == (Verdict.FAIL, owner, command)
