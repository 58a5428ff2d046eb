"""Users who have the suite installed notice nothing unless they name a cluster; if they do, theirs still works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.builders.recordings import gpu, node, nvml
from tests.builders.runs import ALONE_OR_NOT, LIGHT, VERDICTS, Runs, all_verdicts, junit_cases, saying
from tests.builders.wheel import Installed
from tests.packaging.their_suite import SUITE, written

# All modules of the suite that pytest may load without a cluster.
LOADED = {
    "clusterproof",
    "clusterproof.plugins",
    "clusterproof.plugins.cluster",
    "clusterproof.plugins.core",
    "clusterproof.plugins.suite",
    "clusterproof.plugins.options",
    "clusterproof.plugins.options.table",
    "clusterproof.plugins.options.perf_table",
    "clusterproof.plugins.suite.hookspecs",
    "clusterproof.plugins.core.kinds",
    "clusterproof.plugins.core.record",
    "clusterproof.plugins.options.argv",
}
LISTING = """
    import json, sys

    def pytest_unconfigure():
        print("LOADED", json.dumps(sorted(sys.modules)))
"""


def loaded(ran: subprocess.CompletedProcess[str]) -> set[str]:
    """The modules loaded at the end of a run."""
    line = next(line for line in ran.stdout.splitlines() if line.startswith("LOADED "))
    return set(json.loads(line.removeprefix("LOADED ")))


def test_without_a_cluster_next_to_nothing_is_loaded(installed: Installed, tmp_path: Path) -> None:
    folder = written(tmp_path, {"conftest.py": LISTING, "test_it.py": "def test_it(): pass\n"})
    with_ours = loaded(installed.pytest(folder, "-s"))
    without = loaded(installed.pytest(folder, "-s", "-p", "no:clusterproof.plugins.cluster"))
    assert with_ours - without == LOADED


def test_a_suite_with_names_like_ours_runs_as_before(installed: Installed, tmp_path: Path) -> None:
    ran = installed.pytest(written(tmp_path, SUITE))
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_their_fixtures_and_marks_stay_theirs_with_a_cluster_too(installed: Installed, tmp_path: Path) -> None:
    ours = "def test_kernel(uptime): pass\n\ndef test_boot(node):\n    assert node == 'their node'\n"
    own = "import pytest\n\n@pytest.fixture\ndef uptime(): return 1\n\n"
    folder = written(tmp_path, {**SUITE, "test_more.py": own + ours})
    ran = installed.pytest(folder, "--cluster", "demo", "--no-report", "--results", "results.jsonl")
    assert (ran.returncode, "5 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert (folder / "results.jsonl").read_text() == ""


def test_a_fixture_that_builds_on_ours_is_given_each_node(runs: Runs) -> None:
    runs.checks(
        conftest="""
            import pytest

            @pytest.fixture(scope="session")
            def node(node):
                return node.boot.kernel
        """,
        test_it="def test_word(node): assert node == 'pass', f'{node}; expected pass'",
    )
    runs.over([saying("gpu001", "pass"), saying("gpu002", "bad")])
    assert {result.node: result.message for result in runs.results} == {"gpu001": "", "gpu002": "bad; expected pass"}


def test_a_fixture_that_is_used_by_itself_is_used_by_checks_too(runs: Runs) -> None:
    runs.checks(
        test_it="""
            import pytest

            used = []

            @pytest.fixture(autouse=True)
            def noting():
                used.append(1)

            def test_used(gpu):
                assert used, "unused"
        """
    )
    runs.checks(test_other="def test_gpu(gpu): assert gpu.index == 0")
    run = runs.over([node("gpu001", nvml=nvml(gpu(0)))])
    run.stdout.fnmatch_lines(["*fixture 'gpu' not found*"])  # a device is no fixture, and pytest says so
    assert {result.check for result in runs.results} == {"gpu"}


WATCHING = """
    import pytest

    seen = []

    def pytest_runtest_setup(item):
        seen.append("setup")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item):
        seen.append("call")
        return (yield)

    def pytest_runtest_teardown(item):
        seen.append("teardown")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        seen.append(f"report of {call.when}")
        return report

    def pytest_sessionfinish(session):
        if seen:
            print("\\nSEEN", *seen)
"""
WORKERS = pytest.mark.parametrize("workers", ALONE_OR_NOT)


def test_a_plugin_that_watches_tests_sees_every_check(runs: Runs) -> None:
    runs.checks(conftest=WATCHING, test_it=LIGHT)
    run = runs.over([saying("gpu001", "pass")], "-s")
    run.stdout.fnmatch_lines(["SEEN setup report of setup call report of call teardown report of teardown"])


def test_a_plugin_that_watches_may_know_an_item_by_the_very_object_that_is_its_id(runs: Runs) -> None:
    hooks = "setup(item)", "call(item)", "makereport(item, call)", "teardown(item)"
    watching = "".join(f"def pytest_runtest_{hook}:\n    known.add(id(item.nodeid))\n" for hook in hooks)
    plugin = "def pytest_runtest_logfinish(nodeid):\n    assert known in ({id(nodeid)}, set())\n"
    runs.checks(conftest=f"known = set()\n{watching}{plugin}", test_it=LIGHT)
    assert runs.over([saying("gpu001", "pass")]).ret == 0


@WORKERS
def test_plugins_that_watch_change_no_verdict_no_record_and_no_letter(runs: Runs, workers: list[str]) -> None:
    runs.checks(test_it=LIGHT)
    kept = []
    for conftest in ("", WATCHING):
        runs.checks(conftest=conftest)
        run = runs.over(all_verdicts(), "--junitxml", "junit.xml", *workers)
        assert run.ret == 1
        assert runs.verdicts == VERDICTS
        cases = junit_cases(runs.folder / "junit.xml")
        properties = {name: [run.attrib for run in case.iter("property")] for name, case in cases.items()}
        letters = [line for line in run.outlines if line.startswith("test_it.py ") and not workers]
        records = sorted(({**record, "duration_s": 0} for record in runs.records), key=lambda record: record["node"])
        kept.append((letters, records, properties))
    assert kept[0] == kept[1]


def test_what_a_plugin_skips_is_not_applicable_and_what_it_breaks_is_incomplete(runs: Runs) -> None:
    runs.checks(
        conftest="""
            import pytest

            def pytest_runtest_setup(item):
                if "gpu001" in item.name:
                    pytest.skip("not today")

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_call(item):
                yield
                if "gpu008" in item.name:
                    raise OSError("lost")
        """,
        test_it=LIGHT,
    )
    runs.over(all_verdicts())
    by_node = {result.node: (result.verdict.value, result.message) for result in runs.results}
    assert by_node["gpu001"] == ("not applicable", "not today")
    assert by_node["gpu008"][0] == "incomplete"
    assert by_node["gpu002"][0] == "fail"
