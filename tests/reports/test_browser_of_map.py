"""The map of many nodes, and its tiles as links, in Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.reports.formats.html import document
from tests.builders.recordings import node
from tests.reports.reported import result, run_of
from tests.testbed.browser import LONGEST_S, Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
MANY = 10_000
SICK = {"gpu00420": Verdict.FAIL, "gpu07777": Verdict.FAIL, "gpu09001": Verdict.INCOMPLETE}
SHOWN = "#findings > details:not([hidden]) summary"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of ten thousand nodes, of which two failed."""
    names = [f"gpu{number:05d}" for number in range(1, MANY + 1)]
    results = [result("gpu.ecc", name, SICK.get(name, Verdict.PASS), "bad" if name in SICK else "") for name in names]
    return written(tmp_path_factory, document(run_of(results, [node(name) for name in names])))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes: one to replace, one wrongly configured, one not measured, one fit."""
    verdicts = {"gpu001": ("replace", Verdict.FAIL), "gpu002": ("fix configuration", Verdict.FAIL)}
    results = [
        result(f"gpu.{action.partition(' ')[0]}", name, verdict, "bad", action=action)
        for name, (action, verdict) in verdicts.items()
    ]
    results += [result("gpu.ecc", "gpu003", Verdict.INCOMPLETE, "no answer", cause="no answer")]
    results += [result("gpu.ecc", "gpu004")]
    return written(tmp_path_factory, document(run_of(results)))


def written(folder: pytest.TempPathFactory, page: str) -> Path:
    path = folder.mktemp("map") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1024, 1600])
def test_ten_thousand_nodes_are_on_one_screen_each_with_a_cell(chromium: Browser, many: Path, width: int) -> None:
    chromium.look(width=width)
    chromium.open(many)
    drawn = chromium.find("#map-places svg.nodes")
    assert drawn.size["height"] <= 900
    assert drawn.size["width"] <= width
    cells = chromium.run("return document.querySelectorAll('.nodes path')[0].getAttribute('d').split('z').length - 1")
    assert cells == MANY - len(SICK)
    failed = chromium.run("return document.querySelector('.nodes path.F').getAttribute('d').split('z').length - 1")
    assert failed == 2


def test_what_the_map_of_many_nodes_shows_stands_below_it_in_words(chromium: Browser, many: Path) -> None:
    chromium.open(many)
    assert chromium.texts("#map-places .sick dd")[:2] == ["2 nodes gpu[00420,07777]", "1 node gpu09001"]
    chromium.find("#map-places .sick dd a").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(
        lambda _: chromium.find("#shown").text.endswith("2 of 10,000 nodes")
    )


def test_more_than_a_thousand_nodes_of_a_place_are_counted_with_a_separator(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = [f"gpu{number:04d}" for number in range(2402)]
    results = [result("gpu.ecc", name, Verdict.FAIL, "bad") for name in names]
    cluster = Cluster("prod", "ssh", tuple(Target(name, group=f"hall-{at % 2}") for at, name in enumerate(names)))
    facts = ClusterFacts(cluster, NodeEvidence("prod"), nodes(cluster, {name: node(name) for name in names}))
    chromium.open(written(tmp_path_factory, document(replace(run_of(results), facts=facts))))
    assert chromium.awaited(".sick dd").text.startswith("2,402 nodes ")
    assert chromium.texts("#map-places .sick dd")[1] == "hall-0 1,201, hall-1 1,201"
    assert chromium.find("#map-places svg.nodes").get_attribute("aria-label") == "map of 2,402 nodes, 2,402 fail"


BROKEN = """return [...document.querySelectorAll('.sick dd')].flatMap((dd) => [...dd.childNodes])
    .filter((node) => node.nodeType === 3 && node.data.includes('gpu['))
    .flatMap((node) => { const range = document.createRange(); range.selectNode(node);
        return range.getClientRects().length > 1 ? [node.data] : []; })"""


def test_a_nodeset_below_the_map_goes_on_below_itself_between_two_names(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = [f"gpu{number:04d}" for number in range(1, 1001)]
    results = [result("gpu.ecc", name, Verdict.FAIL if at % 20 == 0 else Verdict.PASS) for at, name in enumerate(names)]
    chromium.look(width=390)
    chromium.open(written(tmp_path_factory, document(run_of(results, [node(name) for name in names]))))
    assert chromium.awaited(".sick dd").text.startswith("50 nodes gpu[0001,0021,")
    assert chromium.run(BROKEN) == []


def test_pointing_at_a_small_cell_says_which_node_it_is(chromium: Browser, many: Path) -> None:
    chromium.open(many)
    chromium.run(
        "const box = document.querySelector('#map-places svg.nodes').getBoundingClientRect();"
        "const at = { clientX: box.left + 2, clientY: box.top + 2, bubbles: true };"
        "document.querySelector('#map-places svg.nodes').dispatchEvent(new MouseEvent('mousemove', at));"
    )
    assert "gpu00401 in gpu[00401-00450]" in chromium.find("#map-detail").text  # most failures first


def test_each_tile_is_a_link_to_what_it_is_about_and_nothing_else(chromium: Browser, few: Path) -> None:
    chromium.open(few)
    assert [text.split("\n")[0] for text in chromium.texts(".tiles a b")] == [
        "REPLACE",
        "FIX CONFIGURATION",
        "NOT PROVEN",
        "FIT",
    ]
    assert "First replace gpu001: Title of replace." in chromium.find(".verdict").text
    chromium.find(".tiles a[data-action='fix configuration']").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.find("#shown").text.endswith("1 of 4 nodes"))
    assert [text.partition(":")[0] for text in chromium.texts(SHOWN)] == ["FAIL Title of fix"]
    assert chromium.count("#map-places .cell:not(.out)") == 1
    assert chromium.count(".tiles a[aria-current]") == 1
    link = chromium.run("return location.hash")
    chromium.open(few, link)
    assert chromium.find("#shown").text == "fix configuration: 1 of 3 findings, 1 of 4 nodes"
    chromium.find("#all").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.find("#shown").text.endswith("4 of 4 nodes"))


def test_the_tile_of_what_is_fit_shows_the_nodes_that_are(chromium: Browser, few: Path) -> None:
    chromium.open(few, "#q=&action=fit")
    assert chromium.find("#shown").text == "fit: 0 of 3 findings, 1 of 4 nodes"


def test_the_footer_says_what_made_the_page_how_it_was_asked_and_how_long_it_took(chromium: Browser, few: Path) -> None:
    chromium.open(few)
    text = chromium.find("footer").text
    assert text.startswith("clusterproof ")
    assert text.endswith("pytest --cluster prod · took 12.3 s")


def test_a_cell_of_many_nodes_says_how_much_more_was_said_of_them(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    results = [result("gpu.ecc", f"gpu{at}", Verdict.FAIL, f"GPU {at} is ill; expected health") for at in range(8)]
    chromium.open(written(tmp_path_factory, document(run_of(results))))
    chromium.run(
        "document.querySelector('#grid-table td.F').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    )
    said = chromium.texts("#grid-detail .message")
    assert said[0] == "GPU 0 is ill; expected health"
    assert said[3:] == ["… and 5 more"]
