"""`--junitxml` as a CI system reads it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from xml.parsers import expat

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.recordings import boot, gpu, node, nvml, unreached
from tests.builders.runs import ALONE_OR_NOT, LIGHT, SAYING, VERDICTS, WAYS, Runs, all_verdicts, junit_cases, saying

pytestmark = pytest.mark.any_user

TAGS = {
    Verdict.PASS: [],
    Verdict.CONCERN: ["system-out"],
    Verdict.FAIL: ["failure"],
    Verdict.INCOMPLETE: ["error"],
    Verdict.NOT_APPLICABLE: ["skipped"],
}
WORKERS = pytest.mark.parametrize("workers", ALONE_OR_NOT)
HOSTILE = "]]>\x1b[31m<b>&amp;\x00\ud800\u202e]]]]><![CDATA[>\r\n"


def written(runs: Runs, nodes: Sequence[NodeEvidence], *arguments: str) -> dict[str, ET.Element]:
    """The cases of a run over these nodes, by node."""
    runs.over(nodes, "--junitxml", "junit.xml", *arguments)
    cases = junit_cases(runs.folder / "junit.xml")
    return {name.partition("[")[2].removesuffix("]"): case for name, case in cases.items()}


def properties(case: ET.Element) -> dict[str, str]:
    """A case's properties, asserting that none occurs twice."""
    pairs = [(entry.attrib["name"], entry.attrib["value"]) for entry in case.iter("property")]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


REACHING = """
    import pytest
    from clusterproof import fail

    pytestmark = [pytest.mark.node, pytest.mark.prolog]

    def test_reachable(node):
        if node.evidence.unreached:
            fail("refused; expected an answer", cause=node.why_unreached)

    def test_uptime(node):
        assert node.boot.uptime_s
"""


@WORKERS
def test_a_node_that_was_not_reached_is_one_failure_and_its_other_cases_are_skipped(
    runs: Runs, workers: list[str]
) -> None:
    runs.checks(test_a_node=REACHING, test_it=LIGHT)
    runs.over([unreached("gpu001"), saying("gpu002", "pass")], "--junitxml", "junit.xml", *workers)
    cases = junit_cases(runs.folder / "junit.xml")
    tags = {name: [part.tag for part in case if part.tag != "properties"] for name, case in cases.items()}
    assert {name: tag for name, tag in tags.items() if tag} == {
        "test_reachable[gpu001]": ["failure"],
        "test_uptime[gpu001]": ["skipped"],
        "test_word[gpu001]": ["skipped"],
    }
    suite = next(ET.parse(runs.folder / "junit.xml").getroot().iter("testsuite"))
    assert [suite.attrib[key] for key in ("failures", "errors", "skipped")] == ["1", "0", "2"]


