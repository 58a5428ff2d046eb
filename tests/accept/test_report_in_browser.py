"""The report to be signed, on screen and in print."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.remote.webelement import WebElement

from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.report import report
from tests.accept.simulated import STAGES, Nodes, acceptance
from tests.testbed.browser import Browser, browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
CUT = (
    'return [...document.querySelectorAll("#evidence .scroll, #signatures .scroll")]'
    ".filter((one) => one.scrollWidth > one.clientWidth).length"
)
A_HAND = 48  # pixels


@pytest.mark.parametrize("medium", ["screen", "print"])
def test_no_digest_is_cut_and_a_hand_has_room_to_sign(tmp_path: Path, medium: str) -> None:
    made = acceptance(tmp_path, Nodes(), STAGES)
    made.go_on((), lambda _words: None)
    path = tmp_path / "acceptance.html"
    path.write_text(page(report(made.state, made.ended, made.named, "")), encoding="utf-8")
    with browser() as opened:
        opened.look(width=1024)
        opened.tell("Emulation.setEmulatedMedia", media=medium)
        opened.open(path)
        assert opened.run(CUT) == 0
        assert {place.size["height"] >= A_HAND for place in places_to_sign(opened)} == {True}
        assert opened.complaints() == []


def places_to_sign(opened: Browser) -> list[WebElement]:
    return opened.driver.find_elements("css selector", "#signatures td")
