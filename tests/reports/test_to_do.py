"""The line that tells what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.result import ACTIONS, INTERRUPTED, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import CANNOT_REACH, COMMON_CAUSE, LOOK_AT, NOT_PROVEN
from clusterproof.reports.findings import findings
from clusterproof.reports.page import tiles
from clusterproof.reports.to_do import shared_finding, to_do, to_do_line

REFUSED = "unreachable: refused"


def failed(check: str, node: str, action: str, **more: Any) -> Result:
    return Result(check, node, Verdict.FAIL, action=action, **more)


def of_run(rule: str, verdict: str) -> Result:
    return Result(f"run.{rule}", "llama", Verdict[verdict.upper()], subject="run")


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([], ""),
        ([Result("gpu.ecc", "n1", Verdict.NOT_APPLICABLE)], ""),
        ([Result("gpu.ecc", "n1", Verdict.PASS), Result("gpu.ecc", "n2", Verdict.CONCERN)], "LOOK AT n2 (ecc) · 2 fit"),
        ([Result("gpu.ecc", "n1", Verdict.PASS)], "NOTHING TO DO · 1 fit"),
        (
            [failed("gpu.row_remap", "n1", "replace"), Result("gpu.ecc", "n2", Verdict.CONCERN)],
            "REPLACE n1 (row_remap) · 1 fit",
        ),
        (
            [
                failed("network.memlock", "n2", "fix configuration"),
                failed("gpu.row_remap", "n1", "replace"),
                failed("network.memlock", "n3", "fix configuration"),
                Result("gpu.ecc", "n4", Verdict.PASS),
            ],
            "REPLACE n1 (row_remap) · FIX CONFIGURATION n[2-3] (memlock) · 1 fit",
        ),
        (
            [
                failed("gpu.row_remap", "n1", "replace"),
                Result("host.quota", "n1", Verdict.INCOMPLETE, cause="no answer", subject="cluster"),
            ],
            "REPLACE n1 (row_remap) · NOT PROVEN the cluster (no answer) · 0 fit",
        ),
        (
            [
                Result("gpu.ecc", "n1", Verdict.PASS),
                Result("host.quota", "n1", Verdict.INCOMPLETE, cause=INTERRUPTED, subject="cluster"),
            ],
            (
                "INTERRUPTED: 1 of 2 checks ended, all of them on 1 of 1 nodes · "
                "NOT PROVEN the cluster (the run was interrupted) · 1 fit"
            ),
        ),
        (
            [failed(f"gpu.c{number}", "n1", "replace") for number in range(4)],
            "REPLACE n1 (c0, c1, +2) · 0 fit",
        ),
        (
            [failed("gpu.a", "n1", "call facilities"), failed("gpu.b", "n2", "")],
            "INVESTIGATE n2 (b) · CALL FACILITIES n1 (a) · 0 fit",
        ),
        (
            [failed("host.quota", "prod", "fix configuration", subject="cluster")],
            "FIX CONFIGURATION the cluster (quota)",
        ),
        (
            [failed("perf.busbw", "n1~n2", "investigate", subject="pair"), Result("gpu.ecc", "n1", Verdict.PASS)],
            "INVESTIGATE n1~n2 (busbw) · 1 fit",
        ),
        ([of_run("data_wait", "concern"), of_run("init_time", "pass")], "LOOK AT run llama (data_wait)"),
        (
            [of_run("hung", "incomplete"), of_run("data_wait", "concern")],
            "LOOK AT run llama (data_wait) · NOT PROVEN run llama (hung)",
        ),
        (
            [of_run("hung", "incomplete"), of_run("data_wait", "concern"), of_run("slow_rank", "fail")],
            "INVESTIGATE run llama (slow_rank)",
        ),
        (
            [failed("gpu.row_remap", "n1", "replace"), of_run("hung", "incomplete"), of_run("data_wait", "concern")],
            "REPLACE n1 (row_remap) · LOOK AT run llama (data_wait) · NOT PROVEN run llama (hung) · 0 fit",
        ),
    ],
)
def test_the_gravest_stands_first_and_what_is_fit_last(results: list[Result], line: str) -> None:
    assert to_do_line(results) == line


def nodes_of(check: str, action: str, **verdicts: int) -> list[Result]:
    """One check's results: this many nodes of each verdict."""
    kinds = [Verdict[word.upper()] for word, count in verdicts.items() for _ in range(count)]
    return [Result(check, f"n{at}", kind, action=action, title=f"Title of {check}") for at, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("results", "line"),
    [
        (nodes_of("gpu.hot", "reset or reboot", fail=4), "FIND THE COMMON CAUSE n[0-3] (hot) · 0 fit"),
        (nodes_of("gpu.hot", "replace", fail=4, not_applicable=9), "FIND THE COMMON CAUSE n[0-3] (hot) · 0 fit"),
        (
            nodes_of("gpu.hot", "replace", fail=4, incomplete=1),
            "FIND THE COMMON CAUSE n[0-3] (hot) · NOT PROVEN n4 (hot) · 0 fit",
        ),
        (nodes_of("gpu.hot", "replace", fail=4, **{"pass": 1}), "REPLACE n[0-3] (hot) · 1 fit"),
        (nodes_of("gpu.hot", "replace", fail=4, concern=1), "REPLACE n[0-3] (hot) · 1 fit"),
        (nodes_of("gpu.hot", "replace", fail=3), "REPLACE n[0-2] (hot) · 0 fit"),
        (nodes_of("net.memlock", "fix configuration", fail=4), "FIX CONFIGURATION n[0-3] (memlock) · 0 fit"),
        (
            [*nodes_of("gpu.hot", "reset or reboot", fail=4), failed("gpu.row_remap", "n1", "replace")],
            "FIND THE COMMON CAUSE n[0-3] (hot) · REPLACE n1 (row_remap) · 0 fit",
        ),
    ],
)
def test_what_every_node_has_is_not_asked_of_each_ones_hardware(results: list[Result], line: str) -> None:
    assert to_do_line(results) == line
    assert sum(result.verdict is Verdict.FAIL for result in results) >= 3


