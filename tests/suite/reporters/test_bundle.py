"""`--bundle`: its content, that it replays, that no name leaks, and that it is never left half written."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.suite.reporters.bundle import MAX_NAME, ROOT, Member, files_of, safe_name, write_bundle
from clusterproof.reports.results import read
from tests.builders.recordings import boot, node, nvml, unreached
from tests.builders.runs import ALONE_OR_NOT, LIGHT, VERDICTS, Runs, all_verdicts, saying
from tests.reports.reported import FILES
from tests.suite.reporters.bundles import contents, unpack

pytestmark = pytest.mark.any_user

FIXED = {"README.txt", "bundle.json", "summary.txt", "results.jsonl", "recording/cluster.json"}


def bundled(runs: Runs, *arguments: str) -> dict[str, bytes]:
    runs.checks(test_it=LIGHT)
    run = runs.over(all_verdicts(), "--bundle=b.tar.zst", *arguments)
    run.stdout.fnmatch_lines(["bundle: b.tar.zst (* MB)"])
    assert run.ret == 1
    return contents(runs.folder / "b.tar.zst")


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_bundle_has_recording_results_reports_policy_and_versions(runs: Runs, workers: list[str]) -> None:
    (runs.folder / "clusterproof.toml").write_text("[expect]\ngpus = 8\n", encoding="utf-8")
    members = bundled(runs, "--junitxml=junit.xml", "--html=page.html", "--self-contained-html", *workers)
    nodes = {f"recording/nodes/{name}.json" for name in VERDICTS}
    assert FIXED | nodes | {"policy.toml", "reports/junit.xml", "reports/page.html"} <= set(members)
    assert members["policy.toml"] == b"[expect]\ngpus = 8\n"
    assert members["reports/junit.xml"] == (runs.folder / "junit.xml").read_bytes()
    results = list(read(members["results.jsonl"].decode().splitlines()))
    assert {result.node: result.verdict for result in results} == VERDICTS
    assert b"The word is wrong" in members["summary.txt"]
    about = json.loads(members["bundle.json"])
    assert (about["cluster"], about["nodes"], about["exit_code"], about["is_redacted"]) == ("small", 8, 1, False)
    assert {"python", "pytest", "boto3"} <= set(about["versions"])


def test_a_bundle_names_a_test_that_broke_in_its_verdict(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_other="def test_other(): assert False")
    runs.over([saying("gpu001", "pass")], "--bundle=b.tar.zst")
    about = json.loads(contents(runs.folder / "b.tar.zst")["bundle.json"])
    assert about["verdict"] == "1 node: 1 fit; cluster-wide checks: not proven (evidence is missing)"


def test_its_recording_gives_the_same_verdicts(runs: Runs) -> None:
    bundled(runs)
    unpack(runs.folder / "b.tar.zst", runs.folder / "out")
    runs.results_file.unlink()
    runs.run(
        "--cluster", f"replay:{runs.folder}/out/{ROOT}/recording", "--results", str(runs.results_file), "test_it.py"
    )
    assert runs.verdicts == VERDICTS


def test_a_redacted_bundle_has_no_names(runs: Runs) -> None:
    name, serial, address = "acme-gpu-17.corp.example", "1650999000111", "10.77.66.55"
    sick = node(name, boot=boot(f"bad of {name}", hostname=name), nvml=nvml({"index": 0, "serial": serial}))
    runs.checks(test_it=LIGHT)
    reports = ["--junitxml=junit.xml", "--html=page.html", "--self-contained-html", "--report", "out"]
    policy = runs.folder / "clusterproof.toml"
    exception = '[disabled."host.swap"]\nreason = "so"\nuntil = 2999-12-31\nnodes = "acme-gpu-[17-18].corp.example"\n'
    policy.write_text(f"# for {name}\n[expect]\ngpus = 8\n{exception}", encoding="utf-8")
    silent = unreached("acme-gpu-18.corp.example", detail=f"{address}:22 refuses the connection")
    runs.over([sick, silent, saying("acme-gpu-19.corp.example", "pass")], "--redact", "--bundle=b.tar.zst", *reports)
    members = contents(runs.folder / "b.tar.zst")
    assert json.loads(members["bundle.json"])["is_redacted"]
    assert {"reports/junit.xml", "reports/report.html"} <= members.keys()
    for member, content in members.items():
        for word in ("acme-gpu", serial, address):
            assert word not in member
            assert word.encode() not in content, member


def test_the_reports_of_a_plain_run_are_in_it_and_its_history_is_not(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.plain("--cluster", "local", "--report", "out", "--history=out/history.sqlite", "--bundle=out/one.tar.zst")
    runs.plain("--cluster", runs.cluster(all_verdicts()), "--bundle=two.tar.zst")
    for bundle in ("out/one.tar.zst", "two.tar.zst"):
        reports = {name for name in contents(runs.folder / bundle) if name.startswith("reports/")}
        assert reports == {f"reports/{name}" for name in FILES}
    assert (runs.folder / "out/history.sqlite").exists()


def test_a_node_with_a_hostile_name_writes_nowhere_else(runs: Runs, tmp_path: Path) -> None:
    runs.checks(test_it=LIGHT)
    names = ["../../../../etc/passwd", "/root/x", "..", "ü" * 300, "C:\\x", "con"]
    runs.over([saying(name, "bad") for name in names], "--bundle=b.tar.zst")
    members = contents(runs.folder / "b.tar.zst")
    assert sum(member.startswith("recording/nodes/") for member in members) == len(names)
    assert all(member.isascii() and member.isprintable() and "\\" not in member for member in members)
    unpack(runs.folder / "b.tar.zst", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [ROOT]


def test_report_files_are_those_of_this_run_and_no_link_is_followed(tmp_path: Path) -> None:
    reports, secret = tmp_path / "reports", tmp_path / "secret"
    (reports / "deep").mkdir(parents=True)
    secret.write_text("secret", encoding="utf-8")
    (reports / "link").symlink_to(secret)
    (reports / "new.html").write_text("new", encoding="utf-8")
    (reports / "deep" / ".hidden\n").write_text("odd", encoding="utf-8")
    (reports / "old.html").write_text("old", encoding="utf-8")
    os.utime(reports / "old.html", (1, 1))
    files = dict(files_of(reports, time.time() - 60))
    assert files == {"reports/new.html": b"new", "reports/deep/%2Ehidden%0A": b"odd"}
    assert dict(files_of(tmp_path / "absent.xml", 0.0)) == {}


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a\x00b", "\udcff", "x" * 999, "ok.html", "C:\\x"])
def test_a_safe_name_is_one(name: str) -> None:
    safe = safe_name(name)
    assert safe
    assert len(safe) <= MAX_NAME
    assert not {"/", "\\", "\x00", "\n"} & set(safe)
    assert not safe.startswith(".")


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "./x", "a\\b", "a\nb"])
def test_a_member_whose_name_leads_out_is_refused_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name for a file"):
        write_bundle(tmp_path / "b.tar.zst", [("fine", b"x"), (name, b"x")], 1.0)
    assert list(tmp_path.iterdir()) == []


def test_what_breaks_off_leaves_the_bundle_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.zst"
    write_bundle(path, [("one", b"1")], 1.0)

    def breaking() -> Iterator[Member]:
        yield "two", os.urandom(1_000_000)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_bundle(path, breaking(), 1.0)
    assert contents(path) == {"one": b"1"}
    assert [file.name for file in tmp_path.iterdir()] == ["b.tar.zst"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_bundle_that_cannot_be_written_costs_a_line_and_no_verdict(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "b.tar.zst")

    monkeypatch.setattr("clusterproof.plugins.suite.reporters.bundle.write_bundle", refused)
    runs.checks(test_it=LIGHT)
    run = runs.over(all_verdicts(), "--bundle=b.tar.zst")
    assert (run.ret, runs.verdicts) == (1, VERDICTS)
    run.stdout.fnmatch_lines(["warning: no bundle: *Permission denied*"])


def test_a_bundle_of_another_form_is_refused(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over(all_verdicts(), "--bundle=b.zip")
    assert run.ret == 4
    assert "expected a file that ends in .tar.zst" in run.stderr.str()


def test_listing_tests_writes_none(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over(all_verdicts(), "--bundle=b.tar.zst", "--collect-only")
    assert not (runs.folder / "b.tar.zst").exists()
