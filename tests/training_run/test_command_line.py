"""`pytest --run PATH`: a training run is evaluated like a cluster, with the same verdicts, reports and exit codes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.sample_columns import SUFFIX, Header, SampledGpu, SamplesFile, columns_for
from tests.builders.recordings import node
from tests.builders.runs import Runs

CHECKS = ("-p", "no:cacheprovider", "--pyargs", "clusterproof.checks.run")


def trace(path: Path, slow: float = 1.0, steps: int = 40) -> str:
    """A table of four ranks, of which rank 2 computes this many times as long."""
    rows = (f"{rank},{step},forward,{slow if rank == 2 else 1.0}\n" for step in range(steps) for rank in range(4))
    path.write_text("rank,step,operation,duration\n" + "".join(rows), encoding="utf-8")
    return str(path)


def verdicts(runs: Runs) -> dict[str, Verdict]:
    return {result.check: result.verdict for result in runs.results}


def over(runs: Runs, *arguments: str) -> pytest.RunResult:
    return runs.run("--results", str(runs.results_file), *arguments, *CHECKS)


@pytest.mark.parametrize("marks", [(), ("-m", "run"), ("-m", "run and not prolog")])
def test_a_slow_rank_fails_the_run_without_any_cluster(runs: Runs, marks: tuple[str, ...]) -> None:
    ran = over(runs, "--run", trace(runs.folder / "trace.csv", slow=1.5), "-k", "slow_rank", *marks)
    assert ran.ret == 1
    assert verdicts(runs) == {"run.slow_rank": Verdict.FAIL}
    assert runs.results[0].devices == ("rank 2",)
    ran.stdout.fnmatch_lines(
        [
            "run: trace: 1 file, 4 ranks, 40 steps",
            "FAIL        Compute time of each rank: run trace*",
            "*trace: rank 2: computes 1.5 times as long as its 3 peers*",
            "the training run failed",
        ]
    )


def test_a_run_without_such_evidence_is_incomplete_and_never_green(runs: Runs) -> None:
    ran = over(runs, "--run", trace(runs.folder / "trace.csv", steps=3))
    assert ran.ret == 10
    assert set(verdicts(runs).values()) <= {Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE}
    ran.stdout.fnmatch_lines(["*3 steps; expected at least 20: trace more of them*"])


def test_formats_that_nobody_gave_are_one_line_and_with_v_what_writes_them(runs: Runs) -> None:
    path = trace(runs.folder / "trace.csv")
    ran = over(runs, "--run", path)
    lines = [line for line in ran.outlines if line.startswith("INCOMPLETE")]
    without = [result.message for result in runs.results if result.verdict is Verdict.INCOMPLETE]
    assert lines == [f"INCOMPLETE  trace: {len(without)} rules need other files; -v lists them and what writes them"]
    ran = over(runs, "--run", path, "-v")
    causes = sum(line.startswith("INCOMPLETE  trace: no file records") for line in ran.outlines)
    assert causes == len(set(without))
    for expected in ("*NCCL_INSPECTOR_ENABLE=1*", "*checks: run.batch_size, *"):
        ran.stdout.fnmatch_lines([expected])


def test_reports_have_them_in_one_line_and_the_page_folds_what_writes_them(runs: Runs) -> None:
    folder = runs.folder / "report"
    arguments = ("--run", trace(runs.folder / "trace.csv"), "--report", str(folder))
    assert runs.run(*arguments, "--html", "own.html", *CHECKS).ret == 10
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("summary.txt", "summary.md", "report.html")}
    texts["own.html"] = (runs.folder / "own.html").read_text(encoding="utf-8")
    for name, words_of_it in texts.items():
        assert len(re.findall("[0-9]+ rules need other files; -v lists them and what writes them", words_of_it)) == 1, (
            name
        )
    for name in ("summary.txt", "summary.md"):
        assert "no file records" not in texts[name], name
    for name in ("report.html", "own.html"):
        assert "<li>no file records where ranks wait; for a run that hangs give" in texts[name], name


def test_the_one_format_that_nobody_gave_is_named(runs: Runs) -> None:
    ran = over(runs, "--run", trace(runs.folder / "trace.csv"), "-k", "slow_rank or first_missing")
    ran.stdout.fnmatch_lines(["INCOMPLETE  trace: no file records where ranks wait; for a run that hangs give*"])


def test_a_healthy_trace_passes_what_it_has_evidence_of(runs: Runs) -> None:
    ran = over(runs, "--run", trace(runs.folder / "trace.csv"), "-k", "slow_rank or work_uneven")
    assert ran.ret == 0
    assert set(verdicts(runs).values()) == {Verdict.PASS}


def test_several_files_are_of_one_run(runs: Runs) -> None:
    rows = Path(trace(runs.folder / "trace.csv", slow=1.5)).read_text(encoding="utf-8").splitlines(keepends=True)
    arguments = []
    for rank in range(4):
        file = runs.folder / f"rank{rank}.csv"
        file.write_text(rows[0] + "".join(rows[1 + rank :: 4]), encoding="utf-8")
        arguments += ["--run", str(file)]
    assert over(runs, *arguments, "-k", "slow_rank").ret == 1
    assert runs.results[0].devices == ("rank 2",)


def test_beside_a_cluster_both_are_evaluated(runs: Runs) -> None:
    cluster = runs.cluster([node("gpu001")])
    ran = over(runs, "--cluster", cluster, "--run", trace(runs.folder / "trace.csv", slow=1.5), "-k", "slow_rank")
    assert ran.ret == 1
    assert runs.results[0].node == "trace"
    assert {line.partition(":")[0] for line in ran.outlines} >= {"cluster", "run"}


def test_a_cluster_alone_has_no_checks_of_runs(runs: Runs) -> None:
    ran = over(runs, "--cluster", runs.cluster([node("gpu001")]), "-m", "run")
    assert ran.ret == 5
    ran.stdout.fnmatch_lines(["-m run evaluates a training run, and none is named; expected --run PATH"])


def test_every_report_has_the_run(runs: Runs) -> None:
    folder = runs.folder / "report"
    arguments = ("--run", trace(runs.folder / "trace.csv", slow=1.5), "--report", str(folder))
    ran = runs.run(*arguments, "--junitxml", "own.xml", "--html", "own.html", *CHECKS)
    assert ran.ret == 1
    for name in ("report.html", "summary.md", "summary.txt", "junit.xml", "results.jsonl"):
        text = (folder / name).read_text(encoding="utf-8")
        assert "rank 2" in text, name
    assert "rank 2" in (runs.folder / "own.html").read_text(encoding="utf-8")
    failed = [case for case in ET.parse(runs.folder / "own.xml").iter("testcase") if case.find("failure") is not None]
    assert [case.attrib["name"] for case in failed] == ["test_slow_rank[trace]"]


def test_a_policy_overrules_thresholds_and_readings(runs: Runs) -> None:
    (runs.folder / "site.toml").write_text("[thresholds]\nrun.slow_rank_fail = 2.0\n", encoding="utf-8")
    arguments = ("--run", trace(runs.folder / "trace.csv", slow=1.5), "--policy", "site.toml", "-k", "slow_rank")
    assert over(runs, *arguments).ret == 0
    assert verdicts(runs) == {"run.slow_rank": Verdict.CONCERN}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run", "nowhere"), "*--run: nowhere: No such file or directory; expected a file that can be read"),
        (("--run", "notes.md"), "*--run: notes.md: its form is not known; expected a log, trace, table, *"),
        (
            ("--run", "et.json"),
            "*et.json: an execution trace of PyTorch, which has operators and no steps; expected the profiler's trace*",
        ),
        (
            ("--run", "trace.csv", "--nodes", "gpu1"),
            "*--nodes is about nodes, and --run has none; expected --cluster X*",
        ),
        (("--run", "trace.csv", "--record", "x"), "*--record is about nodes, and --run has none*"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_evaluated(runs: Runs, words: tuple[str, ...], said: str) -> None:
    trace(runs.folder / "trace.csv")
    (runs.folder / "notes.md").write_text("# notes\n", encoding="utf-8")
    (runs.folder / "et.json").write_text('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', encoding="utf-8")
    ran = over(runs, *words)
    assert ran.ret == 4
    ran.stderr.fnmatch_lines([said])


def test_a_recording_with_samples_is_evaluated_as_a_run_where_runs_are_asked_for(runs: Runs) -> None:
    cluster = runs.cluster([node("gpu001")])
    file = SamplesFile(Path(cluster.removeprefix("replay:")) / f"gpu001{SUFFIX}")
    file.begin(Header("gpu001", "", 1.7e9, 10.0, (SampledGpu(memory_mib=80_000.0),), columns_for(1)))
    for number in range(60):
        file.sample(10.0 * number, [20.0, *[0.0] * (len(columns_for(1)) - 1)])
    file.flush()
    ran = over(runs, "--cluster", cluster, "-m", "run", "-k", "gpu_busy")
    assert (ran.ret, verdicts(runs)) == (0, {"run.gpu_busy": Verdict.CONCERN})
    ran.stdout.fnmatch_lines(["run: gpu001: 1 file, 0 ranks, 0 steps"])
    assert over(runs, "--cluster", cluster, "-k", "gpu_busy").ret == 5  # run only if selected


def test_workers_of_xdist_give_the_same_verdicts(runs: Runs) -> None:
    ran = over(runs, "--run", trace(runs.folder / "trace.csv", slow=1.5), "-n", "2")
    assert ran.ret == 1
    assert verdicts(runs)["run.slow_rank"] is Verdict.FAIL
