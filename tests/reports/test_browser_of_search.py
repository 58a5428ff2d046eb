"""The page's search in Chromium: a nodeset shows exactly those nodes; anything else is searched as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.nodeset import expand, fold
from clusterproof.plugins.core.result import Finding, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.formats.html import document
from tests.builders.recordings import boot, gpu, node, nvml
from tests.reports.pages import demo_page
from tests.reports.reported import result, run_of
from tests.testbed.browser import Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
NAMED = "const found = nodesOf(arguments[0]); return found && [...found].map((node) => data.nodes[node])"
FITTING = "const filter = filterNow(); return data.nodes.filter((_, node) => filter.takesNode(node, checks))"
SHOWN = "#findings > details:not([hidden]) summary"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "report.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


def of_nodes(folder: Path, *names: str) -> Path:
    """The page of a cluster with these node names, all of which have failed."""
    path = folder / "report.html"
    results = [result("gpu.ecc", name, Verdict.FAIL, f"{name} is ill; expected health") for name in names]
    path.write_text(document(run_of(results, [node(name, boot=boot()) for name in names])), encoding="utf-8")
    return path


def search(chromium: Browser, text: str) -> list[str]:
    """Type into the search; returns the nodes that are shown."""
    field = chromium.find("#search")
    field.clear()
    field.send_keys(text)
    return list(chromium.run(FITTING))


def test_a_section_of_which_the_filter_leaves_nothing_says_so(chromium: Browser, demo: Path) -> None:
    notes = "#findings > p, #gaps > p"
    chromium.open(demo)
    assert chromium.texts(notes) == []
    search(chromium, "nobody")
    assert chromium.texts(notes) == 2 * ["The filter leaves out all of them."]
    chromium.open(demo, "#q=&show=I")
    assert chromium.texts(notes) == ["The filter leaves out all of them."]


def test_passing_checks_are_offered_only_where_they_are_left_out(chromium: Browser, demo: Path, tmp_path: Path) -> None:
    chromium.open(demo)
    assert chromium.find("#all-checks").is_displayed()
    chromium.open(of_nodes(tmp_path, "n1", "n2"))
    assert not chromium.find("#all-checks").is_displayed()


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ("gpu[001-003]", "gpu[001-003]"),
        ("gpu[001-003,007]", "gpu[001-003,007]"),
        ("gpu001,gpu007", "gpu[001,007]"),
        ("gpu001, gpu007", "gpu[001,007]"),
        (" GPU[001-002] ,gpu004", "gpu[001-002,004]"),
        ("gpu[001-009/4]", "gpu[001,005,009]"),
        ("gpu[1-3]", "gpu[001-003]"),
        ("gpu[015-999999999999999999]", "gpu[015-016]"),
        ("gpu[001-004] ecc", "gpu003"),
        ("gpu[001-004] gpu[003-009]", "gpu[003-004]"),
        ("gpu001,nobody", "gpu001"),
        ("gpu01", "gpu[010-016]"),
    ],
)
def test_a_nodeset_leaves_its_nodes(chromium: Browser, demo: Path, words: str, nodes: str) -> None:
    chromium.open(demo)
    assert fold(search(chromium, words)) == nodes


@pytest.mark.parametrize(
    "words",
    [
        "gpu[001-",
        "gpu[]",
        "gpu[003-001]",
        "gpu[a-b]",
        "gpu[001-003/0]",
        "rdmap[",
        "ECC,",
        "GPU 1, GPU 5",
        "nobody[1-9]",
        "[",
    ],
)
def test_what_names_no_node_is_searched_as_text(chromium: Browser, demo: Path, words: str) -> None:
    chromium.open(demo)
    assert chromium.run(NAMED, words) is None
    text = chromium.run(
        "return data.nodes.filter((_, node) => arguments[0].every((word) => haystack(node).includes(word)))",
        words.lower().split(),
    )
    assert search(chromium, words) == text
    assert chromium.complaints() == []


def test_findings_of_the_nodes_are_shown_and_no_other(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    search(chromium, "gpu[002,012]")
    titles = [text.partition(":")[0] for text in chromium.texts(SHOWN)]
    assert titles == ["FAIL Active NVLinks", "FAIL Locked memory limit", "FAIL Mount responsiveness"]
    assert chromium.find("#shown").text.endswith("2 of 16 nodes")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A check with several findings on a node, a pair that failed, and a node whose GPU failed."""
    several = [
        Finding(Verdict.FAIL, "GPU 1 is ill"),
        Finding(Verdict.CONCERN, "warm"),
        Finding(Verdict.INCOMPLETE, "?"),
    ]
    names = [f"gpu{number:03d}" for number in range(1, 10)]
    pairs = [
        result("network.pair", f"{one}~{other}", verdict, "slow", subject="pair", action="replace")
        for one, other, verdict in (("gpu003", "gpu007", Verdict.FAIL), ("gpu004", "gpu005", Verdict.PASS))
    ]
    results = [
        with_findings(result("gpu.ecc", "gpu001"), grouped(several)),
        result("gpu.xid", "gpu009", Verdict.FAIL, "Xid 79"),
        *(result("gpu.xid", name) for name in names[:-1]),
        *pairs,
    ]
    nvidia = nvml(gpu(0, uuid="GPU-d94a", serial="1650923"))
    evidence = [
        node(name, boot=boot(hostname=name), **({"nvml": nvidia} if name == "gpu009" else {})) for name in names
    ]
    path = tmp_path / "report.html"
    path.write_text(document(run_of(results, evidence)), encoding="utf-8")
    return path


