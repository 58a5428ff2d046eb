"""The page's pictures in Chromium: the map, the heat map of GPUs × nodes, and the trend of recent runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.reports.pages import COUNTS_LINKS, GPUS, HOT, NODES, RUNS, SITE, demo_page, page_with_history
from tests.testbed.browser import LONGEST_S, Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
CELLS = "#map-places .cell"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nodes in three groups, with a history."""
    path = tmp_path_factory.mktemp("pictures") / "report.html"
    path.write_text(page_with_history(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "report.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


def gpus_drawn(chromium: Browser, nodes: int) -> None:
    """Wait until the heat map shows this many nodes: it is drawn after the rest of the page."""
    WebDriverWait(chromium.driver, LONGEST_S).until(
        lambda _: chromium.run("return document.querySelector('#gpu-bands svg') && heat.nodes.length") == nodes
    )


def test_the_map_has_a_cell_for_each_node_in_its_group_with_the_letter_of_its_verdict(
    chromium: Browser, page: Path
) -> None:
    chromium.open(page)
    assert chromium.texts("#map-places h3") == [
        "rack-1 4 nodes, 1 fail",
        "rack-2 4 nodes",
        "rack-3 4 nodes, 1 incomplete, 1 concern",
    ]
    cells = chromium.texts(CELLS)
    assert len(cells) == NODES
    assert [cells[1], cells[8], cells[9], cells[0]] == ["gpu002 F", "gpu009 I", "gpu010 C", "gpu001 ·"]
    Select(chromium.find("#map-by")).select_by_value("name")
    assert chromium.count("#map-places .place") == 1


def test_a_click_on_a_cell_filters_the_page_to_that_node_and_a_link_shows_all_again(
    chromium: Browser, page: Path
) -> None:
    chromium.open(page)
    chromium.find(f"{CELLS}[href$='gpu002']").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.find("#shown").text.endswith("1 of 12 nodes"))
    assert chromium.run("return location.hash") == "#q=gpu002"
    assert chromium.count(f"{CELLS}.out") == NODES - 1
    assert len(chromium.texts("#findings > details:not([hidden]) summary")) == 1
    chromium.find("#all").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.find("#shown").text.endswith("12 of 12 nodes"))
    assert chromium.count(f"{CELLS}.out") == 0


