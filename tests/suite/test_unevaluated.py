"""A selected check that did not end is incomplete, and no exception excuses it; a check that ended is not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import INTERRUPTED
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.recording import write_node
from clusterproof.plugins.suite import session
from clusterproof.plugins.suite.gatherer import Gatherer
from tests.builders.runs import ALONE_OR_NOT, DEVICES, LIGHT, ROOT, USUAL, Runs, saying

pytestmark = pytest.mark.any_user

INCOMPLETE, PASS, FAIL, NOT_APPLICABLE = Verdict.INCOMPLETE, Verdict.PASS, Verdict.FAIL, Verdict.NOT_APPLICABLE
BAD_SECOND = [saying("gpu001", "pass"), saying("gpu002", "bad"), saying("gpu003", "pass")]
UNHEARD_SECOND = [saying("gpu001", "pass"), saying("gpu002", "incomplete"), saying("gpu003", "pass")]


@pytest.mark.parametrize(
    ("nodes", "options", "code"),
    [
        (BAD_SECOND, (), 1),
        (UNHEARD_SECOND, (), 10),
        (UNHEARD_SECOND, ("--incomplete=fail",), 1),
        (UNHEARD_SECOND, ("--incomplete=ignore",), 1),
    ],
    ids=["a failure", "incomplete", "incomplete fails", "incomplete is ignored"],
)
def test_what_minus_x_leaves_out_is_incomplete_and_the_run_no_success(
    runs: Runs, nodes: list[NodeEvidence], options: tuple[str, ...], code: int
) -> None:
    runs.checks(test_it=LIGHT)
    ran = runs.over(nodes, "-x", *options)
    assert ran.ret == code
    assert runs.verdicts["gpu003"] is INCOMPLETE
    assert [result.node for result in runs.results if not result.is_evaluated] == ["gpu003"]
    ran.stdout.fnmatch_lines(["INTERRUPTED: 2 of 3 checks ended, all of them on 2 of 3 nodes"])


def test_a_run_that_stops_at_its_last_check_has_evaluated_all(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    ran = runs.over(BAD_SECOND[:2], "-x")
    assert ran.ret == 1
    assert all(result.is_evaluated for result in runs.results)
    assert "INTERRUPTED" not in ran.stdout.str()


def test_an_unevaluated_check_has_what_reports_need_of_it(runs: Runs) -> None:
    runs.checks(test_1=LIGHT, test_2=DEVICES)
    runs.over(BAD_SECOND, "-x")
    light, *_, of_gpu = (result for result in runs.results if not result.is_evaluated)
    assert (light.check, light.subject, light.title) == ("host.word", "node", "The word is wrong")
    assert (light.owner, light.subsystem) == ("hyperpod-node-debugger", "host")
    assert (of_gpu.check, of_gpu.node, of_gpu.subject) == ("gpu.word_of_gpu", "gpu003", "gpu")
    assert (of_gpu.cause, of_gpu.message) == (INTERRUPTED, "not evaluated: -x or --maxfail ended the run")


def test_a_check_of_a_control_plane_that_is_not_there_is_left_out_of_the_cluster_and_of_no_node(runs: Runs) -> None:
    cluster = runs.cluster(BAD_SECOND)
    runs.checks(test_it=LIGHT)
    after = f"{ROOT}/checks/control_plane/test_kubernetes_nodes.py::test_k8s_node_ready"
    ran = runs.run("--cluster", cluster, "--results", str(runs.results_file), "test_it.py", after, "-x")
    assert [(result.node, result.subject) for result in runs.results if not result.is_evaluated] == [
        ("gpu003", "node"),
        ("small", "cluster"),
    ]
    ran.stdout.fnmatch_lines(["INTERRUPTED: 2 of 4 checks ended, all of them on 2 of 3 nodes"])


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        ('[verdicts."host.word"]\nincomplete = "fail"\n', INCOMPLETE),
        ('[disabled."host.word"]\nuntil = 2999-01-01\nreason = "known"\nnodes = "gpu003"\n', NOT_APPLICABLE),
    ],
    ids=["what is incomplete fails", "disabled"],
)
def test_a_policy_makes_no_failure_of_what_was_not_evaluated_nor_misses_what_it_disables(
    runs: Runs, policy: str, verdict: Verdict
) -> None:
    runs.checks(test_it=LIGHT)
    (runs.folder / "clusterproof.toml").write_text(policy)
    runs.over(BAD_SECOND, "-x")
    assert runs.verdicts == {"gpu001": PASS, "gpu002": FAIL, "gpu003": verdict}


INTERRUPTED_BEFORE_THE_FIRST = """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop():
        raise KeyboardInterrupt("SIGTERM")
        yield
