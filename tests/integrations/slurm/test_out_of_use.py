"""Findings on a node that somebody has taken out of service: whoever resumes it by hand has examined it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.integrations.slurm.control import parse_node
from tests.integrations.slurm.histories import History


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A node on which a health check has found nothing."""
    history = History(tmp_path, monkeypatch)
    history.health_check()
    return history


def test_an_xid_of_a_node_that_was_drained_by_hand_drains_no_more_once_it_is_resumed(node: History) -> None:
    node.prolog("41")
    node.log(xid=True)
    node.by_hand("DRAIN")
    node.health_check()
    node.resume()
    node.epilog("41")
    node.health_check()
    assert node.drains == []


def test_what_a_job_met_on_a_node_that_was_drained_by_hand_drains_no_more_once_it_is_resumed(node: History) -> None:
    node.prolog("41")
    node.prolog("42")
    node.log(xid=True)
    node.by_hand("DRAIN")
    node.epilog("41")
    node.health_check()
    node.resume()
    node.epilog("42")
    assert node.drains == ["epilog 41"]


@pytest.mark.parametrize(
    ("state", "by", "returns", "drains"),
    [
        ("DOWN", "root", "0", []),
        ("DOWN", "root", "1", []),
        ("DOWN", "root", "2", ["health-check"]),
        ("DOWN+NOT_RESPONDING", "root", "1", ["health-check"]),
        ("DRAIN+DOWN+NOT_RESPONDING", "root", "2", []),
        ("DOWN", "slurm", "1", ["health-check"]),
        ("DOWN", "", "1", ["health-check"]),
    ],
    ids=[
        "an administrator",
        "an administrator, as a node that did not respond returns",
        "any returns by itself",
        "it does not respond, with the reason of before",
        "drained by an administrator",
        "Slurm",
        "nobody says who",
    ],
)
def test_a_node_that_is_down_is_looked_at_where_it_stays_so_until_an_administrator_takes_it_back(
    node: History, state: str, by: str, returns: str, drains: list[str]
) -> None:
    node.log(xid=True)
    node.returns = returns
    node.by_hand(state, by)
    node.health_check()
    node.resume()
    node.health_check()
    assert node.drains == drains


@pytest.mark.parametrize("state", ["DOWN*", "DOWN+NOT_RESPONDING"])
def test_a_star_says_that_a_node_does_not_respond(state: str) -> None:
    assert parse_node(f"NodeName=gpu001\n   State={state}\n").flags == {"DOWN", "NOT_RESPONDING"}