def test_the_map_is_walked_with_keys_and_says_what_is_wrong(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    first = chromium.find(f"{CELLS}[tabindex='0']")
    assert first.text == "gpu002 F"
    chromium.run("arguments[0].focus()", first)
    assert chromium.find("#map-detail").text == "FAIL gpu002: Title of ecc (fail)"
    first.send_keys(Keys.ARROW_RIGHT)
    assert chromium.find("#map-detail").text == "PASS gpu003"


def test_the_heat_map_shows_what_the_reader_chooses_and_says_where_the_most_is(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    gpus_drawn(chromium, NODES)
    assert chromium.count("#gpu-bands svg text.row") == GPUS
    assert chromium.texts("#gpu-most li")[0] == f"{HOT[0]} GPU {HOT[1]}: 81 °C"
    assert chromium.count("#gpu-bands path.low-4") == 1
    choice = Select(chromium.find("#measure"))
    assert [option.text for option in choice.options] == [
        "temperature",
        "power",
        "graphics clock",
        "memory in use",
        "uncorrected ECC errors",
        "corrected ECC errors",
        "NVLink errors",
    ]
    choice.select_by_visible_text("NVLink errors")
    assert chromium.texts("#gpu-most li") == [f"{COUNTS_LINKS[0]} GPU {COUNTS_LINKS[1]}: 12"]
    choice.select_by_visible_text("corrected ECC errors")
    assert chromium.find("#gpu-most").text == f"Of {NODES * GPUS} GPUs none has any corrected ECC errors."


def test_the_heat_map_shows_the_nodes_of_the_filter_alone(chromium: Browser, page: Path) -> None:
    chromium.open(page, "#q=gpu007")
    gpus_drawn(chromium, 1)
    assert chromium.texts("#gpu-bands text:not(.row)") == ["gpu007"]


def test_the_trend_has_a_bar_for_each_run_and_the_story_of_what_comes_and_goes(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    assert chromium.texts("#trend h2") == [f"The last {RUNS} runs"]
    assert chromium.count("#trend svg.trend > g") == RUNS
    assert chromium.count("#trend svg.trend path.F") == 7  # of twenty, every third
    story = chromium.texts("#trend .stories tbody tr")
    assert len(story) == 1
    assert story[0].split()[:8] == ["gpu.ecc", "gpu002", "new,", "13", "changes", "·", "F", "·"]
    slowest = chromium.texts("#trend table:not(.stories) tbody tr")[0]
    assert slowest.startswith("gpu003 384 GB/s 480 GB/s -20.0 %")


def test_the_trends_numbers_are_drawn_whole_and_all_its_runs_are_on_a_laptop(chromium: Browser, page: Path) -> None:
    chromium.look(width=1024)
    chromium.open(page)
    drawn = "return getComputedStyle(document.querySelector(arguments[0])).strokeDasharray"
    assert chromium.run(drawn, "#trend svg.trend text") == "none"
    stories = chromium.find("#trend .stories")
    assert stories.size["width"] < 1024 - 40
    rows = chromium.driver.find_elements("css selector", "#trend table:not(.stories) tbody tr")
    assert max(row.size["height"] for row in rows) < 50


def test_each_finding_leads_to_its_checks_page_and_to_the_command_that_explains_it(
    chromium: Browser, page: Path, demo: Path
) -> None:
    chromium.open(page)
    link = chromium.find("#findings details[open] dd a[href*='checks/']")
    assert link.get_attribute("href") == f"{SITE}checks/gpu.ecc.html"
    chromium.open(demo)
    assert chromium.count("#findings dd a[href*='checks/']") == 0
    assert "clusterproof explain network.memlock" in chromium.texts("#findings dd code")


def test_what_was_not_measured_is_one_folded_card(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    assert chromium.count("#gaps > details") == 1
    reasons = chromium.count("#gaps .card > details")
    assert f"verdicts are missing, for {reasons} reasons" in chromium.texts("#gaps > details > summary")[0]
    assert not chromium.find("#gaps details details").is_displayed()
    chromium.find("#gaps summary").click()
    assert len(chromium.texts("#gaps .card > details > summary")) == reasons > 1


def test_keys_go_through_findings_and_nodes(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    chromium.find("body").send_keys("j")
    assert chromium.driver.switch_to.active_element == chromium.find("#findings > details > summary")
    chromium.driver.switch_to.active_element.send_keys("j")
    assert chromium.driver.switch_to.active_element == chromium.find("#findings > details + details > summary")
    chromium.driver.switch_to.active_element.send_keys("k")
    assert chromium.driver.switch_to.active_element == chromium.find("#findings > details > summary")
    chromium.open(demo, "#node=gpu003")
    assert "gpu003" in chromium.awaited("#node h2").text
    chromium.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: "gpu004" in chromium.find("#node h2").text)
    chromium.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert chromium.awaited("#main").is_displayed()


# Words of letters, at most as long as a phone is wide, that are broken over several lines.
BROKEN = """
const walker = document.createTreeWalker(document.getElementById("main"), NodeFilter.SHOW_TEXT);
const broken = [];
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  if (!text.parentElement.checkVisibility() || text.parentElement.closest("svg, .cell, noscript, code, pre")) continue;
  for (const word of text.data.matchAll(/(?<=^|\\s)[\\w.,:;()=]{2,28}(?=\\s|$)/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
  }
}
return broken;
"""


@pytest.mark.parametrize("where", ["", "#node=gpu003"])
def test_no_word_is_broken_on_a_phone(chromium: Browser, demo: Path, where: str) -> None:
    chromium.look(width=390)
    chromium.open(demo, where)
    place = "document.getElementById('node')" if where else "document.getElementById('main')"
    assert chromium.run(BROKEN.replace('document.getElementById("main")', place)) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_nothing_is_wider_than_the_window_and_no_heading_is_cut(
    chromium: Browser, page: Path, demo: Path, scheme: str, width: int
) -> None:
    for opened in (page, demo):
        chromium.look(scheme, width)
        chromium.open(opened)
        assert chromium.run("return document.documentElement.scrollWidth") <= width
        cut = "h1, h2, h3, summary, dt, .tiles *, #grid-table thead th, .tools label"
        assert (
            chromium.run(
                "return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility() && "
                "one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')"
                ".map((one) => one.textContent)",
                cut,
            )
            == []
        )
        assert chromium.complaints() == []