"""


def test_before_the_first_check_no_node_is_known(runs: Runs) -> None:
    runs.checks(conftest=INTERRUPTED_BEFORE_THE_FIRST, test_it=LIGHT)
    with pytest.raises(KeyboardInterrupt):
        runs.over(BAD_SECOND, "--report", "out")
    assert set(runs.verdicts.values()) == {INCOMPLETE}
    assert "3 not proven" in (runs.folder / "out" / "summary.txt").read_text()


def test_while_the_nodes_are_asked_no_node_is_known(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Gatherer, __: Any, ___: Any, keep: Callable[[NodeEvidence], None]) -> None:
        keep(BAD_SECOND[0])
        raise KeyboardInterrupt("SIGINT")

    monkeypatch.setattr(Gatherer, "nodes", interrupted)
    runs.checks(test_it=LIGHT)
    with pytest.raises(KeyboardInterrupt):
        runs.over(BAD_SECOND, "--report", "out")
    assert {(result.node, result.message) for result in runs.results} == {
        (node.node, "not evaluated: SIGINT ended the run") for node in BAD_SECOND
    }
    assert 'verdict="pass"} 0' in (runs.folder / "out" / "metrics.prom").read_text()


@pytest.mark.parametrize("ends", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_what_ends_the_run_within_a_test_that_has_found_something_is_no_finding(runs: Runs, ends: str) -> None:
    runs.checks(
        test_it=f"""
        import pytest
        from clusterproof import concern_if

        def test_it(node, tmp_path):
            concern_if(True, "warm; expected cool")
            {ends}
        """
    )
    process = runs.started("--cluster", runs.cluster(BAD_SECOND), "--report", "out", "-p", "no:cacheprovider")
    output, _ = process.communicate()
    assert process.returncode == 2, output
    assert "INTERRUPTED: 0 of 3 checks ended" in output


@pytest.mark.parametrize("ends", ["sys.exit(3)", "raise asyncio.CancelledError"])
@pytest.mark.parametrize("arguments", ["node", "node, tmp_path"])
def test_what_a_test_has_found_counts_also_where_something_else_than_an_error_ends_it(
    runs: Runs, arguments: str, ends: str
) -> None:
    runs.checks(
        test_it=f"""
        import asyncio
        import sys
        from clusterproof import fail_if

        def test_it({arguments}):
            fail_if(True, "a fan stands still; expected it to turn")
            {ends}
        """
    )
    assert runs.over(BAD_SECOND[:2]).ret == 1
    assert [(result.verdict, result.observed) for result in runs.results] == [(FAIL, "a fan stands still")] * 2


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_plugin_that_breaks_over_a_result_ends_nothing(runs: Runs, workers: list[str]) -> None:
    breaks = "def pytest_cluster_result(result):\n    assert result.node != 'gpu001', 'no such ticket'\n"
    runs.checks(test_it=LIGHT, conftest=breaks)
    ran = runs.over(BAD_SECOND, *workers)
    assert ran.ret == 1
    assert runs.verdicts == {"gpu001": PASS, "gpu002": FAIL, "gpu003": PASS}
    ran.stdout.fnmatch_lines(
        ["warning: what pytest_cluster_result passes on is not whole: *no such ticket*conftest.py:2)"]
    )


@pytest.mark.parametrize("ends", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_a_plugin_that_ends_the_run_over_a_result_ends_it(runs: Runs, ends: str) -> None:
    hook = f"def pytest_cluster_result(result):\n    if result.node == 'gpu002': {ends}\n"
    runs.checks(test_it=LIGHT, conftest=f"import pytest\n{hook}")
    process = runs.started("--cluster", runs.cluster(BAD_SECOND), "-p", "no:cacheprovider")
    output, _ = process.communicate()
    assert process.returncode == 2, output
    assert "INTERRUPTED: 2 of 3 checks ended" in output


def test_a_plugin_that_would_end_the_run_over_each_result_hides_none_that_was_not_evaluated(runs: Runs) -> None:
    hook = "def pytest_cluster_result(result):\n    if result.verdict.value != 'pass': pytest.exit('enough')\n"
    runs.checks(test_it=LIGHT, conftest=f"import pytest\n{hook}")
    assert runs.over([*BAD_SECOND, saying("gpu004", "pass")]).ret == 2
    assert runs.verdicts == {"gpu001": PASS, "gpu002": FAIL, "gpu003": INCOMPLETE, "gpu004": INCOMPLETE}


def test_where_collection_broke_off_what_was_chosen_is_incomplete(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_broken="import no_such_module")
    ran = runs.over(BAD_SECOND)
    assert ran.ret == 2
    assert set(runs.verdicts.values()) == {INCOMPLETE}
    ran.stdout.fnmatch_lines(["INTERRUPTED: 0 of 3 checks ended*"])


def test_pytest_exit_is_an_end_before_the_end(runs: Runs) -> None:
    leaving = USUAL.replace("say(node", 'pytest.exit("gpu002 burns") if node.name == "gpu002" else say(node')
    runs.checks(test_it=leaving)
    ran = runs.over(BAD_SECOND)
    assert ran.ret == 2
    assert runs.verdicts == {"gpu001": PASS, "gpu002": INCOMPLETE, "gpu003": INCOMPLETE}
    assert "burns" not in runs.results_file.read_text()  # redaction would have to know it


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
@pytest.mark.parametrize("how", ['@pytest.mark.xfail(reason="known")', ""], ids=["by mark", "while it runs"])
def test_a_test_with_pytests_own_word_came_to_its_end(runs: Runs, how: str, workers: tuple[str, ...]) -> None:
    test = f"{how}\n    def test_word(node, tmp_path):" if how else "def test_word(node, tmp_path):"
    body = USUAL.replace("def test_word(node, tmp_path):", test)
    runs.checks(test_it=body if how else body.replace("say(node", 'pytest.xfail("known") or say(node'))
    ran = runs.over(BAD_SECOND, *workers)
    assert "INTERRUPTED" not in ran.stdout.str()
    assert all(result.is_evaluated for result in runs.results)


def test_every_verdict_that_is_added_is_given_to_other_plugins(runs: Runs) -> None:
    counting = """
        def pytest_cluster_result(result):
            open("seen", "a").write(f"{result.node} {result.verdict.value}\\n")
    """
    runs.checks(conftest=counting, test_it=LIGHT)
    runs.over(BAD_SECOND, "-x")
    assert (runs.folder / "seen").read_text().splitlines() == ["gpu001 pass", "gpu002 fail", "gpu003 incomplete"]


INTERRUPTED_IN_COLLECTION = """
    def pytest_collection_modifyitems():
        raise KeyboardInterrupt
