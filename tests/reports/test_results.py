"""`--results`: the file's content, which is there whatever happens to the run."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.opened import append
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding, Result, from_json, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import results as results_module
from clusterproof.reports.results import ResultsFile, read_results
from tests.builders.recordings import boot, node, nvml, unreached
from tests.builders.runs import DEVICES, LIGHT, ROOT, SAYING, USUAL, VERDICTS, WAYS, Runs, all_verdicts, saying
from tests.reports.interrupted import DEADLINE_S, STALL, wait_for, wait_for_results
from tests.tiers import each_with_some

SCHEMA: dict[str, Any] = json.loads(
    importlib.resources.files("clusterproof.reports").joinpath("result.schema.json").read_text(encoding="utf-8")
)
RESULT = SCHEMA["$defs"]["result"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HOW = [(checks, workers) for workers in ([], ["-n2"]) for checks in (LIGHT, USUAL)]


def test_the_schema_is_one_and_describes_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    fields = RESULT["properties"]
    assert set(fields) == set(RESULT["then"]["required"]) == set(Result("a.b", "n", Verdict.PASS).to_json())
    assert all(field["description"] for field in fields.values())
    assert "seconds" in fields["duration_s"]["description"]
    assert fields["verdict"]["enum"] == [verdict.value for verdict in Verdict]


@WAYS
def test_every_record_of_a_run_has_the_form_of_the_schema(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks, test_gpu=DEVICES)
    loud = node("gpu009", boot=boot("\ud800\x1b\u2028" * 5_000), nvml=nvml(driver="\x00"), platform=[])
    silent = [unreached(f"gpu1{number:02d}", why, "\x1b[2J") for number, why in enumerate(Unreached)]
    runs.over([*all_verdicts(), loud, *silent])
    assert len(runs.records) == 2 * (len(VERDICTS) + 1 + len(silent))
    for line in lines(runs.results_file):
        VALIDATOR.validate(line)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def written(folder: Path, *results: Result) -> list[dict[str, Any]]:
    with ResultsFile(folder / "results.jsonl") as file:
        file.write_rest(results)
    return lines(folder / "results.jsonl")


ABOUT: dict[str, Any] = {"title": "ECC", "meaning": "Data is corrupted.", "remedy": "Replace it.", "severity": "none"}
FINDING = Finding(Verdict.INCOMPLETE, "ecc was not read; expected root", ("GPU 1",), "not root")


def test_a_check_and_a_node_are_described_once_and_a_pass_says_no_more_than_its_names(tmp_path: Path) -> None:
    results = [Result(check, node, Verdict.PASS, **ABOUT) for node in ("gpu1", "gpu2") for check in ("a.b", "a.c")]
    written_lines = written(tmp_path, *results)
    assert [line["check"] for line in written_lines if line.get("describes") == "check"] == ["a.b", "a.c"]
    assert [line["node"] for line in written_lines if line.get("describes") == "node"] == ["gpu1", "gpu2"]
    assert [line for line in written_lines if "describes" not in line] == [
        {"check": entry.check, "node": entry.node, "verdict": "pass"} for entry in results
    ]


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.CONCERN])
def test_a_finding_says_everything_in_its_own_line(tmp_path: Path, verdict: Verdict) -> None:
    result = with_findings(Result("a.b", "gpu1", Verdict.PASS, **ABOUT), (replace(FINDING, verdict=verdict),))
    assert written(tmp_path, result)[-1] == result.to_json()


def test_what_could_not_be_read_says_what_and_why_and_no_more(tmp_path: Path) -> None:
    result = with_findings(Result("a.b", "gpu1", Verdict.PASS, **ABOUT), (FINDING,))
    short = {"message": "GPU 1: ecc was not read; expected root", "devices": ["GPU 1"], "cause": "not root"}
    assert written(tmp_path, result)[-1] == {"check": "a.b", "node": "gpu1", "verdict": "incomplete", **short}
    assert read_results(tmp_path / "results.jsonl") == [result]


def test_a_result_that_differs_from_its_description_says_so(tmp_path: Path) -> None:
    first = Result("a.b", "gpu1", Verdict.PASS, **ABOUT, gpu_uuids=("GPU-1",))
    other = replace(first, evidence="cat /proc/1", gpu_uuids=("GPU-2",), duration_s=0.5, since_last="gone")
    assert written(tmp_path, first, other)[-1]["evidence"] == "cat /proc/1"
    assert read_results(tmp_path / "results.jsonl") == [first, other]


def test_a_file_that_has_lost_its_start_is_not_read_as_less(tmp_path: Path) -> None:
    written(tmp_path, Result("a.b", "gpu1", Verdict.PASS, **ABOUT))
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    with pytest.raises(ValueError, match=r"'a\.b'.* expected the file from its start"):
        read_results(path)


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    result = with_findings(Result("a.b", "gpu1", Verdict.PASS, **ABOUT), (FINDING,))
    second = {**result.to_json(), "schema": 2}
    first = {name: value for name, value in second.items() if name != "findings"} | {"schema": 1}
    path = tmp_path / "old.jsonl"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n", encoding="utf-8")
    assert read_results(path) == [replace(result, findings=()), result]


def test_a_line_that_lacks_something_is_not_of_the_schema(tmp_path: Path) -> None:
    result = with_findings(Result("a.b", "gpu1", Verdict.PASS, **ABOUT), (replace(FINDING, verdict=Verdict.FAIL),))
    for line in written(tmp_path, result):
        assert VALIDATOR.is_valid(line)
        assert not VALIDATOR.is_valid({**line, "schema": 1})
        for field in line:
            assert not VALIDATOR.is_valid({key: value for key, value in line.items() if key != field})
    whole = result.to_json()
    assert not VALIDATOR.is_valid({**whole, "verdict": "ok"})
    assert not VALIDATOR.is_valid({**whole, "duration_s": "1"})


def test_the_example_in_the_documentation_is_a_record() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    VALIDATOR.validate(json.loads(example))
    assert from_json(json.loads(example)).to_json() == json.loads(example)


@pytest.mark.parametrize(
    ("stop", "how"),
    each_with_some([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], HOW),
    ids=lambda value: getattr(value, "name", None),
)
def test_an_interrupted_run_keeps_what_was_formed(runs: Runs, how: tuple[str, list[str]], stop: signal.Signals) -> None:
    checks, workers = how
    reached = runs.folder / "reached"
    formed = 2
    stall = STALL.format(reached=str(reached))
    runs.checks(test_it=checks.replace("say(node", f'{stall} if node.name == "gpu003" else say(node'))
    cluster = runs.cluster([saying(f"gpu{number:03d}", "pass") for number in (1, 2, 3)])
    arguments = [
        "--results",
        str(runs.results_file),
        "--junitxml=junit.xml",
        "--html=page.html",
        "-p",
        "no:cacheprovider",
    ]
    process = runs.started("--cluster", cluster, *arguments, *workers)
    try:
        wait_for_results(runs.results_file, formed)
        wait_for(reached)  # the third check runs, so the second's result is complete
        process.send_signal(stop)
        output, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 2, output
    assert runs.results_file.read_bytes().endswith(b"}\n")
    assert runs.verdicts == {"gpu001": Verdict.PASS, "gpu002": Verdict.PASS, "gpu003": Verdict.INCOMPLETE}
    cases = (runs.folder / "junit.xml").read_text(encoding="utf-8").count("<testcase ") - 1  # for the interruption
    assert cases in ({formed - 1, formed} if workers else {formed})  # a worker's teardown may be in transit
    page = (runs.folder / "page.html").read_text(encoding="utf-8")
    for form in (page, output):
        assert "INTERRUPTED: 2 of 3 checks ended, all of them on 2 of 3 nodes" in form
        assert "3 nodes: 2 fit, 1 not proven" in form


@WAYS
def test_a_worker_that_crashes_costs_its_own_check_and_no_other(runs: Runs, checks: str) -> None:
    crashing = checks.replace("say(node", '__import__("os")._exit(3) if node.name == "gpu003" else say(node')
    runs.checks(test_it=crashing)
    nodes = [saying(f"gpu{number:03d}", "pass") for number in range(1, 9)]
    run = runs.over(nodes, "-n2", "--junitxml=junit.xml")
    assert run.ret == 2
    assert runs.verdicts == {
        f"gpu{number:03d}": Verdict.INCOMPLETE if number == 3 else Verdict.PASS for number in range(1, 9)
    }
    assert runs.results_file.read_bytes().endswith(b"}\n")
    run.stdout.fnmatch_lines(["INTERRUPTED: 7 of 8 checks ended*", "*not evaluated: its worker process was lost"])
    run.stdout.fnmatch_lines(["*crashed while running 'test_it.py::test_word?gpu003?'*"])
    assert "crashed while running" in (runs.folder / "junit.xml").read_text(encoding="utf-8")


def test_a_record_is_on_disk_before_the_next_check_begins(runs: Runs) -> None:
    runs.checks(
        test_it=SAYING
        + f"""
    def test_order(node):
        written = open({str(runs.results_file)!r}).read()
        assert written.count('"verdict":') == int(node.name[3:]) - 1
