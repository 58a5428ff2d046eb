"""Which tests run in which tier: no case is lost, `any_user` tests are unaffected by users, missing tools are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counterparts import installed
from tests.missing import COUNTERPARTS, missing, reasons
from tests.tiers import FEW, HALVES, TESTS, ByServer, meets_system

OWN_RUN = """
    import pytest

    @pytest.mark.parametrize(
        "version", [pytest.param(name, marks=pytest.mark.in_turn(name)) for name in ("22.05", "24.11")]
    )
    @pytest.mark.parametrize("letter", "ab")
    def test_version(version, letter):
        pass

    def test_plain():
        pass
"""


@pytest.fixture
def chosen(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with tests whose cases take turns."""
    pytester.makeconftest('pytest_plugins = ["tests.tiers"]')
    pytester.makepyfile(OWN_RUN)
    return pytester


@pytest.mark.parametrize(
    ("options", "passed", "deselected"), [((), 2 + 1, 2), (("--all",), 4 + 1, 0)], ids=["", "--all"]
)
def test_a_file_runs_with_one_of_the_names_that_take_turns_and_with_all_with_each(
    chosen: pytest.Pytester, options: tuple[str, ...], passed: int, deselected: int
) -> None:
    chosen.runpytest_inprocess("--strict-markers", *options).assert_outcomes(passed=passed, deselected=deselected)


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "a worker"])
def test_how_many_had_their_turn_is_said(chosen: pytest.Pytester, workers: tuple[str, ...]) -> None:
    ran = chosen.runpytest_subprocess(*workers)
    ran.stdout.fnmatch_lines(["2 of 4 cases that take turns ran; --all runs each"])


