"""Which nodes a gate evaluates together, and when."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.gate import TRUE, UNKNOWN, Health
from clusterproof.plugins.kubernetes.pods import Pod
from clusterproof.plugins.transport.kubernetes.report_cache import REST_S
from clusterproof.plugins.transport.kubernetes.shares import MAX_NODES, MAX_PAUSE_S, NODE_S, Shares
from tests.kubernetes.agents import LATER, agent, every, names

EVERY_S = 60.0
FIT, LATE = Health(TRUE, "ChecksPassed", "63 checks"), Health(UNKNOWN, "NotReached", "nothing within 105 s")


def divided(count: int, instance_type: str = "p5.48xlarge") -> Shares:
    shares = Shares(EVERY_S)
    if shares.are_unknown(every(count), 0.0):
        shares.divide([Target(name, instance_type=instance_type) for name in names(count)], every(count), 0.0)
    return shares


def evaluate(shares: Shares, agents: dict[str, Pod], at: float, health: Health = FIT, *, is_same: bool = False) -> int:
    """Evaluate what is due at a time; returns the number of shares."""
    due = shares.due_shares(agents, dict.fromkeys(agents, health), at)
    for share in due:
        share.evaluated(agents, at, is_open=False, is_same=is_same)
    return len(due)


def test_a_cluster_in_rest_is_evaluated_once_and_then_seldom() -> None:
    shares, agents = divided(3), every(3)
    minutes = [minute for minute in range(31) if evaluate(shares, agents, 60.0 * minute)]
    assert minutes == [0, REST_S / 60, 2 * REST_S / 60]


@pytest.mark.parametrize(
    "now",
    [
        agent("n0001", is_ready=False, since=LATER),
        agent("n0001", since=LATER),
        None,
    ],
    ids=["an agent is unready", "it was meanwhile", "its pod is gone"],
)
def test_what_is_new_is_evaluated_at_once_and_what_stood_of_that_node_stands_no_more(now: Pod | None) -> None:
    shares, agents = divided(3), every(3)
    evaluate(shares, agents, 0.0)
    changed = {name: pod for name, pod in {**agents, "n0001": now}.items() if pod}
    assert [shares.is_current(name, changed) for name in names(3)] == [True, False, True]
    assert evaluate(shares, changed, 60.0) == 1
    assert [shares.is_current(name, changed) for name in names(3)] == [True, True, True]


def test_a_change_while_nodes_are_evaluated_is_seen_in_the_next_round() -> None:
    shares, agents = divided(2), every(2)
    (share,) = shares.due_shares(agents, {}, 0.0)
    share.evaluated(agents, 0.0, is_open=False, is_same=False)  # by the earlier states
    assert evaluate(shares, {**agents, "n0001": agent("n0001", since=LATER)}, 60.0) == 1


def test_what_was_left_open_is_evaluated_in_each_round() -> None:
    shares, agents = divided(2), every(2)
    for minute in range(3):
        (share,) = shares.due_shares(agents, {}, 60.0 * minute)
        share.evaluated(agents, 60.0 * minute, is_open=True, is_same=True)


@pytest.mark.parametrize("found", [FIT, LATE], ids=["an agent that is unready", "a report that is late"])
def test_what_may_change_at_any_time_is_evaluated_again_and_less_often_while_the_same_is_found(found: Health) -> None:
    shares, agents = divided(1), {"n0000": agent("n0000", is_ready=found is not FIT)}
    minutes = [minute for minute in range(14) if evaluate(shares, agents, 60.0 * minute, found, is_same=minute > 0)]
    assert minutes == [0, 1, 3, 7, 11]
    assert MAX_PAUSE_S == 60.0 * 4


def test_a_node_that_is_not_ready_is_evaluated_when_that_is_known_and_not_again_and_again() -> None:
    shares, agents = divided(1), every(1)
    gone = {"n0000": agent("n0000", is_ready=False, since=LATER, pod_alone=True)}
    evaluate(shares, agents, 0.0)
    assert [evaluate(shares, gone, 60.0 * minute, LATE) for minute in range(1, 6)] == [1, 0, 0, 0, 0]


@pytest.mark.long
def test_a_change_in_a_large_cluster_concerns_one_share() -> None:
    count = 8 * MAX_NODES
    shares, agents = divided(count), every(count)
    first = shares.due_shares(agents, {}, 0.0)
    assert set().union(*(share.names or () for share in first)) == agents.keys()
    assert max(len(share.names or ()) for share in first) <= MAX_NODES
    evaluate(shares, agents, 0.0)
    assert evaluate(shares, agents, 60.0) == 0
    assert evaluate(shares, {**agents, "n0007": agent("n0007", since=LATER)}, 120.0) == 1


@pytest.mark.long
@pytest.mark.parametrize("joins", [True, False])
def test_a_node_that_joins_or_leaves_concerns_one_share(joins: bool) -> None:
    count = 4 * MAX_NODES
    shares, agents = divided(count), every(count)
    evaluate(shares, agents, 0.0)
    others = {**agents, "n0007a": agent("n0007a")} if joins else {k: v for k, v in agents.items() if k != "n0007"}
    assert shares.are_unknown(others, 60.0)
    shares.divide([Target(name) for name in others], others, 60.0)
    assert evaluate(shares, others, 60.0) == 1


def test_nodes_are_asked_for_until_they_have_been_divided_and_again_when_an_agent_is_another() -> None:
    shares, agents = Shares(EVERY_S), every(2 * MAX_NODES)
    assert shares.are_unknown(agents, 0.0)
    assert shares.are_unknown(agents, 60.0)  # the API server did not answer
    shares.divide([Target(name) for name in agents], agents, 60.0)
    assert not shares.are_unknown(agents, 120.0)
    again = {**agents, "n0007": replace(agents["n0007"], name="another")}
    assert shares.are_unknown(again, 180.0)  # the node was created anew under its name


def test_nothing_stands_of_a_node_that_has_left() -> None:
    count = 2 * MAX_NODES
    shares, agents = divided(count), every(count)
    evaluate(shares, agents, 0.0)
    del agents["n0007"]
    shares.divide([Target(name) for name in agents], agents, 60.0)
    assert (shares.has("n0007"), shares.is_current("n0007", agents)) == (False, False)
    assert (shares.has("n0008"), shares.is_current("n0008", agents)) == (True, True)


@pytest.mark.long
def test_where_only_the_time_has_come_not_all_shares_are_evaluated_at_once() -> None:
    count = 8 * MAX_NODES
    shares, agents = divided(count), every(count)
    whole = evaluate(shares, agents, 0.0)
    rest_s = NODE_S * count
    later = [evaluate(shares, agents, rest_s + 60.0 * minute) for minute in range(int(rest_s / 60))]
    assert max(later) == 1
    assert sum(later) == whole


def test_the_trays_of_racks_are_evaluated_together_however_many_there_are() -> None:
    shares = divided(2 * MAX_NODES, "p6e-gb200.36xlarge")
    (share,) = shares.due_shares(every(2 * MAX_NODES), {}, 0.0)
    assert share.names is None


def test_the_instances_of_ultraservers_of_neuron_are_divided_as_no_check_compares_their_domain() -> None:
    shares = divided(2 * MAX_NODES, "trn2u.48xlarge")
    assert len(shares.due_shares(every(2 * MAX_NODES), {}, 0.0)) > 1


def test_a_cluster_that_becomes_small_again_is_one_share() -> None:
    shares, few = divided(2 * MAX_NODES), every(3)
    assert not shares.are_unknown(few, 60.0)
    (share,) = shares.due_shares(few, {}, 60.0)
    assert share.names is None


def test_nodes_are_asked_for_again_where_agents_are_others_and_else_after_a_while() -> None:
    shares, agents = divided(2 * MAX_NODES), every(2 * MAX_NODES)
    assert [shares.are_unknown(agents, at) for at in (60.0, REST_S - 1.0, REST_S)] == [False, False, True]
    assert shares.are_unknown({**agents, "n9999": agent("n9999")}, 60.0)
