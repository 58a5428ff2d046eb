"""Runs over many nodes keep less in memory, and report the same."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.suite import outcomes, run_loop, session
from tests.builders.runs import DEVICES, LIGHT, VERDICTS, Runs, all_verdicts, counts, saying

pytestmark = pytest.mark.any_user


def test_a_check_that_m_leaves_out_has_one_item_for_all_nodes(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_gpus=DEVICES)
    run = runs.over(all_verdicts(), "-m", "prolog")
    assert counts(run)["deselected"] == 1
    assert runs.verdicts == VERDICTS


def test_a_mark_that_another_gives_to_one_node_chooses_it(runs: Runs) -> None:
    runs.checks(
        conftest="""
            import pytest

            @pytest.hookimpl(tryfirst=True)
            def pytest_collection_modifyitems(items):
                for item in items:
                    if "gpu002" in item.name:
                        item.add_marker("perf")
        """,
        test_it=LIGHT,
    )
    runs.over([saying("gpu001", "pass"), saying("gpu002", "bad")], "-m", "perf")
    assert list(runs.verdicts) == ["gpu002"]


def test_a_large_run_says_what_a_small_one_says(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.checks(test_it=LIGHT, test_gpus=DEVICES)
    reported = []
    for most in (1_000, 1):
        monkeypatch.setattr(run_loop, "MANY", most)
        monkeypatch.setattr(session, "MAX_NODES_KEPT_WHOLE", most)
        run = runs.over(all_verdicts(), "-rA")
        lines = [line for line in run.outlines if not line.startswith(("=", "rootdir"))]
        reported.append((lines, [{**record, "duration_s": 0} for record in runs.records]))
    assert reported[0] == reported[1]


@pytest.mark.parametrize("most", [1_000, 1], ids=["small", "large"])
def test_a_run_freezes_no_object_beyond_its_end(runs: Runs, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    runs.checks(test_it=LIGHT)
    monkeypatch.setattr(run_loop, "MANY", most)
    gc.unfreeze()
    runs.over(all_verdicts())
    assert (gc.get_freeze_count(), gc.isenabled()) == (0, True)


@pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "disabled"])
def test_a_run_leaves_the_collector_as_another_had_it(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    runs.checks(test_it=LIGHT)
    monkeypatch.setattr(run_loop, "MANY", 1)
    of_another: list[object] = []
    gc.freeze()
    made_later: list[object] = []
    try:
        if not is_enabled:
            gc.disable()
        runs.over(all_verdicts())
        scanned = {id(scanned_object) for scanned_object in gc.get_objects()}
        assert (id(of_another) in scanned, id(made_later) in scanned) == (False, True)
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_large_run_has_findings_in_the_place_of_letters(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.checks(test_it=LIGHT, test_gpus=DEVICES)
    small = runs.over(all_verdicts()).outlines
    monkeypatch.setattr(outcomes, "NO_LETTERS_ABOVE", 1)
    large = runs.over(all_verdicts()).outlines
    letters = [line for line in small if line.endswith("%]")]
    assert [line.partition(" ")[0] for line in letters] == ["test_gpus.py", "test_it.py"]
    assert [line for line in small[:-1] if line not in [*letters, ""]] == [line for line in large[:-1] if line]


def test_a_large_run_does_without_pytests_cache(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.checks(test_it=LIGHT)
    monkeypatch.setattr(session, "MAX_NODES_IN_CACHE", 1)
    runs.over(all_verdicts(), "-p", "no:cacheprovider")
    assert runs.verdicts == VERDICTS


def output_of(name: str, value: object) -> NodeEvidence:
    return NodeEvidence(name, {"pci": Collected(Status.READ, value)})


def test_what_two_nodes_report_alike_is_kept_once_and_what_differs_stays() -> None:
    values: list[Any] = [{"devices": [{"address": "0000:00:04.0", "lanes": n}, {"numa": [0, 1]}]} for n in (8, 16)]
    interning = Interning()
    first, second = (
        interning.intern(output_of(f"gpu{number}", value)).collectors["pci"].value
        for number, value in enumerate(values)
    )
    assert [first, second] == values
    assert first["devices"][1] is second["devices"][1]
    assert first["devices"][0]["address"] is second["devices"][0]["address"]


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0.0, -0.0), ("1", 1), (None, False), ([], {})])
def test_values_that_only_compare_equal_are_not_taken_for_each_other(pair: tuple[object, object]) -> None:
    interning = Interning()
    for value in pair:
        assert repr(interning.intern(output_of("gpu1", [value])).collectors["pci"].value) == repr([value])


def test_a_value_too_deep_for_the_comparison_stays_as_it_came() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert Interning().intern(output_of("gpu1", deep)).collectors["pci"].value is deep


def test_an_item_is_given_what_pytest_keeps_in_items_when_somebody_asks(runs: Runs) -> None:
    runs.checks(
        conftest="""
            import pytest

            KEY = pytest.StashKey()

            def pytest_collection_modifyitems(items):
                first, second = items
                first.stash[KEY] = 1
                first.user_properties.append(("rack", "7"))
                first.extra_keyword_matches.add("rack7")
                assert KEY in first.stash and KEY not in second.stash
                assert second.user_properties == []
                assert "prolog" in first.keywords and "perf" not in first.keywords
                assert [mark.name for mark in first.own_markers] == [mark.name for mark in second.own_markers]
                assert first.listnames()[-1] == first.name and first.nodeid.endswith("::" + first.name)
        """,
        test_it=LIGHT,
    )
    runs.over([saying("gpu001", "pass"), saying("gpu002", "pass")])
    assert list(runs.verdicts) == ["gpu001", "gpu002"]


def seen_by_plugins(runs: Runs, *arguments: str) -> list[str]:
    """The names of the items that a conftest sees when all are collected."""
    runs.checks(
        conftest="""
            def pytest_collection_finish(session):
                print("seen:", *(item.name for item in session.items))
        """,
        test_it=LIGHT,
    )
    run = runs.over([saying("gpu001", "pass"), saying("gpu002", "pass")], "-s", *arguments)
    return next(line for line in run.outlines if line.startswith("seen:")).split()[1:]


@pytest.mark.parametrize("arguments", [(), ("-m", "prolog"), ("-k", "gpu00"), ("--nf",)])
def test_there_is_an_item_for_each_node_when_all_are_collected(runs: Runs, arguments: tuple[str, ...]) -> None:
    assert [name.partition("[")[2] for name in seen_by_plugins(runs, *arguments)] == ["gpu001]", "gpu002]"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "collected 2 items"), (("-k", "gpu002"), "collected 2 items / 1 deselected / 1 selected")],
)
def test_pytest_says_how_many_nodes_items_were_collected(runs: Runs, arguments: tuple[str, ...], words: str) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([saying("gpu001", "pass"), saying("gpu002", "pass")], *arguments)
    assert words in run.outlines
