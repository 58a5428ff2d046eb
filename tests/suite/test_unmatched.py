"""Words of `-m` and `-k` that select nothing: similar names are suggested, and known words are accepted."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.suite.selection import misspelt_mark, nothing_chosen
from tests.builders.runs import LIGHT, Runs, all_verdicts

MARKS = ("prolog: before each job", "gpu: checks of this subsystem", "hyperpod_nccl(section): of an owner", "slow")
CLUSTER = Cluster("demo", "demo", (Target("gpu001"), Target("gpu002")))


@pytest.mark.parametrize(
    ("expression", "near"),
    [
        ("prologg", "'prologg' (did you mean prolog?)"),
        ("gpu and not prolgo", "'prolgo' (did you mean prolog?)"),
        ("hyperpod_ncl", "'hyperpod_ncl' (did you mean hyperpod_nccl?)"),
        ('hyperpod_ncl(section="17")', "'hyperpod_ncl' (did you mean hyperpod_nccl?)"),
    ],
)
def test_a_mark_that_is_misspelt_is_named_with_the_one_that_is_meant(expression: str, near: str) -> None:
    assert (
        misspelt_mark(expression, MARKS)
        == f"-m {expression!r}: no mark is called {near}; clusterproof --markers lists them"
    )


@pytest.mark.parametrize(
    "expression", ["prolog", "gpu and not (prolog or slow)", 'hyperpod_nccl(section="slwo")', "quite_another", ""]
)
def test_marks_that_are_known_and_those_that_are_near_to_none_are_left_to_pytest(expression: str) -> None:
    assert misspelt_mark(expression, MARKS) == ""


def test_a_mark_that_nobody_registered_and_a_test_has_is_no_mistake() -> None:
    assert misspelt_mark("gpus", MARKS, {"gpus"}) == ""


def test_k_has_selected_something_if_other_tests_ran(runs: Runs) -> None:
    runs.pytester.makepyfile(test_own="def test_of_my_own(): pass\ndef test_another(): pass")
    runs.checks(test_it=LIGHT)
    run = runs.over(all_verdicts(), "-k", "of_my_own", str(runs.pytester.path))
    assert "1 passed" in run.stdout.str()
    run.stdout.no_fnmatch_line("*chooses nothing*")


@pytest.mark.parametrize(
    ("keyword", "near"),
    [
        ("no_xidd", " (did you mean no_xid?)"),
        ("test_no_xidd", " (did you mean no_xid?)"),
        ("gpu_count and gpu0022", " (did you mean gpu002?)"),
        ("no_xid and qqqqqq", ""),
        ("qqqqqq", ""),
    ],
)
def test_a_word_that_chooses_nothing_is_named_with_the_check_or_node_that_is_meant(keyword: str, near: str) -> None:
    message = f"-k {keyword!r} chooses nothing{near}; clusterproof checks lists what there is"
    assert nothing_chosen(keyword, CLUSTER) == message