def test_where_no_check_says_that_a_node_was_not_reached_every_case_of_it_is_an_error(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    cases = written(runs, [unreached("gpu001"), saying("gpu002", "pass")])
    assert [part.tag for part in cases["gpu001"] if part.tag != "properties"] == ["error"]


@WAYS
@WORKERS
def test_each_verdict_is_one_case_with_one_element(runs: Runs, checks: str, workers: list[str]) -> None:
    runs.checks(test_it=checks)
    cases = written(runs, all_verdicts(), *workers)
    assert {node: [part.tag for part in case if part.tag != "properties"] for node, case in cases.items()} == {
        node: TAGS[verdict] for node, verdict in VERDICTS.items()
    }
    suite = next(ET.parse(runs.folder / "junit.xml").getroot().iter("testsuite"))
    assert {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "8",
        "failures": "1",
        "errors": "3",
        "skipped": "1",
    }


@WAYS
@WORKERS
def test_every_case_has_the_properties_of_its_record(runs: Runs, checks: str, workers: list[str]) -> None:
    runs.checks(test_it=checks)
    cases = written(runs, all_verdicts(), *workers)

    def expected(result: Result) -> dict[str, str]:
        names = ("node", "check", "owner", "section", "severity", "evidence", "instance_type")
        of_result = {name: getattr(result, name) for name in names}
        return {**of_result, "verdict": result.verdict.value, "gpu_uuids": " ".join(result.gpu_uuids)}

    assert {node: properties(case) for node, case in cases.items()} == {
        result.node: expected(result) for result in runs.results
    }
    assert properties(cases["gpu003"]) == {
        "node": "gpu003",
        "check": "host.word",
        "verdict": "concern",
        "owner": "hyperpod-node-debugger",
        "section": "G",
        "severity": "warning",
        "evidence": "uname -r",
        "instance_type": "",
        "gpu_uuids": "GPU-00000000-4f1a-9c3e-7b2d-5e8f10a2b3c4",
    }


@WAYS
def test_what_is_not_a_pass_says_why(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    cases = written(runs, all_verdicts())
    messages = {node: part.attrib.get("message") for node, case in cases.items() for part in case if part.attrib}
    assert messages["gpu002"] == "gpu002: the word is bad; expected pass"
    assert messages["gpu004"] == "gpu004: the word was not heard"
    assert messages["gpu005"] == "gpu005: nobody speaks here"
    assert messages["gpu007"] == "gpu007: unreachable: refused: gpu007:22 refuses the connection"
    message = (
        "gpu003: the word is odd; expected a good one\nby hand: uname -r\nowner: hardware\n"
        "means: A wrong word means nothing good.\ndo: Say another."
    )
    assert cases["gpu003"].findtext("system-out") == message
    assert cases["gpu002"].findtext("failure") == message.replace(
        "odd; expected a good one", "bad; expected pass"
    ).replace("gpu003", "gpu002")


def test_a_pass_has_no_output(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    case = written(runs, [saying("gpu001", "pass")])["gpu001"]
    assert [part.tag for part in case] == ["properties"]


def test_somebody_elses_test_is_written_as_pytest_writes_it(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_other="import pytest\n@pytest.fixture\ndef ground(): 1 / 0\ndef test_it(ground): 0")
    cases = written(runs, [saying("gpu001", "pass")])
    error = cases[""].find("error")
    assert error is not None
    assert error.attrib["message"].startswith('failed on setup with "ZeroDivisionError')


@WAYS
@WORKERS
def test_whatever_a_node_says_the_file_stays_valid(runs: Runs, checks: str, workers: list[str]) -> None:
    runs.checks(
        test_it=checks.replace("host,", "gpu,"),
        test_gpu=SAYING + "    def test_gpu(gpu): say(gpu.data['word'])",
    )
    loud = node(
        "gpu001",
        boot=boot(HOSTILE + "A" * 1_000_000),
        platform={"vendor": "Amazon EC2", "product": HOSTILE},
        nvml=nvml(gpu(0, uuid=HOSTILE + "B" * 1_000_000, word=HOSTILE), gpu(1, word=HOSTILE * 10_000)),
    )
    odd_names = [saying("a]]><b>&\"' [x]::y", "bad"), saying("ü" * 200, "incomplete")]
    runs.over([loud, *odd_names], "--junitxml", "junit.xml", *workers)
    text = (runs.folder / "junit.xml").read_bytes()
    assert len(text) < 100_000
    parser = expat.ParserCreate()
    parser.Parse(text, True)
    cases = junit_cases(runs.folder / "junit.xml")
    assert Counter(properties(case)["verdict"] for case in cases.values()) == Counter({"fail": 4, "incomplete": 2})
    assert all(char.isprintable() or char == "\n" for char in text.decode("utf-8"))


def test_a_users_own_junit_settings_do_no_harm(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    for family in ("xunit1", "xunit2"):
        for logging in ("no", "all"):
            cases = written(runs, all_verdicts(), "-o", f"junit_family={family}", "-o", f"junit_logging={logging}")
            assert {node: properties(case)["verdict"] for node, case in cases.items()} == {
                node: verdict.value for node, verdict in VERDICTS.items()
            }


def test_where_pytests_writer_is_not_as_expected_its_own_file_is_left(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("_pytest.junitxml.LogXML.node_reporter")
    from clusterproof.plugins.suite.reporters.junit import reporter

    runs.checks(test_it=LIGHT)
    config = runs.pytester.parseconfigure("--junitxml", "junit.xml")
    assert reporter(config, Cluster("small", "replay", ()), []) is None