def test_a_site_says_from_how_many_nodes_on_a_cause_is_common() -> None:
    own = Catalog({"configuration.suspected_minimum_nodes": 2})
    results = nodes_of("gpu.hot", "replace", fail=2)
    assert [to_do(results, catalog)[0].action for catalog in (PACKAGED, own)] == ["replace", "find the common cause"]


def test_a_node_stands_with_each_thing_that_it_needs() -> None:
    results = [failed("gpu.a", "n1", "replace"), failed("gpu.b", "n1", "clean up")]
    assert [(task.action, task.nodes) for task in to_do(results)] == [("replace", ("n1",)), ("clean up", ("n1",))]


def test_a_node_that_was_not_reached_is_named_once_with_the_reason() -> None:
    results = [
        failed("node.reachable", "n1", "cannot reach", cause=REFUSED),
        *(Result(f"gpu.c{number}", "n1", Verdict.INCOMPLETE, cause=REFUSED) for number in range(3)),
    ]
    assert to_do_line(results) == "CANNOT REACH n1 (refused) · 0 fit"


def test_where_no_node_was_reached_it_is_no_further_news_that_nothing_is_known_of_the_cluster() -> None:
    gone = [failed("node.reachable", node, "cannot reach", cause=REFUSED) for node in ("n1", "n2")]
    whole = Result("host.quota", "prod", Verdict.INCOMPLETE, cause="no node says what it is", subject="cluster")
    assert to_do_line([*gone, whole]) == "CANNOT REACH n[1-2] (refused) · 0 fit"
    assert to_do_line([whole]) == "NOT PROVEN the cluster (no node says what it is)"
    some = [*gone, Result("gpu.ecc", "n3", Verdict.PASS), whole]
    assert "NOT PROVEN the cluster (no node says what it is)" in to_do_line(some)


def test_what_is_incomplete_on_a_node_that_fails_is_no_task_of_its_own() -> None:
    results = [
        failed("gpu.a", "n1", "replace"),
        Result("gpu.b", "n1", Verdict.INCOMPLETE, cause="nvml did not answer"),
        Result("gpu.b", "n2", Verdict.INCOMPLETE, cause="nvml did not answer"),
    ]
    assert to_do_line(results) == "REPLACE n1 (a) · NOT PROVEN n2 (nvml did not answer) · 0 fit"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("no file records how long steps take; give a log of steps", "no file records how long steps take"),
        (f"nothing tells how {'busy ' * 20}GPUs are", f"nothing tells how {'busy ' * 8}".rstrip() + "…"),
    ],
)
def test_a_reason_is_what_was_observed_cut_between_words(cause: str, reason: str) -> None:
    assert to_do_line([Result("gpu.b", "n1", Verdict.INCOMPLETE, cause=cause)]) == f"NOT PROVEN n1 ({reason}) · 0 fit"


