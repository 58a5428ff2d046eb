"""axe-core finds no fault in the page: roles, names, contrast (WCAG A and AA), at every width and colour scheme."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from tests.counterparts.installed import folder, needs
from tests.reports.pages import demo_page, hostile_page, page_with_history
from tests.testbed.browser import LONGEST_S, Browser, browser
from tests.testbed.needs import needs_chromium

pytestmark = [needs("axe_core"), needs_chromium]
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"
ASK = """
const done = arguments[arguments.length - 1];
axe.run(document, { runOnly: arguments[0] }).then((found) => done(found.violations.map(
  (rule) => rule.id + ": " + rule.nodes.slice(0, 3).map((one) => one.target + " " + one.failureSummary).join("; "))));
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        started.driver.set_script_timeout(300)
        yield started


@pytest.fixture(scope="module", params=["demo", "history", "hostile"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = {"demo": demo_page, "history": page_with_history, "hostile": hostile_page}[request.param]
    path = tmp_path_factory.mktemp(request.param) / "report.html"
    path.write_text(made(), encoding="utf-8", errors="backslashreplace")
    return path


def complaints(chromium: Browser) -> list[Any]:
    """axe-core's findings on the open page."""
    script = (folder("axe_core") / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    chromium.run(script)
    return list(chromium.driver.execute_async_script(ASK, RULES))


@pytest.mark.parametrize("width", [390, 1024, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_whole_page_has_no_fault(chromium: Browser, page: Path, scheme: str, width: int) -> None:
    chromium.look(scheme, width)
    chromium.open(page)
    assert complaints(chromium) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", ["#q=gpu003", "#q=nowhere"])
def test_a_page_that_is_filtered_has_no_fault(chromium: Browser, page: Path, where: str, scheme: str) -> None:
    chromium.look(scheme)
    chromium.open(page, where)
    assert complaints(chromium) == []


def test_a_page_with_everything_unfolded_has_no_fault(chromium: Browser, page: Path) -> None:
    chromium.look()
    chromium.open(page)
    chromium.run("document.querySelector('#all-checks').click()")  # hidden if each check already has a message
    chromium.find("#grid-table tbody button").click()
    chromium.run(UNFOLD)
    chromium.run("document.querySelector('#grid-table td[tabindex=\"0\"]').focus()")
    assert complaints(chromium) == []


def test_a_nodes_page_has_no_fault(chromium: Browser, page: Path) -> None:
    chromium.look()
    chromium.open(page)
    chromium.run("location.hash = '#node=' + encodeURIComponent(data.nodes[2])")
    chromium.awaited("#node h2")
    chromium.run(UNFOLD)
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.count("#node .collector pre:empty") == 0)
    assert complaints(chromium) == []


def test_axe_core_would_see_a_fault(chromium: Browser, page: Path) -> None:
    chromium.look()
    chromium.open(page)
    chromium.run("document.getElementById('subsystem').parentNode.replaceWith(document.getElementById('subsystem'))")
    assert [complaint.partition(":")[0] for complaint in complaints(chromium)] == ["select-name"]
