"""Other projects' tests beside checks: without a cluster and with one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.builders.runs import LIGHT, ROOT, USUAL, VERDICTS, Runs, all_verdicts, counts, saying

OTHERS = """
    import pytest

    @pytest.fixture
    def node():
        return "their own"

    def test_theirs(node):
        assert node == "their own"

    @pytest.mark.parametrize("node", [1, 2])
    def test_parametrized(node):
        assert node in (1, 2)
"""


def test_without_a_cluster_other_peoples_tests_are_left_alone(runs: Runs) -> None:
    runs.checks(test_theirs=OTHERS)
    run = runs.run()
    run.assert_outcomes(passed=3)
    assert run.ret == 0


@pytest.mark.parametrize(
    "asked", [["--pyargs", "clusterproof.checks"], [str(ROOT / "checks/gpu/test_memory.py::test_no_uncorrected_ecc")]]
)
def test_without_a_cluster_a_check_of_the_suite_says_what_is_missing(runs: Runs, asked: list[str]) -> None:
    run = runs.run(*asked)
    assert run.ret == 4
    run.stderr.fnmatch_lines(["ERROR: no cluster to validate; say which: --cluster *"])


def test_in_a_folder_without_checks_it_says_where_clusterproofs_own_are(runs: Runs) -> None:
    run = runs.over([saying("gpu001", "pass")])
    run.stdout.fnmatch_lines(
        ["no check was collected here; clusterproof's own: clusterproof check X, clusterproof --run PATH, or *"]
    )
    assert run.ret == 5


def test_a_test_that_brings_its_own_nodes_keeps_them_with_a_cluster_too(runs: Runs) -> None:
    runs.checks(test_theirs=OTHERS, test_it=USUAL)
    run = runs.over([saying("gpu001", "pass")], "-k", "parametrized or word")
    assert counts(run) == Counter({"passed": 3, "deselected": 1})
    assert [result.check for result in runs.results] == ["host.word"]


def test_a_file_that_cannot_be_collected_is_shown_as_pytest_shows_it(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_broken="import no_such_module")
    run = runs.over(all_verdicts())
    assert run.ret == 2
    run.stdout.fnmatch_lines(["*ERROR collecting test_broken.py*", "*No module named 'no_such_module'*"])
    runs.over(all_verdicts(), "--continue-on-collection-errors")
    assert runs.verdicts == VERDICTS


def test_a_third_partys_check_needs_no_mark_and_no_words(runs: Runs) -> None:
    runs.checks(test_it="def test_kernel_is_new(node): assert node.boot.kernel == 'pass', 'it is old'")
    runs.over([saying("gpu001", "bad")])
    (result,) = runs.results
    assert (result.check, result.title, result.message, result.owner) == (
        "kernel_is_new",
        "kernel is new",
        "it is old",
        "",
    )


def test_a_test_that_is_about_no_node_is_checked_where_nothing_else_is(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_own="def test_own():\n    pass\n")
    assert runs.over([saying("gpu001", "not applicable")]).ret == 0


BREAKING_AT_ITS_END = """
    @pytest.fixture
    def mounted():
        yield
        raise TimeoutError("the file system hangs")
"""


@pytest.mark.parametrize(
    "files",
    [
        {"test_it": LIGHT, "test_broken": "import no_such_module"},
        {"test_it": USUAL.replace("tmp_path", "mounted") + BREAKING_AT_ITS_END},
    ],
    ids=["in collection", "at the end of a test"],
)
def test_where_a_test_breaks_no_report_calls_the_cluster_fit(runs: Runs, files: dict[str, str]) -> None:
    runs.checks(**files)
    run = runs.over([saying("gpu001", "pass")], "--continue-on-collection-errors", "--report", "out")
    assert run.ret == 1
    written = {path.name: path.read_text() for path in (runs.folder / "out").iterdir()}
    assert "NOT PROVEN the cluster (1 test broke)" in written["summary.txt"]
    assert "## ❔ small: not proven" in written["summary.md"]
    assert '<error type="incomplete" message="small: 1 test broke' in written["junit.xml"]
    assert 'check="tests.broken",verdict="incomplete"' in written["metrics.prom"]
    assert "<strong>not proven</strong>" in written["report.html"]
    assert "NOTHING TO DO" not in run.stdout.str() + "".join(written.values())
    assert "-k test_broken" not in "".join(written.values())
    assert [result.node for result in runs.results] == ["gpu001"]