@pytest.mark.parametrize(
    ("failed_nodes", "alike", "words"),
    [
        (14, 9, "9 of 14 failed nodes share one finding: Title of memlock"),
        (14, 6, ""),
        (2, 2, ""),
        (3, 3, "3 of 3 failed nodes share one finding: Title of memlock"),
    ],
)
def test_what_most_failed_nodes_share_is_said(failed_nodes: int, alike: int, words: str) -> None:
    results = [failed(f"gpu.c{n}", f"n{n}", "replace", title=f"Title of {n}") for n in range(failed_nodes)]
    results += [failed("net.memlock", f"n{n}", "fix configuration", title="Title of memlock") for n in range(alike)]
    assert shared_finding(results) == words


def test_a_thousand_names_that_do_not_fold_are_counted() -> None:
    results = [failed("gpu.a", f"{'x' * (n % 9)}-{n}-{'y' * (n % 7)}", "replace") for n in range(1000)]
    results.append(Result("gpu.a", "fit", Verdict.PASS))
    assert to_do_line(results).startswith("REPLACE 1,000 nodes (")
    assert len(to_do_line(results)) < 200


@given(
    st.lists(
        st.builds(
            Result,
            check=st.sampled_from(["gpu.a", "node.reachable"]),
            node=st.sampled_from(["n1", "n2", "n3"]),
            verdict=st.sampled_from(Verdict),
            cause=st.sampled_from(["", REFUSED, "hung\n  do: forged"]),
            action=st.sampled_from(["", *ACTIONS]),
        ),
        max_size=30,
    )
)
def test_every_node_that_is_not_fit_is_named_and_no_line_is_broken(results: list[Result]) -> None:
    named = {node for task in to_do(results) for node in expand(task.where)}
    wrong = {result.node for result in results if result.verdict in (Verdict.FAIL, Verdict.INCOMPLETE)}
    assert named >= wrong
    assert "\n" not in to_do_line(results)
    assert all(task.action in (COMMON_CAUSE, *ACTIONS, CANNOT_REACH, NOT_PROVEN, LOOK_AT) for task in to_do(results))
    assert "NOTHING TO DO" not in to_do_line(results) or not any(result.verdict.is_finding for result in results)


def test_a_training_run_without_nodes_has_no_tile_of_nodes_that_are_fit() -> None:
    of_run = failed("run.slow_rank", "trace", "investigate", subject="rank")
    of_node = Result("gpu.ecc", "n1", Verdict.PASS)
    assert "in every check that ran" not in tiles([of_run])
    assert "in every check that ran" in tiles([of_run, of_node])


def test_a_tile_has_the_titles_of_the_checks_that_failed_and_of_no_other_of_that_name() -> None:
    gpu = failed("gpu.no_uncorrected_ecc", "n1", "reset or reboot", title="Uncorrected GPU memory errors")
    neuron = Result("neuron.no_uncorrected_ecc", "n1", Verdict.PASS, title="Uncorrected Neuron memory errors")
    lost = Result("node.reachable", "n2", Verdict.FAIL, title="Reachability", cause=REFUSED)
    page = tiles([gpu, neuron, lost])
    assert "<small>Uncorrected GPU memory errors</small>" in page
    assert "<small>refused</small>" in page
    assert "Neuron" not in page


@given(
    st.lists(
        st.builds(
            Result,
            check=st.sampled_from(["gpu.a", "gpu.b", "host.c", "node.reachable"]),
            node=st.sampled_from(["n1", "n2", "n3", "n4", "n5"]),
            verdict=st.sampled_from([Verdict.PASS, Verdict.FAIL]),
            cause=st.sampled_from(["", "", REFUSED]),
            action=st.sampled_from(["", "call facilities", *ACTIONS]),
        ),
        max_size=30,
        unique_by=lambda result: (result.check, result.node),
    )
)
def test_findings_come_in_the_order_of_the_actions(results: list[Result]) -> None:
    nodes_of_findings = [
        {result.node for result in finding.results} for finding in findings(results, Verdict.FAIL, PACKAGED)
    ]
    tasks = to_do(results)
    assert bool(nodes_of_findings) == bool(tasks)
    if tasks:
        assert nodes_of_findings[0] & set(tasks[0].nodes)
