"""A policy in a run: what it disables, reinterprets, expects and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.ending import EXIT_UNCHECKED
from tests.builders.runs import LIGHT, WAYS, Runs, counts, saying

CHECKS = Path(__file__).parents[2] / "checks"
FAR, PAST = "2999-12-31", "2020-01-31"
DISABLED = '[disabled."host.word"]\nreason = "nobody listens"\nuntil = {day}\n'


@WAYS
def test_a_disabled_check_is_not_applicable_and_says_why(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    runs.pytester.makefile(".toml", clusterproof=DISABLED.format(day=FAR))
    run = runs.over([saying("gpu001", "bad")])
    (result,) = runs.results
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.message == "disabled by clusterproof.toml until 2999-12-31: nobody listens"
    assert run.ret == EXIT_UNCHECKED  # no other check ran
    run.stdout.fnmatch_lines(["policy: host.word is disabled until 2999-12-31: nobody listens"])


@WAYS
def test_a_check_runs_again_once_its_exception_has_ended(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    runs.pytester.makefile(".toml", clusterproof=DISABLED.format(day=PAST))
    run = runs.over([saying("gpu001", "bad")])
    assert counts(run) == {"failed": 1}
    run.stdout.fnmatch_lines(["policy: host.word runs: its exception ended on 2020-01-31 (nobody listens)"])


@WAYS
@pytest.mark.parametrize(
    ("word", "rule", "verdict", "exit_code"),
    [
        ("bad", 'fail = "concern"', Verdict.CONCERN, 0),
        ("concern", 'concern = "fail"', Verdict.FAIL, 1),
        ("incomplete", 'incomplete = "fail"', Verdict.FAIL, 1),
        ("not applicable", '"not applicable" = "fail"', Verdict.FAIL, 1),
        ("pass", 'fail = "concern"', Verdict.PASS, 0),
    ],
)
def test_a_verdict_is_read_as_the_policy_says(
    runs: Runs, checks: str, word: str, rule: str, verdict: Verdict, exit_code: int
) -> None:
    runs.checks(test_it=checks)
    runs.pytester.makefile(".toml", clusterproof=f'[verdicts."host.word"]\n{rule}\n')
    run = runs.over([saying("gpu001", word)])
    assert [result.verdict for result in runs.results] == [verdict]
    assert run.ret == exit_code


def test_a_verdict_is_read_so_too_where_there_is_no_control_plane_to_ask(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest
        from clusterproof import reads

        @pytest.mark.control_plane
        @reads("slurm")
        def test_partitions(cluster):
            assert cluster.slurm.partitions
        """
    )
    assert runs.over([saying("gpu001", "pass")]).ret == EXIT_UNCHECKED
    runs.pytester.makefile(".toml", clusterproof='[verdicts."control_plane.partitions"]\n"not applicable" = "fail"\n')
    assert runs.over([saying("gpu001", "pass")]).ret == 1
    (result,) = runs.results
    words = "small is not a Slurm cluster (by policy: not applicable of control_plane.partitions is fail)"
    assert (result.verdict, result.message) == (Verdict.FAIL, words)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_that_is_named_is_refused(runs: Runs, text: str) -> None:
    (runs.pytester.path / "golden.toml").write_text(text)
    ran = runs.run("--cluster", "demo", "--policy", "golden.toml")
    ran.stderr.fnmatch_lines(["*golden.toml is empty; expected a policy (docs/policy.md)*"])


def test_a_rule_about_no_check_is_refused_with_the_nearest_name(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.pytester.makefile(".toml", clusterproof=DISABLED.format(day=FAR).replace("host.word", "gpu.row_remaps"))
    run = runs.over([saying("gpu001", "pass")])
    assert run.ret == 4
    run.stderr.fnmatch_lines(["*[[]disabled]: 'gpu.row_remaps' is not a check (did you mean gpu.row_remap?)*"])


def test_what_a_refused_policy_would_change_is_not_shown(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.pytester.makefile(".toml", clusterproof=DISABLED.format(day=FAR).replace("host.word", "gpu.row_remaps"))
    run = runs.over([saying("gpu001", "pass")], "-p", "clusterproof.plugins.suite.terminal")
    assert (run.ret, "policy:" in run.stdout.str()) == (4, False)


@pytest.mark.parametrize(
    ("policy", "is_said"), [("[expect]\ngpus = 8\n", True), ('[versions]\ncuda = "== 12.9"\n', False)]
)
def test_an_image_that_is_compared_with_nothing_is_said(runs: Runs, policy: str, is_said: bool) -> None:
    runs.checks(test_it=LIGHT)
    runs.pytester.makefile(".toml", clusterproof=policy)
    lines = runs.over([saying("gpu001", "pass")], "-m", "ami").stdout.str().splitlines()
    assert ("policy: clusterproof.toml" in lines) is True
    assert any("has no golden manifest: the image is compared with none" in line for line in lines) is is_said


def test_a_rule_for_a_packaged_check_that_this_run_leaves_out_is_fine(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.pytester.makefile(".toml", clusterproof=DISABLED.format(day=FAR).replace("host.word", "gpu.row_remap"))
    assert runs.over([saying("gpu001", "pass")]).ret == 0


def test_the_policys_expectations_give_way_to_the_command_lines(runs: Runs) -> None:
    expecting = LIGHT.replace("say(node.boot.kernel)", 'assert node.expected("gpus") == 4; say(node.boot.kernel)')
    runs.checks(test_it=expecting)
    runs.pytester.makefile(".toml", clusterproof="[expect]\ngpus = 8\n")
    assert counts(runs.over([saying("gpu001", "pass")])) == {"failed": 1}
    assert counts(runs.over([saying("gpu001", "pass")], "--expect", "gpus=4")) == {"passed": 1}


@pytest.mark.parametrize("workers", ["-n0", "-n2"], ids=["alone", "workers"])
@WAYS
def test_a_check_of_another_author_goes_by_the_policys_numbers(runs: Runs, checks: str, workers: str) -> None:
    runs.checks(test_it=checks.replace("say(node.boot.kernel)", 'assert node.threshold("shm.minimum_gib") == 32'))
    assert counts(runs.over([saying("gpu001", "pass")], workers)) == {"failed": 1}
    runs.pytester.makefile(".toml", clusterproof="[thresholds.shm]\nminimum_gib = 32\n")
    assert counts(runs.over([saying("gpu001", "pass")], workers)) == {"passed": 1}


@WAYS
def test_a_check_of_a_sites_own_has_numbers_of_its_own_in_the_policy(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks.replace("say(node.boot.kernel)", 'assert node.threshold("site.word") == 32'))
    runs.over([saying("gpu001", "pass")])
    (result,) = runs.results
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message == "the policy sets no word; expected word = NUMBER under [thresholds.site]"
    runs.pytester.makefile(".toml", clusterproof="[thresholds.site]\nword = 32\n")
    assert counts(runs.over([saying("gpu001", "pass")])) == {"passed": 1}


def test_workers_read_verdicts_by_the_same_policy(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.pytester.makefile(".toml", clusterproof='[verdicts."host.word"]\nfail = "concern"\n')
    run = runs.over([saying("gpu001", "bad"), saying("gpu002", "pass")], "-n2")
    assert counts(run) == {"passed": 1, "concern": 1}
