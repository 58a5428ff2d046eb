"""Verdicts as pytest shows, counts, selects and repeats them."""

from __future__ import annotations

from collections import Counter

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.recordings import node, unreached
from tests.builders.runs import DEVICES, LIGHT, ROOT, SAYING, USUAL, VERDICTS, Runs, all_verdicts, counts, saying

COUNTS = Counter({"passed": 2, "failed": 1, "concern": 1, "incomplete": 3, "not applicable": 1})
WAYS = pytest.mark.parametrize("checks", [LIGHT, USUAL], ids=["light", "usual way"])


@WAYS
def test_each_verdict_has_its_letter(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    data = runs.over(all_verdicts())
    data.stdout.fnmatch_lines(["test_it.py .FCI-II.*"])
    assert runs.verdicts == VERDICTS
    assert counts(data) == COUNTS
    assert data.ret == 1


@WAYS
def test_each_verdict_has_its_word(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    data = runs.over(all_verdicts(), "-v")
    words = ["PASSED", "FAILED", "CONCERN", "INCOMPLETE", "NOT APPLICABLE", "INCOMPLETE", "INCOMPLETE", "PASSED"]
    data.stdout.fnmatch_lines(
        [f"test_it.py::test_word?{name}? {word} *" for name, word in zip(VERDICTS, words, strict=True)]
    )


def test_both_ways_give_the_same_record(runs: Runs) -> None:
    records = []
    for checks in (LIGHT, USUAL):
        runs.checks(test_it=checks)
        runs.over(all_verdicts())
        records.append([{**record, "duration_s": 0} for record in runs.records])
    for light, usual in zip(*records, strict=True):
        if light["node"] == "gpu006":  # the broken one names the line where it broke, and that is the same line
            assert "KeyError: 'no such key'" in light["message"]
        assert light == usual


@WAYS
def test_a_check_that_breaks_is_incomplete_and_says_where(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    runs.over([saying("gpu001", "broken")])
    (result,) = runs.results
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith("the check itself broke: KeyError: 'no such key' (")
    assert "test_it.py:" in result.message


@WAYS
@pytest.mark.parametrize(
    ("word", "verdict"), [("skip", Verdict.NOT_APPLICABLE), ("pytest.fail", Verdict.FAIL)], ids=["skip", "fail"]
)
def test_pytests_own_words_are_verdicts_too(runs: Runs, checks: str, word: str, verdict: Verdict) -> None:
    runs.checks(test_it=checks)
    runs.over([saying("gpu001", word)])
    assert runs.verdicts == {"gpu001": verdict}
    assert runs.results[0].message.endswith("ped by hand" if word == "skip" else "failed by hand")


def test_a_fixture_that_breaks_is_incomplete(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.fixture
        def ground():
            raise OSError("no ground")

        def test_it(node, ground):
            pass
        """
    )
    assert runs.over([saying("gpu001", "pass")]).ret == 6
    assert runs.verdicts == {"gpu001": Verdict.INCOMPLETE}
    assert "OSError: no ground" in runs.results[0].message


def test_a_teardown_that_breaks_is_an_error_beside_the_verdict(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.fixture
        def ground():
            yield
            raise OSError("ground is gone")

        def test_it(node, ground):
            pass
        """
    )
    data = runs.over([saying("gpu001", "pass")])
    assert runs.verdicts == {"gpu001": Verdict.PASS}
    assert data.ret == 1
    data.stdout.fnmatch_lines(["*ERROR at teardown of test_it*", "*OSError: ground is gone"])


def test_a_check_that_is_marked_skip_is_not_applicable_and_xfail_keeps_pytests_word(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.mark.skip(reason="not on this site")
        def test_skipped(node):
            assert False

        @pytest.mark.xfail(reason="known here")
        def test_known(node):
            assert False
        """
    )
    data = runs.over([saying("gpu001", "pass")])
    assert [(result.check, result.verdict) for result in runs.results] == [("skipped", Verdict.NOT_APPLICABLE)]
    assert counts(data) == Counter({"not applicable": 1, "xfailed": 1})
    assert data.ret == 0


# Of several devices the worst speaks


WORST = ["bad", "broken", "concern", "pass", "not applicable"]


@pytest.mark.parametrize("rank", range(len(WORST)), ids=WORST)
def test_of_several_devices_the_worst_speaks(runs: Runs, rank: int) -> None:
    runs.checks(test_it=DEVICES)
    words = WORST[:rank:-1] + [WORST[rank]] * 2 if rank < 4 else [WORST[4]] * 2
    runs.over([saying("gpu001", *words)])
    (result,) = runs.results
    verdicts = [Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN, Verdict.PASS, Verdict.NOT_APPLICABLE]
    assert result.verdict is verdicts[rank]
    expected = [f"GPU {number}" for number, word in enumerate(words) if word == WORST[rank]]
    assert list(result.devices) == ([] if WORST[rank] == "pass" else expected)


def test_what_several_devices_say_alike_is_one_line_worst_first(runs: Runs) -> None:
    runs.checks(test_it=DEVICES)
    runs.over([saying("gpu001", "concern", "pass", "bad", "concern", "bad")])
    assert runs.results[0].message == (
        "GPU 2, GPU 4: the word is bad; expected pass\nGPU 0, GPU 3: the word is odd; expected a good one"
    )
    assert (runs.results[0].observed, runs.results[0].expected) == ("GPU 2, GPU 4: the word is bad", "pass")


def test_a_node_without_such_devices_is_not_applicable(runs: Runs) -> None:
    runs.checks(test_it=DEVICES)
    nothing = {"init": None, "driver": "580.126.09", "count": 0, "gpus": []}
    empty = node("gpu001", nvml=nothing, pci={"devices": []})
    assert runs.over([empty]).ret == 5
    assert runs.verdicts == {"gpu001": Verdict.NOT_APPLICABLE}
    assert runs.results[0].message == "no NVIDIA GPU on the PCI bus (the driver counts none)"


# Exit codes


@pytest.mark.parametrize(
    ("words", "arguments", "code"),
    [
        (["pass"], [], 0),
        (["concern"], [], 0),
        (["not applicable"], [], 5),
        (["not applicable"], ["--incomplete=fail", "--concerns=fail"], 5),
        (["not applicable", "pass"], [], 0),
        (["not applicable", "concern"], [], 0),
        (["bad", "incomplete"], [], 1),
        (["incomplete", "pass"], [], 6),
        (["incomplete"], ["--incomplete=ignore"], 0),
        (["incomplete"], ["--incomplete=fail"], 1),
        (["bad", "incomplete"], ["--incomplete=ignore"], 1),
        (["concern"], ["--concerns=fail"], 1),
        (["concern", "incomplete"], ["--concerns=fail"], 1),
        (["pass"], ["--concerns=fail", "--incomplete=fail"], 0),
        (["pass"], ["-k", "nothing"], 5),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "two workers"])
def test_the_exit_code(runs: Runs, words: list[str], arguments: list[str], code: int, workers: list[str]) -> None:
    runs.checks(test_it=LIGHT)
    nodes = [saying(f"gpu{number:03d}", word) for number, word in enumerate(words, start=1)]
    assert runs.over(nodes, *arguments, *workers).ret == code


def test_a_failed_test_of_another_kind_is_a_failure_of_the_run(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_other="def test_other(): assert 1 == 2")
    data = runs.over([saying("gpu001", "incomplete")])
    assert data.ret == 1
    data.stdout.fnmatch_lines(["*= FAILURES =*", "*assert 1 == 2"])


# Pytest's options


@WAYS
def test_two_workers_give_the_same_verdicts(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    data = runs.over(all_verdicts(), "-n2")
    assert runs.verdicts == VERDICTS
    assert len(runs.results) == len(VERDICTS)
    assert counts(data) == COUNTS
    assert data.ret == 1


@WAYS
def test_lf_repeats_what_failed_and_what_is_incomplete(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    runs.over(all_verdicts())
    runs.over(all_verdicts(), "--lf")
    assert set(runs.verdicts) == {"gpu002", "gpu004", "gpu006", "gpu007"}
    runs.over(all_verdicts(), "--ff")
    assert set(list(runs.verdicts)[:4]) == {"gpu002", "gpu004", "gpu006", "gpu007"}
    assert runs.verdicts == VERDICTS


@pytest.mark.parametrize("name", ["rack 3/gpu001", "a::b", "a[1]", "[", "gpu-ü", "a]::[b", "1"])
def test_an_odd_name_of_a_node_is_known_again(runs: Runs, name: str) -> None:
    runs.checks(test_it=LIGHT)
    nodes = [saying(name, "bad"), saying("gpu001", "pass")]
    runs.over(nodes)
    runs.over(nodes, "--lf")
    assert runs.verdicts == {name: Verdict.FAIL}


def test_k_chooses_by_name_and_by_node(runs: Runs) -> None:
    runs.checks(test_it=LIGHT + DEVICES.removeprefix(SAYING))
    runs.over(all_verdicts(), "-k", "word_of_gpu and (gpu001 or gpu002)")
    assert {(result.check.partition(".")[2], result.node) for result in runs.results} == {
        ("word_of_gpu", "gpu001"),
        ("word_of_gpu", "gpu002"),
    }


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("gpu", {"word_of_gpu"}),
        ("prolog", {"word"}),
        ("hyperpod_node_debugger", {"word"}),
        ("hyperpod_nccl", {"word_of_gpu"}),
        ("hyperpod_nccl or prolog", {"word", "word_of_gpu"}),
        ("not gpu", {"word"}),
    ],
)
@pytest.mark.parametrize("usual", [False, True], ids=["light", "usual way"])
def test_m_chooses_by_subsystem_occasion_and_owner(runs: Runs, expression: str, chosen: set[str], usual: bool) -> None:
    devices = DEVICES.replace("(gpu)", "(node, tmp_path)").replace('gpu.data["word"]', "node.boot.kernel")
    runs.checks(test_one=USUAL if usual else LIGHT, test_two=devices if usual else DEVICES)
    runs.over([saying("gpu001", "pass")], "-m", expression)
    assert {result.check.rpartition(".")[2] for result in runs.results} == chosen


def test_one_mark_of_a_file_needs_no_list(runs: Runs) -> None:
    runs.checks(test_it="import pytest\npytestmark = pytest.mark.gpu\ndef test_it(node): assert node.name")
    runs.over([saying("gpu001", "pass")], "-m", "gpu")
    assert [result.check for result in runs.results] == ["gpu.it"]


def test_an_unknown_mark_is_an_error_that_names_it(runs: Runs) -> None:
    runs.checks(test_it=LIGHT.replace("pytest.mark.prolog", "pytest.mark.prologue"))
    data = runs.over(all_verdicts())
    assert data.ret == 2
    data.stdout.fnmatch_lines(["*'prologue' not found in `markers` configuration option*"])


def test_every_mark_of_the_suite_is_registered(runs: Runs) -> None:
    data = runs.run("--markers").stdout
    data.fnmatch_lines(["@pytest.mark.gpu: *", "@pytest.mark.prolog: *", "@pytest.mark.hyperpod_nccl(section): *"])


@WAYS
@pytest.mark.parametrize(("option", "stops_after"), [("-x", 2), ("--maxfail=2", 4)])
def test_x_and_maxfail_stop_at_failures_and_gaps(runs: Runs, checks: str, option: str, stops_after: int) -> None:
    runs.checks(test_it=checks)
    data = runs.over(all_verdicts(), option)
    assert runs.verdicts == dict(list(VERDICTS.items())[:stops_after])
    assert data.ret == 1
    data.stdout.fnmatch_lines(["*stopping after *"])


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "two workers"])
def test_collect_only_asks_no_node(runs: Runs, workers: list[str]) -> None:
    runs.checks(test_it=LIGHT)
    kept = runs.folder / "kept"
    data = runs.over(all_verdicts(), "--collect-only", "-q", "--record", str(kept), *workers)
    assert data.ret == 0
    assert not kept.exists()
    assert not runs.results_file.exists()
    if not workers:
        data.stdout.fnmatch_lines([f"test_it.py::test_word?{name}?" for name in VERDICTS])


def test_without_a_terminal_there_are_still_records(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    data = runs.over(all_verdicts(), "-p", "no:terminal")
    assert data.ret == 1
    assert runs.verdicts == VERDICTS


@pytest.mark.parametrize(
    "option", ["--tb=long", "-rA", "-ra", "-rN", "-q", "-qq", "-vv", "--no-header", "--no-summary"]
)
def test_no_display_option_changes_a_verdict(runs: Runs, option: str) -> None:
    runs.checks(test_it=LIGHT)
    assert runs.over(all_verdicts(), option).ret == 1
    assert runs.verdicts == VERDICTS


def test_who_asks_for_pytests_own_summary_gets_it(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    data = runs.over(all_verdicts(), "-rf").stdout
    data.fnmatch_lines(["FAILED test_it.py::test_word?gpu002? - gpu002: the word is bad; expected pass*"])


# What is not ours


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
    data = runs.run()
    data.assert_outcomes(passed=3)
    assert data.ret == 0


@pytest.mark.parametrize(
    "asked", [["--pyargs", "clusterproof.checks"], [str(ROOT / "checks/gpu/test_memory.py::test_no_uncorrected_ecc")]]
)
def test_without_a_cluster_a_check_of_the_suite_says_what_is_missing(runs: Runs, asked: list[str]) -> None:
    data = runs.run(*asked)
    assert data.ret == 4
    data.stderr.fnmatch_lines(["ERROR: no cluster to validate; say which: --cluster *"])


def test_a_test_that_brings_its_own_nodes_keeps_them_with_a_cluster_too(runs: Runs) -> None:
    runs.checks(test_theirs=OTHERS, test_it=USUAL)
    data = runs.over([saying("gpu001", "pass")], "-k", "parametrized or word")
    assert counts(data) == Counter({"passed": 3, "deselected": 1})
    assert [result.check for result in runs.results] == ["host.word"]


def test_a_file_that_cannot_be_collected_is_shown_as_pytest_shows_it(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_broken="import no_such_module")
    data = runs.over(all_verdicts())
    assert data.ret == 2
    data.stdout.fnmatch_lines(["*ERROR collecting test_broken.py*", "*No module named 'no_such_module'*"])
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


def test_an_unreachable_node_is_one_finding_and_the_rest_is_incomplete(runs: Runs) -> None:
    runs.checks(test_it=LIGHT + DEVICES.removeprefix(SAYING))
    data = runs.over([unreached("gpu001"), unreached("gpu002")]).stdout
    data.fnmatch_lines(["INCOMPLETE  gpu[[]001-002]: unreachable: refused (2 checks)"])


OCCASIONS = """
    import pytest

    pytestmark = [pytest.mark.host]

    @pytest.mark.perf
    def test_load(node): pass

    @pytest.mark.ami
    def test_image(node): pass

    @pytest.mark.ami
    @pytest.mark.preflight
    def test_both(node): pass

    @pytest.mark.ami
    def test_image_the_usual_way(node, tmp_path): pass
"""


@pytest.mark.parametrize(
    ("chosen", "run"),
    [
        ("", {"host.both"}),
        ("host", {"host.both"}),
        ("ami", {"host.both", "host.image", "host.image_the_usual_way"}),
        ("perf", {"host.load"}),
        ("not perf", {"host.both"}),
    ],
)
def test_what_loads_the_hardware_and_what_is_of_an_image_alone_run_only_by_name(
    runs: Runs, chosen: str, run: set[str]
) -> None:
    runs.checks(test_it=OCCASIONS)
    runs.over([saying("gpu001", "pass")], "-m", chosen)
    assert {result.check for result in runs.results} == run


# Nothing that was checked


def test_a_node_to_which_no_check_applies_is_not_called_fit(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    data = runs.over([saying("gpu001", "not applicable"), saying("gpu002", "pass")])
    data.stdout.fnmatch_lines(["2 nodes: 1 fit as far as checked, 1 not checked: no check applies"])


def test_a_test_that_is_about_no_node_is_checked_where_nothing_else_is(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_own="def test_own():\n    pass\n")
    assert runs.over([saying("gpu001", "not applicable")]).ret == 0