def test_of_many_cases_of_a_test_a_few_are_quick(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.tiers"]')
    test = "import pytest\n\n@pytest.mark.parametrize('number', range({}))\ndef test_{}(number): pass\n"
    pytester.makepyfile(test_many=test.format(FEW * 3, "many"), test_few=test.format(FEW, "few"))
    ran = pytester.runpytest_inprocess("--quick", "-v")
    ran.assert_outcomes(passed=2 * FEW, deselected=2 * FEW)
    ran.stdout.fnmatch_lines([f"*test_many[[]{number}[]]*" for number in range(0, FEW * 3, 3)])
    ran.stdout.fnmatch_lines(
        [f"{2 * FEW} cases of tests that have more than {FEW} did not run; without --quick they do"]
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=4 * FEW)


def test_of_many_cases_of_a_long_test_a_few_run_and_with_all_each(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.tiers"]')
    test = "@pytest.mark.parametrize('number', range({}))\ndef test_{}(number): pass\n"
    tests = (f"@pytest.mark.long\n{test.format(FEW * 2, 'long')}", test.format(FEW * 2, "short"))
    pytester.makepyfile("\n".join(("import pytest", *tests)))
    ran = pytester.runpytest_inprocess("--strict-markers", "-v")
    ran.assert_outcomes(passed=3 * FEW, deselected=FEW)
    ran.stdout.fnmatch_lines([f"*test_long[[]{number}[]]*" for number in range(0, FEW * 2, 2)])
    line = f"{FEW} cases of long tests that have more than {FEW} did not run; --all runs each"
    ran.stdout.fnmatch_lines([line])
    pytester.runpytest_inprocess("--strict-markers", "--all").assert_outcomes(passed=4 * FEW)


def test_of_what_another_user_changes_nothing_it_is_said_that_it_did_not_run(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.tiers"]')
    pytester.makepyfile("import pytest\n\n@pytest.mark.any_user\ndef test_a(): pass\n\ndef test_b(): pass\n")
    ran = pytester.runpytest_inprocess("--strict-markers", "--system")
    ran.assert_outcomes(passed=1, deselected=1)
    ran.stdout.fnmatch_lines(["1 tests that another user cannot affect did not run; without --system they do"])
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=2)


def test_what_takes_turns_by_tests_has_turns_of_its_own(chosen: pytest.Pytester) -> None:
    more = """
    @pytest.mark.parametrize("size", [pytest.param(one, marks=pytest.mark.in_turn(one, by="test")) for one in "sml"])
    @pytest.mark.parametrize("colour", "rg")
    def test_size(size, colour):
        pass
"""
    chosen.makepyfile(test_sizes=OWN_RUN + more)
    chosen.runpytest_inprocess("--strict-markers", "test_sizes.py").assert_outcomes(passed=2 + 1 + 2, deselected=2 + 4)


def test_of_names_that_take_turns_none_is_chosen_that_would_skip(chosen: pytest.Pytester) -> None:
    for absent, there in (("22.05", "24.11"), ("24.11", "22.05")):
        lacks = f'pytest.mark.in_turn(name), pytest.mark.skipif(name == "{absent}", reason="not here")'
        chosen.makepyfile(OWN_RUN.replace("marks=pytest.mark.in_turn(name)", f"marks=[{lacks}]"))
        ran = chosen.runpytest_inprocess("-v", "-k", "version")
        ran.assert_outcomes(passed=2, skipped=2)
        ran.stdout.fnmatch_lines([f"*test_version*{there}*PASSED*"])


@pytest.mark.parametrize(
    ("folder", "meets"),
    [
        ("agent", True),
        ("evidence/gpu", True),
        ("packaging", True),
        ("suite", True),
        ("suite/reporters", True),
        ("transport", True),
        ("untrusted", True),
        ("watch", True),
        ("benchmarks/pairwise", False),
        ("captures", False),
        ("checks/gpu", False),
        ("catalog", False),
        ("training_run", False),
    ],
)
def test_what_meets_the_operating_system_is_what_starts_signals_connects_or_locks(folder: str, meets: bool) -> None:
    assert meets_system(TESTS / folder) is meets


def test_a_folder_of_tests_is_not_asked_for_the_packages_below_it() -> None:
    assert not meets_system(TESTS / "reports")
    assert meets_system(TESTS / "reports" / "history")


def test_with_system_no_other_file_is_read(pytester: pytest.Pytester) -> None:
    ran = pytester.runpytest_subprocess(
        f"--rootdir={TESTS.parent}", "--system", "--collect-only", "-q", *map(str, (TESTS / "policy", TESTS / "core"))
    )
    files = {Path(line.partition("::")[0]).parent.name for line in ran.outlines if "::" in line}
    assert files == {"core"}


def test_each_thing_that_is_missing_is_said_once_and_what_is_there_is_not() -> None:
    lacks = pytest.mark.skipif(True, reason="fio is not installed: apt-get install fio")
    there = pytest.mark.skipif(False, reason="")
    assert reasons([lacks, there, lacks]) == ["fio is not installed: apt-get install fio"]


def test_the_programs_of_others_are_among_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    lacking = [line for line in missing() if "scripts/counterparts" in line]
    assert sorted(line.rpartition(" ")[2] for line in lacking) == COUNTERPARTS
    assert "promtool is not installed (promtool): scripts/counterparts promtool" in lacking
    assert installed.folder("machine").parts[:2] == ("/", "nowhere")


@pytest.mark.parametrize(
    ("files", "workers"),
    [
        (("tests/core/test_record.py", "tests/core/test_table.py"), 2),
        (tuple(f"tests/kubernetes/test_{letter}.py" for letter in "abcdefgh"), HALVES),
        (tuple(f"tests/kubernetes/perf/test_{letter}.py" for letter in "abcdefgh"), 1),
    ],
)
def test_files_that_share_a_server_go_to_few_workers(files: tuple[str, ...], workers: int) -> None:
    scheduler = object.__new__(ByServer)
    assert len({scheduler._split_scope(f"{file}::test_it") for file in files}) == workers
