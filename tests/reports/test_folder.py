"""Where a run's reports go, when there are none, and that no run fails because of them."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from clusterproof import checks
from clusterproof.reports import run_folder
from clusterproof.reports.formats import SUMMARY, Format, junit, markdown
from clusterproof.reports.results import read_results
from clusterproof.reports.run_folder import RUN_FILES, folder_of_its_own, point_latest, safe_name
from tests.builders.recordings import boot, gpu, node, nvml
from tests.builders.runs import ALONE_OR_NOT, LIGHT, Runs, all_verdicts, saying
from tests.reports.reported import FILES

NOW = datetime(2026, 11, 21, 14, 30, 5, tzinfo=timezone.utc)


def over(runs: Runs, *arguments: str) -> pytest.RunResult:
    """A run as typed by a user, over a node of each verdict."""
    runs.checks(test_it=LIGHT)
    return runs.plain("--cluster", runs.cluster(all_verdicts()), *arguments)


def test_a_plain_run_writes_its_reports_where_it_was_started(runs: Runs) -> None:
    ran = over(runs)
    (where,) = (runs.folder / "runs" / "small").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ", where.name)
    assert {path.name for path in where.iterdir()} == FILES
    ran.stdout.fnmatch_lines([f"report: runs/small/{where.name}/report.html"])
    assert ran.ret == 1


def test_latest_leads_to_the_last_run_and_git_passes_over_all(runs: Runs) -> None:
    over(runs)
    runs.plain("--cluster", runs.cluster([saying("gpu001", "pass")]))
    latest = runs.folder / "runs" / "latest"
    assert not latest.readlink().is_absolute()
    assert [entry.node for entry in read_results(latest / "results.jsonl")] == ["gpu001"]
    assert len(list((runs.folder / "runs" / "small").iterdir())) == 2
    assert (runs.folder / "runs" / ".gitignore").read_text() == "*\n"


def test_keep_removes_the_oldest_runs_of_the_cluster_and_nothing_else(runs: Runs) -> None:
    of_cluster = runs.folder / "runs" / "small"
    made = ["2026-01-01T00-00-00Z", "2026-01-01T00-00-00Z-2", "2026-01-01T00-00-00Z-10", "2026-01-02T00-00-00Z"]
    for name in (*made, "notes", "2025-01-01T00-00-00Z-broken"):
        (of_cluster / name).mkdir(parents=True)
        for file in RUN_FILES:
            (of_cluster / name / file).write_text("a report")
    (of_cluster / "2024-01-01T00-00-00Z").mkdir()
    (of_cluster / "2024-01-01T00-00-00Z" / "report.html").write_text("a page")  # the others are being written
    (of_cluster / "2024-01-02T00-00-00Z").symlink_to(of_cluster / "notes")
    ran = over(runs, "--keep", "3")
    left = {path.name for path in of_cluster.iterdir()}
    assert {name for name in made if name in left} == {"2026-01-01T00-00-00Z-10", "2026-01-02T00-00-00Z"}
    assert left >= {"notes", "2025-01-01T00-00-00Z-broken", "2024-01-01T00-00-00Z", "2024-01-02T00-00-00Z"}
    assert (of_cluster / "notes" / "report.html").exists()
    ran.stdout.fnmatch_lines(["report: runs/small/*/report.html (removed 2 older runs)"])


def test_clusters_whose_names_are_alike_in_a_path_have_a_folder_each() -> None:
    names = ["prod/eu", "prod eu", "prod_eu", "x" * 81, "x" * 82, "cluster", ""]
    assert len({safe_name(name) for name in names}) == len(names)


def test_runs_that_another_run_removes_meanwhile_are_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [folder_of_its_own(tmp_path, "small", NOW) for _ in range(3)]
    for run in runs:
        for file in RUN_FILES:
            (run / file).write_text("a report")
    listed = run_folder.sibling_runs(runs[2])
    monkeypatch.setattr(run_folder, "sibling_runs", lambda _: listed)
    assert [run_folder.remove_all_but(1, runs[2]) for _ in range(2)] == [2, 2]
    assert run_folder.size_bytes(listed) == len(RUN_FILES) * len("a report")


def test_the_folder_of_all_runs_says_when_it_has_grown_large(runs: Runs) -> None:
    old = runs.folder / "runs" / "small" / "2026-01-01T00-00-00Z"
    old.mkdir(parents=True)
    for file in RUN_FILES:
        (old / file).write_text("a report")
    with (old / "results.jsonl").open("wb") as large:
        large.truncate(1_500_000_000)
    ran = over(runs)
    ran.stdout.fnmatch_lines(["report: * (2 runs of this cluster hold 1.5 GB; --keep 20 removes older ones)"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keep", "0"], "--keep is 0; expected 1 or more runs"),
        (["--keep", "3", "--report", "out"], "--keep with --report: expected one of the two*"),
        (["--keep", "3", "--no-report"], "--keep with --no-report: expected one of the two*"),
        (["--keep", "3", "--redact"], "--keep with --redact: *"),
        (["--report-url", "reports"], "--report-url is 'reports'; expected http(s)://*"),
        (["--report-url", "https://x/?token=1"], "--report-url is 'https://x/?token=1'; expected http(s)://*"),
        (["--report-url", "https://x", "--no-report"], "--report-url with --no-report: expected one of the two*"),
    ],
)
def test_a_number_of_runs_to_keep_that_means_nothing_is_refused(runs: Runs, arguments: list[str], words: str) -> None:
    ran = over(runs, *arguments)
    assert ran.ret == 4
    ran.stderr.fnmatch_lines([f"*{words}"])


def test_report_names_the_folder(runs: Runs) -> None:
    ran = over(runs, "--report", "out/of/it")
    assert {path.name for path in (runs.folder / "out/of/it").iterdir()} == FILES
    assert not (runs.folder / "runs").exists()
    ran.stdout.fnmatch_lines(["report: out/of/it/report.html"])


@pytest.mark.parametrize(
    "arguments",
    [["--no-report"], ["--collect-only"], ["-k", "nothing_of_that_name"], ["--nodes", "gpu[1-"]],
    ids=["--no-report", "--collect-only", "no check", "a bad command line"],
)
def test_nothing_is_written_where_there_is_nothing_to_report(runs: Runs, arguments: list[str]) -> None:
    ran = over(runs, *arguments)
    assert not (runs.folder / "runs").exists()
    assert "report: " not in ran.stdout.str()


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_the_reports_of_a_run_are_written_once(runs: Runs, workers: list[str]) -> None:
    over(runs, *workers)
    (where,) = (runs.folder / "runs" / "small").iterdir()
    assert len(read_results(where / "results.jsonl")) == 8


def test_a_folder_that_cannot_be_written_costs_one_line_and_no_verdict(runs: Runs) -> None:
    (runs.folder / "runs").write_text("a file of somebody's")
    ran = over(runs)
    messages = [line for line in ran.outlines if "no report" in line]
    assert len(messages) == 1
    assert re.match(
        r"no report, or not all of it: .*runs: Not a directory; expected a folder \(--report DIR", messages[0]
    )
    assert ran.ret == 1
    assert "8 nodes: 3 fit" in ran.stdout.str()


def test_a_form_that_breaks_costs_one_line_and_none_of_the_others(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "FORMAT", Format(SUMMARY, lambda run: str(run.cluster.targets[99])))
    ran = over(runs, "--report", "out")
    ran.stdout.fnmatch_lines(["no report, or not all of it: IndexError: *"])
    assert {path.name for path in (runs.folder / "out").iterdir()} == FILES - {"summary.md"}
    assert ran.ret == 1


def test_a_latest_that_is_somebody_elses_is_left_alone(runs: Runs) -> None:
    (runs.folder / "runs" / "latest").mkdir(parents=True)
    ran = over(runs)
    assert (runs.folder / "runs" / "latest").is_dir()
    assert not (runs.folder / "runs" / "latest").is_symlink()
    ran.stdout.fnmatch_lines(["no report, *latest is not a link *"])


def test_a_run_that_is_stopped_reports_what_it_had_evaluated(runs: Runs) -> None:
    stop = 'if node.name == "gpu003":\n            raise KeyboardInterrupt'
    runs.checks(test_it=LIGHT.replace("        say(node", f"        {stop}\n        say(node"))
    cluster = runs.cluster([saying(f"gpu{number:03d}", "pass") for number in (1, 2, 3, 4)])
    process = runs.started("--cluster", cluster, "--report", "out", "-p", "no:cacheprovider")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 2, output
    assert {path.name for path in (runs.folder / "out").iterdir()} == FILES
    assert "4 nodes: 2 fit, 2 not proven" in (runs.folder / "out/summary.txt").read_text()


def test_the_summary_is_put_behind_that_of_a_github_job(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = runs.folder / "job.md"
    job.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))
    over(runs, "--report", "out")
    assert job.read_text() == "# before\n" + (runs.folder / "out/summary.md").read_text()


def test_redacted_reports_name_nothing(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    evidence = node("secretnode7", boot=boot("bad", hostname="secretnode7"), nvml=nvml(gpu(0)))
    cluster = runs.cluster(
        [evidence, node("secretnode8", boot=boot("pass", hostname="secretnode8"))], name="secretcluster"
    )
    ran = runs.plain("--cluster", cluster, "--redact")
    (where,) = (runs.folder / "runs" / "cluster").iterdir()
    names = ("secretnode", "secretcluster", str(evidence.collectors["nvml"].value["gpus"][0]["uuid"]))
    for path in [*where.iterdir()]:
        text = path.read_text(encoding="utf-8")
        assert not [name for name in names if name in text], path.name
    assert "secretcluster" not in next(line for line in ran.outlines if line.startswith("report:"))


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_case_of_junit_links_to_the_file_of_its_check(runs: Runs, workers: list[str]) -> None:
    named = [
        "--report",
        "out",
        "--pyargs",
        "clusterproof.checks.gpu",
        "test_it.py",
        "-k",
        "no_uncorrected_ecc or word",
        *workers,
    ]
    assert over(runs, *named, "-o", "junit_family=xunit1").ret == 1
    (own,), (ecc,) = sources_of(runs, "test_it.py"), sources_of(runs, "clusterproof/checks/gpu/test_memory.py")
    assert "def test_word" in own
    assert "def test_no_uncorrected_ecc" in ecc
    over(runs, *named, "-o", "junit_family=xunit2")
    assert 'file="' not in (runs.folder / "out" / "junit.xml").read_text(encoding="utf-8")
    over(runs, *named, "-o", "junit_family=xunit1", "--redact")
    assert sources_of(runs, "test_it.py") == []


def sources_of(runs: Runs, file: str) -> list[str]:
    """The source lines that cases of `junit.xml` name in a check's file: its decorators and `def`."""
    cases = ET.parse(runs.folder / "out" / "junit.xml").iter("testcase")
    path = Path(checks.__file__).parents[2] / file if file.startswith("clusterproof/") else runs.folder / file
    lines = path.read_text(encoding="utf-8").splitlines()
    return ["\n".join(lines[int(case.attrib["line"]) - 1 :][:6]) for case in cases if case.get("file") == file]


