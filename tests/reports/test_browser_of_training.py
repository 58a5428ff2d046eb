"""The section of a training run in Chromium: light, dark, narrow, on paper, and without a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.reports.formats.html import document
from tests.reports.contrast import CONTRAST
from tests.reports.reported import result, run_of
from tests.reports.run_of_training import training_run
from tests.testbed.browser import Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
COLOURS = """
return new Set([...document.querySelectorAll(arguments[0])].map((one) => getComputedStyle(one)[arguments[1]])).size;
"""


@pytest.fixture(scope="module")
def of_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a training run with everything that one can have."""
    path = tmp_path_factory.mktemp("training") / "report.html"
    path.write_text(document(run_of([result("run.slow_rank", "llama")], training=training_run())), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_drawn_in_light_and_dark_and_its_words_can_be_read(
    chromium: Browser, of_training: Path, scheme: str
) -> None:
    chromium.look(scheme)
    chromium.open(of_training)
    assert chromium.complaints() == []
    assert chromium.run(CONTRAST) >= 4.5
    assert chromium.run(COLOURS, "svg.phases rect", "fill") == 5
    assert chromium.run(COLOURS, ".ranks i", "backgroundColor") >= 2
    assert chromium.run(COLOURS, ".bands path", "fill") >= 3
    assert chromium.find("figure.steps .line").is_displayed()


def test_on_a_narrow_screen_nothing_is_wider_than_the_page(chromium: Browser, of_training: Path) -> None:
    chromium.look(width=390)
    chromium.open(of_training)
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    assert chromium.run("return document.querySelector('.ranks').getBoundingClientRect().right") <= 390


def test_it_needs_no_script(chromium: Browser, of_training: Path) -> None:
    chromium.tell("Emulation.setScriptExecutionDisabled", value=True)
    chromium.open(of_training)
    assert chromium.find("svg.phases").is_displayed()
    assert chromium.find(".bands").is_displayed()
    chromium.tell("Emulation.setScriptExecutionDisabled", value=False)


def test_it_is_printed_with_its_colours(chromium: Browser, of_training: Path) -> None:
    chromium.look("dark")
    chromium.open(of_training)
    assert chromium.printed().startswith(b"%PDF")
    chromium.tell("Emulation.setEmulatedMedia", media="print")
    adjust = "return getComputedStyle(document.querySelector('.ranks i')).printColorAdjust"
    assert chromium.run(adjust) == "exact"
    assert chromium.run(COLOURS, "svg.phases rect", "fill") == 5
    chromium.tell("Emulation.setEmulatedMedia", media="")
