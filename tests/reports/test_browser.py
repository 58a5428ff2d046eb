"""A run's page in Chromium: it opens, can be searched, navigated by keys and printed, and runs no foreign script."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from clusterproof.plugins.core.evidence import NodeEvidence, load
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.transport.gather import replay
from clusterproof.reports.formats.html import document
from tests.builders.recordings import boot, gpu, node, nvml
from tests.reports.contrast import CONTRAST
from tests.reports.reported import HOSTILE, result, run_of
from tests.testbed.browser import Browser
from tests.testbed.needs import needs_chromium, needs_pdftotext

pytestmark = needs_chromium
MANY, CHECKS = 1000, 60
MAX_BYTES = 4_000_000
SHOWN = "#findings > details:not([hidden]) summary"
ROWS = "#grid-table tbody tr"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the demo cluster."""
    cluster = resolve("demo")
    evidence = replay(DEMO, cluster)
    evaluated = [
        evaluate(check, facts) for facts in nodes(cluster, evidence).values() for check in node_checks().values()
    ]
    return written(tmp_path_factory.mktemp("demo"), evaluated, list(evidence.values()))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a thousand nodes, some failed and one without an answer."""
    healthy = load((DEMO / "nodes" / "gpu001.json").read_text())
    driver = healthy.collectors["nvml"]
    evidence: list[NodeEvidence] = []
    results: list[Result] = []
    for number in range(1, MANY + 1):
        name = f"gpu{number:04d}"
        gpus = [
            {**record, "uuid": record["uuid"].replace("GPU-", f"GPU-{number:04d}")} for record in driver.value["gpus"]
        ]
        nvml_of_its_own = replace(driver, value={**driver.value, "gpus": gpus})
        evidence.append(replace(healthy, node=name, collectors={**healthy.collectors, "nvml": nvml_of_its_own}))
        for check in range(CHECKS):
            is_sick = number % 20 == 0 and check == number % 7
            verdict = Verdict.INCOMPLETE if number == 501 else Verdict.FAIL if is_sick else Verdict.PASS
            message = f"GPU {check} of {name} is ill; expected health" if verdict is not Verdict.PASS else ""
            results.append(result(f"gpu.check_{check}", name, verdict, message, cause="" if is_sick else "silence"))
    return written(tmp_path_factory.mktemp("many"), results, evidence)


def written(folder: Path, results: list[Result], evidence: list[NodeEvidence]) -> Path:
    """The page of these results."""
    page = folder / "report.html"
    page.write_text(document(run_of(results, evidence)), encoding="utf-8", errors="backslashreplace")
    return page


def search(chromium: Browser, text: str) -> str:
    """Type into the search; returns what is then shown."""
    field = chromium.find("#search")
    field.clear()
    field.send_keys(text)
    return str(chromium.find("#shown").text)


@pytest.mark.parametrize(("cluster", "node"), [("demo", "gpu003"), ("many", "gpu0020")])
def test_the_page_opens_without_a_complaint_and_asks_for_nothing(
    chromium: Browser, cluster: str, node: str, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(cluster)
    chromium.open(page)
    assert chromium.texts("h1") == ["prod"]
    assert chromium.count(ROWS) > 3
    chromium.driver.get(f"file://{page}#node={node}")
    chromium.awaited("#node h2")
    assert chromium.complaints() == []
    assert set(chromium.requests()) <= {f"file://{page}", f"file://{page}#node={node}"}


def test_a_thousand_nodes_fit_into_the_page(many: Path) -> None:
    assert many.stat().st_size <= MAX_BYTES


def test_nodes_that_are_alike_share_a_row_that_unfolds(chromium: Browser, many: Path) -> None:
    chromium.open(many)
    rows = chromium.texts(f"{ROWS} th")
    assert len(rows) == 9  # seven kinds of failure, the silent one, and the healthy
    assert rows[-1].startswith("949 nodes gpu[0001-0019,0021-0039,")
    assert chromium.count("#grid-table thead tr:last-child th") == 7
    chromium.find(f"{ROWS}:first-child button").click()
    assert chromium.texts(f"{ROWS}:nth-child(2) th a") == ["gpu0020"]
    assert chromium.count(f"{ROWS}.inner") == 8
    assert chromium.find(f"{ROWS}:first-child button").get_attribute("aria-expanded") == "true"
    chromium.find("#all-checks").click()
    assert chromium.count("#grid-table thead tr:last-child th") == CHECKS


@pytest.mark.parametrize(
    ("words", "findings", "nodes"),
    [("gpu0140", 1, 1), ("gpu0140 no_such", 0, 0), ("GPU-0777", 0, 1), ("check_3", 1, 8), ("", 7, 1000)],
    ids=["a node", "two words", "a UUID", "a check", "nothing"],
)
def test_search_finds_nodes_by_name_uuid_and_check(
    chromium: Browser, many: Path, words: str, findings: int, nodes: int
) -> None:
    chromium.open(many)
    shown = search(chromium, words)
    assert len(chromium.texts(SHOWN)) == findings
    assert shown.endswith(f"{nodes:,} of 1,000 nodes")


def test_filters_leave_what_was_chosen(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    everything = len(chromium.texts(SHOWN))
    chromium.find("input[name=F]").click()
    assert [text.split()[0] for text in chromium.texts(SHOWN)] == ["CONCERN"] * 2
    chromium.find("input[name=F]").click()
    Select(chromium.find("#subsystem")).select_by_value("storage")
    assert len(chromium.texts(SHOWN)) == 1 < everything
    assert "Mount responsiveness" in chromium.texts(SHOWN)[0]


def test_a_command_is_copied_by_its_button(chromium: Browser, demo: Path) -> None:
    chromium.tell("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    chromium.open(demo)
    command = chromium.find("#findings > details[open] dd > code").text
    chromium.find("#findings > details[open] .copy").click()
    copied = chromium.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")
    assert copied == command
    assert chromium.complaints() == []


def test_a_nodes_page_has_all_that_is_known_of_it(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    next(link for link in chromium.driver.find_elements("css selector", f"{ROWS} a") if link.text == "gpu003").click()
    text = chromium.awaited("#node").text
    collectors = json.loads((DEMO / "nodes" / "gpu003.json").read_text())["collectors"]
    for record in collectors["nvml"]["value"]["gpus"]:
        assert record["uuid"] in text
    assert "GPU 1, GPU 5: uncorrected ECC errors: 14 in DRAM" in text
    assert "rdmap[" in text
    assert collectors["versions"]["value"]["components"]["libfabric"]["version"] in text
    assert not chromium.find("#main").is_displayed()
    assert chromium.driver.switch_to.active_element.get_attribute("id") == "node"
    chromium.find("#node details.collector summary").click()
    shown = chromium.find("#node details.collector pre").text
    assert json.loads(shown) == collectors[next(iter(collectors))]["value"]
    chromium.driver.back()
    assert chromium.awaited("#main").is_displayed()
    assert chromium.complaints() == []


def test_a_nodes_page_names_each_reason_once_with_what_to_do_on_this_node(chromium: Browser, demo: Path) -> None:
    chromium.open(demo, "#node=gpu005")
    assert "gpu005" in chromium.awaited("#node h2").text
    failed, missing = chromium.texts("#node > details > summary")
    checks = len(node_checks()) - 1
    reason = "unreachable: refused: 10.231.0.1:9 refuses the connection: no sshd listens there, or a firewall"
    assert (failed, missing) == ("FAIL Reachability", f"INCOMPLETE {reason} ({checks} checks)")
    assert "ssh gpu005 true" in chromium.texts("#node dd code")
    assert "whether gpu005 is running" in chromium.find("#node dl").text
    chromium.find("#node > details.incomplete > summary").click()
    assert len(chromium.texts("#node > details.incomplete > details > summary")) == checks


def test_checks_for_whose_words_a_page_has_no_room_are_not_folded_as_one_reason(
    chromium: Browser, tmp_path: Path
) -> None:
    results = [result("gpu.ecc", f"gpu{number:04d}", Verdict.FAIL, f"{number} {'x' * 590}") for number in range(1_200)]
    results += [result(f"gpu.{name}", "gpu0000", Verdict.INCOMPLETE, f"no {name}") for name in ("xid", "nvlink")]
    chromium.open(written(tmp_path, results, [node(f"gpu{number:04d}") for number in range(1_200)]), "#node=gpu0000")
    chromium.awaited("#node h2")
    assert chromium.texts("#node > details.incomplete > summary") == [
        "INCOMPLETE Title of xid",
        "INCOMPLETE Title of nvlink",
    ]
    assert chromium.texts("#node > details.incomplete > p") == ["(said in results.jsonl)"] * 2


def test_the_grid_is_walked_with_keys_and_says_what_stands_where(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    cells = chromium.driver.find_elements("css selector", f"{ROWS} td[tabindex='0']")
    assert len(cells) == 1
    chromium.run("arguments[0].focus()", cells[0])
    assert chromium.find("#grid-detail b").text.lower() in ("fail", "incomplete", "concern")
    before = chromium.find("#grid-detail").text
    chromium.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert chromium.find("#grid-detail").text != before
    chromium.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert chromium.find("#grid-detail").text == before
    chromium.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert chromium.awaited("#node").is_displayed()


def test_every_control_and_table_has_a_name_for_a_screen_reader(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    tree = chromium.tell("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "checkbox", "combobox", "searchbox", "link", "region", "columnheader", "rowheader"}
    nameless = [
        element["role"]["value"]
        for element in tree
        if not element["ignored"] and element["role"]["value"] in roles and not element["name"]["value"]
    ]
    assert nameless == []
    assert {"main", "navigation", "search", "searchbox", "status"} <= {
        element["role"]["value"] for element in tree if "role" in element
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_light_and_dark(chromium: Browser, demo: Path, scheme: str) -> None:
    chromium.look(scheme)
    chromium.open(demo)
    assert chromium.run(CONTRAST) >= 4.5
    chromium.driver.get(f"file://{demo}#node=gpu003")
    chromium.awaited("#node h2")
    assert chromium.run(CONTRAST) >= 4.5


@pytest.mark.parametrize("where", ["", "#node=gpu003"])
def test_a_narrow_window_scrolls_only_downwards(chromium: Browser, demo: Path, where: str) -> None:
    chromium.look(width=380)
    chromium.open(demo, where)
    assert chromium.run("return document.documentElement.scrollWidth") <= 380


@needs_pdftotext
def test_on_paper_every_finding_is_open_and_no_control_is_left(chromium: Browser, demo: Path, tmp_path: Path) -> None:
    chromium.open(demo)
    (tmp_path / "page.pdf").write_bytes(chromium.printed())
    command = ["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "NOT FIT" in text
    assert "check the application; expected none" in " ".join(text.split())  # a concern, which is collapsed on screen
    assert "Subsystem" not in text
    assert "uncorrected ECC errors" in text[text.index("GPUs × nodes") :]  # the heat map's subject
    assert chromium.count("#findings > details.concern[open]") == 0


def test_without_script_the_findings_are_there(chromium: Browser, demo: Path) -> None:
    chromium.tell("Emulation.setScriptExecutionDisabled", value=True)
    chromium.open(demo)
    assert len(chromium.texts("#findings > details summary")) == 10
    assert "need this file's own script" in chromium.find("noscript").text
    assert not chromium.find("form.tools").is_displayed()


def test_what_hostile_nodes_say_is_shown_and_never_run(chromium: Browser, tmp_path: Path) -> None:
    evidence = [
        node(word, boot=boot(hostname=word, kernel=word), nvml=nvml(gpu(0, uuid=word)), odd={word: [word]})
        for word in HOSTILE
    ]
    results = [result("gpu.ecc", word, Verdict.FAIL, word) for word in HOSTILE]
    results += [result("gpu.other", word, Verdict.INCOMPLETE, word, title=word) for word in HOSTILE]
    chromium.open(written(tmp_path, results, evidence))
    for number in range(len(HOSTILE)):
        chromium.run("location.hash = '#node=' + encodeURIComponent(data.nodes[arguments[0]]); show()", number)
        chromium.run("for (const one of document.querySelectorAll('#node details')) one.open = true")
    assert chromium.run("return window.hit === undefined && document.images.length === 0")
    assert chromium.complaints() == []
    chromium.run("location.hash = ''; show()")
    text = chromium.find("body").text
    for word in HOSTILE[:2]:
        assert word in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_script_that_got_into_the_page_would_not_run(chromium: Browser, demo: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    strange = "<script>window.hit = 1</script><img src='https://192.0.2.1/x.png' onerror='window.hit = 2'>"
    page.write_text(demo.read_text().replace("<main", f"{strange}<main", 1))
    chromium.open(page)
    assert chromium.run("return window.hit === undefined")
    assert any("Content Security Policy" in message for message in chromium.complaints())
    assert [url for url in chromium.requests() if not url.startswith("file:")] == []
