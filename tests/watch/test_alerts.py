"""Alerts arrive although everything between a watch and its receiver fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.alerts import chaos, judged


@pytest.mark.long
def test_no_alert_is_lost_or_comes_out_of_order_while_all_goes_wrong() -> None:
    counts = chaos(4.0, 11)
    assert counts.pop("alerts")
    assert counts == {"lost": 0, "reordered": 0, "doubled_without_id": 0}


@pytest.mark.parametrize(
    ("taken", "seen"),
    [
        ([("1", "opened"), ("2", "closed"), ("3", "opened")], {}),
        ([("1", "opened"), ("1", "opened"), ("2", "closed"), ("1", "opened"), ("3", "opened")], {}),
        ([("1", "opened"), ("2", "closed")], {"lost": 1}),
        ([("2", "closed"), ("1", "opened"), ("3", "opened")], {"reordered": 1}),
        ([("1", "opened"), ("2", "closed"), ("3", "opened"), ("4", "opened")], {"doubled_without_id": 1}),
        ([], {"lost": 3}),
    ],
)
def test_what_is_lost_reordered_or_doubled_is_counted(taken: Sequence[tuple[str, str]], seen: dict[str, int]) -> None:
    every = [{"id": name, "kind": kind, "findings": [{"node": "a"}]} for name, kind in taken]
    none = {"lost": 0, "reordered": 0, "doubled_without_id": 0}
    assert judged({"a": ["opened", "closed", "opened"]}, every) == {**none, **seen}