"""


def test_before_it_is_known_what_is_chosen_nothing_is_said_of_any_node(runs: Runs) -> None:
    runs.checks(conftest=INTERRUPTED_IN_COLLECTION, test_it=LIGHT)
    cluster = runs.cluster(BAD_SECOND)
    process = runs.started("--cluster", cluster, "--report", "out", "-p", "no:cacheprovider")
    output, _ = process.communicate()
    assert process.returncode == 2, output
    assert "INTERRUPTED before any check was chosen" in output
    assert not (runs.folder / "out").exists()


RUNNING_EACH_THREE_TIMES = """
    import pytest
    from _pytest.runner import runtestprotocol

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item, nextitem):
        for _ in range(3):
            runtestprotocol(item, nextitem=nextitem)
        return True
"""


def test_a_test_that_another_plugin_runs_several_times_stands_for_no_other(runs: Runs) -> None:
    runs.checks(conftest=RUNNING_EACH_THREE_TIMES, test_it=USUAL)
    runs.over([saying("gpu001", "bad"), saying("gpu002", "pass"), saying("gpu003", "pass")], "-x")
    assert runs.verdicts == {"gpu001": FAIL, "gpu002": INCOMPLETE, "gpu003": INCOMPLETE}


def test_an_ssh_config_that_no_host_can_be_looked_up_in_is_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs.folder / ".ssh").mkdir()
    (runs.folder / ".ssh" / "config").write_text("Match\n")
    monkeypatch.setenv("HOME", str(runs.folder))
    runs.checks(test_it=LIGHT)
    ran = runs.run("--cluster", "ssh:gpu001")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert ran.stderr.lines == [
        "ERROR: the ssh configuration: Unparsable line Match; expected what ssh_config(5) says",
        "",
    ]


def test_where_workers_cannot_be_given_the_evidence_no_node_is_taken_for_unreached(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, evidence: NodeEvidence) -> None:
        if folder != runs.folder / "kept":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder / evidence.node))
        write_node(folder, evidence)

    monkeypatch.setattr(session, "write_node", full)
    runs.checks(test_it=LIGHT)
    ran = runs.over(BAD_SECOND, "-n1", "--record", str(runs.folder / "kept"))
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.re_match_lines([r"ERROR: -n: \S+/gpu001: No space left on device; expected room there for what all nod"])
    assert {file.stem for file in (runs.folder / "kept" / "nodes").iterdir()} == {"gpu001", "gpu002", "gpu003"}