def test_two_runs_of_one_second_have_a_folder_each(tmp_path: Path) -> None:
    first, second = (folder_of_its_own(tmp_path, "prod", NOW) for _ in range(2))
    assert (first.name, second.name) == ("2026-11-21T14-30-05Z", "2026-11-21T14-30-05Z-2")
    point_latest(tmp_path, first)
    point_latest(tmp_path, second)
    assert (tmp_path / "runs/latest").resolve() == second


@pytest.mark.parametrize(
    ("cluster", "name"),
    [
        ("prod-west.2", "prod-west.2"),
        ("gpu[001-016]", "gpu_001-016_-6c5b6492"),
        ("../../etc", "_.._etc-74ccf3c5"),
        ("..", "cluster-5ec1f7e7"),
        ("", "cluster-e3b0c442"),
        ("latest", "latest-5e1e2bca"),
        ("a\x00\nb", "a_b-f4b437fb"),
        ("x" * 1000, "x" * 80 + "-44f83544"),
    ],
)
def test_a_cluster_of_any_name_has_a_folder(cluster: str, name: str) -> None:
    assert safe_name(cluster) == name


def test_the_results_have_the_form_of_the_option(runs: Runs) -> None:
    over(runs, "--results", str(runs.results_file))
    ours = next((runs.folder / "runs/small").iterdir()) / "results.jsonl"
    assert ours.read_bytes() == runs.results_file.read_bytes()
    assert json.loads(ours.read_text().splitlines()[0])["schema"] == 3


