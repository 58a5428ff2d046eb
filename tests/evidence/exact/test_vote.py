"""A vote of GPUs on their training steps: one result that nobody else has is wrong, two camps are software."""

from __future__ import annotations

import pytest

from clusterproof.plugins.evidence.exact.facts_step import Opinion, opinion

AGREES, WRONG, EITHER = Opinion.AGREES, Opinion.WRONG, Opinion.EITHER
SOFTWARE, UNKNOWN = Opinion.SOFTWARE, Opinion.UNKNOWN


@pytest.mark.parametrize(
    ("own", "votes", "said"),
    [
        ("a", {"a": 8}, AGREES),
        ("a", {"a": 7, "b": 1}, AGREES),
        ("b", {"a": 7, "b": 1}, WRONG),
        ("b", {"a": 6, "b": 1, "c": 1}, WRONG),
        ("b", {"a": 2, "b": 1}, WRONG),
        ("b", {"a": 4, "b": 4}, SOFTWARE),
        ("a", {"a": 4, "b": 4}, SOFTWARE),
        ("b", {"a": 6, "b": 2}, SOFTWARE),  # two GPUs do not go wrong in the same way
        ("a", {"a": 1, "b": 1, "c": 1}, SOFTWARE),
        ("a", {"a": 1}, UNKNOWN),
        ("a", {"a": 1, "b": 1}, UNKNOWN),
        ("a", {}, UNKNOWN),
    ],
)
def test_who_differs_is_named_by_vote(own: str, votes: dict[str, int], said: Opinion) -> None:
    assert opinion(own, votes, ["a"]) is said


@pytest.mark.parametrize(
    ("beside", "said"),
    [(["a"], WRONG), (["c", "a"], WRONG), ([], EITHER), (["c"], EITHER), (["b"], EITHER)],
)
def test_a_gpu_is_wrong_only_where_another_of_its_node_has_what_most_have(beside: list[str], said: Opinion) -> None:
    assert opinion("b", {"a": 6, "b": 1, "c": 1}, beside) is said
