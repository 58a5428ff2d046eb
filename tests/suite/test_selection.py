"""Which checks run: selected by pytest's own options, marks, occasions and earlier failures."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.node import HEALTH_CHECK
from clusterproof.plugins.suite.state import occasion_of
from tests.builders.runs import (
    ALONE_OR_NOT,
    DEVICES,
    LIGHT,
    ROOT,
    SAYING,
    USUAL,
    VERDICTS,
    WAYS,
    Runs,
    all_verdicts,
    saying,
)

pytestmark = pytest.mark.any_user


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
    run = runs.over(all_verdicts())
    assert run.ret == 2
    run.stdout.fnmatch_lines(["*'prologue' not found in `markers` configuration option*"])


def test_every_mark_of_the_suite_is_registered(runs: Runs) -> None:
    output = runs.run("--markers").stdout
    output.fnmatch_lines(["@pytest.mark.gpu: *", "@pytest.mark.prolog: *", "@pytest.mark.hyperpod_nccl(section): *"])


@WAYS
@pytest.mark.parametrize(("option", "stops_after"), [("-x", 2), ("--maxfail=2", 4)])
def test_x_and_maxfail_stop_at_failures_and_gaps(runs: Runs, checks: str, option: str, stops_after: int) -> None:
    runs.checks(test_it=checks)
    run = runs.over(all_verdicts(), option)
    verdicts = list(VERDICTS.values())[:stops_after]
    left_out = [Verdict.INCOMPLETE] * (len(VERDICTS) - stops_after)
    assert runs.verdicts == dict(zip(VERDICTS, [*verdicts, *left_out], strict=True))
    assert sum(result.is_evaluated for result in runs.results) == stops_after
    assert run.ret == 1
    run.stdout.fnmatch_lines(["*stopping after *"])


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_collect_only_asks_no_node(runs: Runs, workers: list[str]) -> None:
    runs.checks(test_it=LIGHT)
    kept = runs.folder / "kept"
    run = runs.over(all_verdicts(), "--collect-only", "-q", "--record", str(kept), *workers)
    assert run.ret == 0
    assert not kept.exists()
    assert not runs.results_file.exists()
    if not workers:
        run.stdout.fnmatch_lines([f"test_it.py::test_word?{name}?" for name in VERDICTS])


def test_a_recording_has_no_answer_of_an_older_run_where_no_node_is_asked(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over([saying("gpu001", "pass")], "--record", "kept")
    runs.over([saying("gpu001", "pass")], "--record", "kept", str(ROOT / "checks"), "-k", "k8s_node_ready")
    assert not list((runs.folder / "kept" / "nodes").iterdir())


def test_a_recording_is_not_recorded_in_its_own_place(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over([saying("gpu001", "pass")], "--record", "kept")
    run = runs.run("--cluster=replay:kept", "--record", "./kept/")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["*--record kept is the recording that is replayed; expected another folder"])


OCCASIONS = """
    import pytest

    pytestmark = [pytest.mark.host]

    @pytest.mark.perf
    def test_load(node): pass

    @pytest.mark.ami
    def test_image(node): pass

    @pytest.mark.job
    def test_container(node): pass

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
        ("job", {"host.container"}),
        ("not job", {"host.both"}),
        ("not perf", {"host.both"}),
    ],
)
def test_what_loads_the_hardware_and_what_is_of_an_image_alone_run_only_by_name(
    runs: Runs, chosen: str, run: set[str]
) -> None:
    runs.checks(test_it=OCCASIONS)
    runs.over([saying("gpu001", "pass")], "-m", chosen)
    assert {result.check for result in runs.results} == run


FSX = ("storage.fsx_capacity", "storage.fsx_throughput", "storage.fsx_utilization")


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("is_capture", "chosen", "expected"),
    [
        (True, "fsx", dict.fromkeys(FSX, "AWS was not queried: no region of captured is known")),
        (True, "slurm_gres", {"control_plane.slurm_gres": "captured is not a Slurm cluster"}),
        (False, "k8s_node_ready", {"control_plane.k8s_node_ready": "small is not a Kubernetes cluster"}),
        (False, "node_recovery", {"control_plane.node_recovery": "small is not a HyperPod cluster"}),
    ],
)
def test_a_chosen_check_of_a_control_plane_that_the_cluster_does_not_have_says_so(
    runs: Runs, is_capture: bool, chosen: str, expected: dict[str, str], more: tuple[str, ...]
) -> None:
    if is_capture:
        folder = runs.folder / "captured" / "gpu001"
        folder.mkdir(parents=True)
        (folder / "df.txt").write_text("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/root 10 1 9 10% /\n")
        cluster = f"capture:{folder.parent}"
    else:
        cluster = runs.cluster([saying("gpu001", "pass"), saying("gpu002", "pass")])
    runs.run("--cluster", cluster, "--results", str(runs.results_file), str(ROOT / "checks"), "-k", chosen, *more)
    results = [(result.check, result.verdict, result.message) for result in runs.results]
    assert sorted(results) == [(check, Verdict.NOT_APPLICABLE, why) for check, why in sorted(expected.items())]
    assert [result.node for result in runs.results if result.is_of_node] == []  # the cluster is none of its nodes


OF_ANY_CLUSTER = """
from clusterproof.plugins.core.marks import mark
@mark.gpu
def test_two_nodes(cluster): assert len(cluster.members) == 2
"""


def test_another_authors_check_of_the_cluster_runs_on_any(runs: Runs) -> None:
    runs.checks(test_it=OF_ANY_CLUSTER)
    runs.over([saying("gpu001", "pass"), saying("gpu002", "pass")])
    assert [result.verdict for result in runs.results] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("markexpr", "occasion"),
    [
        ("", "preflight"),
        ("prolog", "prolog"),
        ("gpu and (prolog)", "prolog"),
        ("prolog or epilog", HEALTH_CHECK),
        ("not prolog", "preflight"),
        ("network and not (perf or ami)", "preflight"),
        ("not (not ami)", "ami"),
        ("not (gpu or not ami) and perf", "preflight"),
        ("(prolog", "prolog"),
        ("prolog))", "prolog"),
    ],
)
def test_a_mark_that_is_excluded_alone_or_in_brackets_is_no_occasion(markexpr: str, occasion: str) -> None:
    assert occasion_of(markexpr) == occasion