def test_what_cannot_be_written_leaves_no_report_of_an_earlier_run_in_its_place(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(runs, "--report", "out")
    monkeypatch.setattr(junit, "FORMAT", Format("junit.xml", lambda run: str(run.cluster.targets[99])))
    over(runs, "--report", "out")
    assert {path.name for path in (runs.folder / "out").iterdir()} == FILES - {"junit.xml"}


def test_results_that_cannot_be_begun_leave_no_report_of_an_earlier_run_either(runs: Runs) -> None:
    out = runs.folder / "out"
    (out / "results.jsonl").mkdir(parents=True)
    (out / "report.html").write_text("small: fit")
    ran = over(runs, "--report", "out")
    ran.stdout.fnmatch_lines(["no report, or not all of it: *results.jsonl: *"])
    assert {path.name for path in out.iterdir()} == FILES
    assert "not fit" in (out / "report.html").read_text()


def test_the_summary_is_put_behind_that_of_a_github_job_whatever_else_is_not_written(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = runs.folder / "job.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))
    monkeypatch.setattr(junit, "FORMAT", Format("junit.xml", lambda run: str(run.cluster.targets[99])))
    ran = over(runs, "--report", "out")
    assert job.read_text() == (runs.folder / "out/summary.md").read_text()
    ran.stdout.fnmatch_lines(["no report, or not all of it: IndexError: *"])