@pytest.mark.parametrize("words", ["gpu001", "gpu[001-002]"])
def test_a_node_keeps_every_finding_of_a_check_that_found_several(chromium: Browser, mixed: Path, words: str) -> None:
    chromium.open(mixed)
    assert search(chromium, words)[0] == "gpu001"
    assert [text.split()[0] for text in chromium.texts(SHOWN)] == ["FAIL", "CONCERN"]
    assert len(chromium.run("return findings.filter((one) => !one.hidden)")) == 3


@pytest.mark.parametrize("letter", ["C", "I"])
def test_a_node_is_shown_for_what_was_found_beside_its_failure(chromium: Browser, mixed: Path, letter: str) -> None:
    chromium.open(mixed, f"#q=&show={letter}")
    assert chromium.run(FITTING) == ["gpu001"]
    assert chromium.count("#grid-table tbody tr") == 1


@pytest.mark.parametrize("words", ["gpu003", "gpu[006-008]"])
def test_a_pair_that_failed_is_a_finding_of_both_its_nodes(chromium: Browser, mixed: Path, words: str) -> None:
    chromium.open(mixed)
    search(chromium, words)
    assert [text.partition(":")[0] for text in chromium.texts(SHOWN)] == ["FAIL Title of pair"]


def test_the_tile_of_a_pair_shows_both_its_nodes(chromium: Browser, mixed: Path) -> None:
    chromium.open(mixed, "#q=&action=replace")
    assert chromium.find("#shown").text == "replace: 1 of 5 findings, 2 of 9 nodes"
    assert chromium.texts("#map-places .cell:not(.out) .name") == ["gpu003", "gpu007"]


@pytest.mark.parametrize("words", ["GPU-d94a", "1650923", "gpu009"])
def test_the_findings_of_a_node_are_found_by_its_name_and_its_gpus(chromium: Browser, mixed: Path, words: str) -> None:
    chromium.open(mixed)
    assert search(chromium, words) == ["gpu009"]
    assert [text.partition(":")[0] for text in chromium.texts(SHOWN)] == ["FAIL Title of xid"]


def test_a_nodeset_stands_in_the_address(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    search(chromium, "gpu[001-003,007]")
    chromium.open(demo, chromium.run("return location.hash"))
    assert fold(chromium.run(FITTING)) == "gpu[001-003,007]"


def test_names_of_several_numbers_and_of_none_are_found(chromium: Browser, tmp_path: Path) -> None:
    names = (*expand("rack[1-2]-node[01-12]"), "login", "ip-10-0-1-7.ec2.internal", "gpu+1")
    chromium.open(of_nodes(tmp_path, *names))
    assert fold(search(chromium, "rack[1-2]-node[11-12]")) == "rack[1-2]-node[11-12]"
    assert search(chromium, "login,ip-10-0-1-[1-9].ec2.internal") == ["login", "ip-10-0-1-7.ec2.internal"]
    assert search(chromium, "ip-10-0-1-[1-9]xec2.internal") == []
    assert search(chromium, "login,gpu+1") == ["login", "gpu+1"]
    assert chromium.run(NAMED, "rack" + "[1-9]" * 40) is None
