"""The reader's choices and position in Chromium: kept on reload, on going back, in print, and by keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.reports.pages import demo_page
from tests.testbed.browser import LONGEST_S, Browser
from tests.testbed.needs import needs_chromium, needs_pdftotext

pytestmark = needs_chromium
SHOWN = "#findings > details:not([hidden]) summary"
# Whether the middle of the focused element is visible rather than covered.
IS_SEEN = """
const box = document.activeElement.getBoundingClientRect();
return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === document.activeElement;
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "report.html"
    path.write_text(demo_page(), encoding="utf-8")
    return path


def shows(chromium: Browser, text: str) -> None:
    """Wait until this many are shown: a browser reports a changed hash a moment later."""
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: text in chromium.find("#shown").text)


def test_what_was_chosen_stands_in_the_address_and_a_link_to_it_shows_the_same(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    chromium.find("#search").send_keys("gpu012")
    Select(chromium.find("#subsystem")).select_by_value("storage")
    chromium.find("input[name=C]").click()
    link = chromium.run("return location.hash")
    assert link == "#q=gpu012&show=FI&subsystem=storage"
    chosen = chromium.texts(SHOWN)
    chromium.open(demo, link)
    assert chromium.texts(SHOWN) == chosen != []
    chromium.find("#search").clear()
    chromium.find("#search").send_keys(" ", Keys.BACKSPACE)
    Select(chromium.find("#subsystem")).select_by_value("")
    chromium.find("input[name=C]").click()
    assert chromium.run("return location.hash") == ""


def test_the_way_back_from_a_filter_shows_all_again(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    chromium.find("#map-places .cell[href$='gpu003']").click()
    shows(chromium, "1 of 16 nodes")
    chromium.driver.back()
    shows(chromium, "16 of 16 nodes")
    assert chromium.find("#search").get_attribute("value") == ""


@pytest.mark.parametrize("place", ["#versions", "#node=gpu003"])
def test_a_filter_outlives_a_link_to_a_place_and_a_reload_there(chromium: Browser, demo: Path, place: str) -> None:
    chromium.open(demo, "#q=gpu003&show=F")
    shows(chromium, "1 of 16 nodes")
    chromium.run("location.hash = arguments[0]", place)
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.run("return history.state") == "q=gpu003&show=F")
    chromium.driver.refresh()
    assert chromium.find("#search").get_attribute("value") == "gpu003"
    assert not chromium.find("input[name=C]").is_selected()
    assert chromium.run("return location.hash") == place


@pytest.mark.parametrize(("asked", "shown"), [("gpu099", "gpu099"), ("%3Cb%3Ex", "<b>x"), ("%", "%")])
def test_a_node_that_is_not_in_the_run_is_said_not_to_be(chromium: Browser, demo: Path, asked: str, shown: str) -> None:
    chromium.open(demo, f"#node={asked}")
    assert chromium.awaited("#no-node").text == f"{shown} is not in this run"
    chromium.run("location.hash = '#node=gpu003'")
    assert chromium.awaited("#node h2").text.endswith("gpu003")
    assert chromium.run("return document.getElementById('no-node')") is None


def test_whoever_comes_back_from_a_node_is_at_its_link_again(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    link = chromium.find("#grid-table a[href='#node=gpu003']")
    link.send_keys(Keys.ENTER)
    assert chromium.awaited("#node h2").text.endswith("gpu003")
    chromium.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    chromium.awaited("#main")
    assert chromium.driver.switch_to.active_element.get_attribute("hash") == "#node=gpu003"


def test_a_nodes_page_begins_with_the_node(chromium: Browser, demo: Path) -> None:
    chromium.look(width=390)
    chromium.open(demo, "#node=gpu003")
    assert chromium.awaited("#node h2").location["y"] < 200
    assert not chromium.find(".tiles").is_displayed()
    assert chromium.find("h1").is_displayed()


def test_a_nodes_page_has_the_commands_to_copy_and_the_way_to_each_checks_page(chromium: Browser, demo: Path) -> None:
    chromium.open(demo, "#node=gpu003")
    chromium.awaited("#node h2")
    assert "clusterproof explain gpu.no_xid" in chromium.texts("#node dd code")
    assert chromium.count("#node dd .copy") == chromium.count("#node dd code") > 2


@pytest.mark.parametrize("width", [390, 1024])
def test_nothing_lies_over_the_cell_that_has_the_focus(chromium: Browser, demo: Path, width: int) -> None:
    chromium.look(width=width)
    chromium.open(demo)
    chromium.find("#all-checks").click()
    chromium.run("document.querySelector('#grid-table tbody td[tabindex=\"0\"]').focus()")
    for key in (Keys.ARROW_RIGHT,) * 40 + (Keys.ARROW_DOWN,) * 5 + (Keys.ARROW_LEFT,) * 38 + (Keys.ARROW_UP,) * 3:
        chromium.driver.switch_to.active_element.send_keys(key)
        assert chromium.run(IS_SEEN), chromium.find("#grid-detail").text


def test_a_long_name_of_a_check_is_not_cut(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    chromium.find("#all-checks").click()
    names = "return [...document.querySelectorAll('#grid-table thead span')]"
    assert chromium.run(f"{names}.filter((one) => one.scrollHeight > one.clientHeight + 1).length") == 0


@needs_pdftotext
def test_on_paper_it_is_said_what_a_filter_leaves_out(chromium: Browser, demo: Path, tmp_path: Path) -> None:
    def printed(where: str) -> str:
        chromium.open(demo, where)
        (tmp_path / "page.pdf").write_bytes(chromium.printed())
        command = ["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "1 of 16 nodes" in printed("#q=gpu003")
    assert "16 of 16 nodes" not in printed("")