"""
    )
    runs.over([saying(f"gpu{number:03d}", "pass") for number in range(1, 4)])
    assert set(runs.verdicts.values()) == {Verdict.PASS}


def test_a_file_in_a_folder_that_is_not_there_is_made(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    deep = runs.folder / "not" / "there" / "yet.jsonl"
    runs.run("--cluster", runs.cluster(all_verdicts()), "--results", str(deep))
    assert len(read_results(deep)) == len(VERDICTS)


@pytest.mark.parametrize("is_half", [True, False], ids=["within a line", "behind a line"])
def test_a_signal_while_a_line_is_written_costs_no_line_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_half: bool
) -> None:
    results = [Result("a.b", f"gpu{number}", Verdict.PASS) for number in range(3)]
    file = ResultsFile(tmp_path / "results.jsonl")
    file.write(results[0])

    def interrupted(to: Any, size: int, text: bytes) -> None:
        to.write(text[: len(text) // 2] if is_half else text)
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(results_module, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write_rest(results[:2])
    file.write_rest(results)
    file.close()
    assert read_results(tmp_path / "results.jsonl") == results


def test_a_signal_behind_a_line_that_is_written_doubles_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [Result("a.b", f"gpu{number}", Verdict.PASS) for number in range(3)]
    file = ResultsFile(tmp_path / "results.jsonl")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(results_module.Described, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.write_rest(results)
    file.write_rest(results)
    file.close()
    assert read_results(tmp_path / "results.jsonl") == results


@pytest.mark.parametrize(
    "line", ["3", "[]", '{"describes": "check"}', '{"describes": []}', '{"schema": 3}', '{"check": 1}', "{"]
)
def test_a_line_that_is_no_record_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 1 |is not described|Expecting"):
        list(results_module.read([line]))


def test_a_reader_that_goes_away_is_said_in_the_words_of_a_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as pipe, pytest.raises(BrokenPipeError):
        append(pipe, 0, b"a line\n")


TEXT = st.text(st.characters(codec=None))
RESULTS = st.builds(
    Result,
    check=TEXT,
    node=TEXT,
    verdict=st.sampled_from(Verdict),
    message=TEXT,
    devices=st.lists(TEXT).map(tuple),
    gpu_uuids=st.lists(TEXT).map(tuple),
    duration_s=st.just(0.0) | st.floats(0.001, 1e6),
)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RESULTS, max_size=5))
def test_what_is_written_is_read_again_whatever_characters_it_has(tmp_path: Path, results: list[Result]) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as file:
        for result in results:
            file.write(result)
    assert read_results(path) == results
