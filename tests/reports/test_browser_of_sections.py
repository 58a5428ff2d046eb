"""The heat map of pairs and the training run section in Chromium: light, dark, narrow, in print, without script."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clusters import Simulated
from clusterproof.reports.formats.html import document
from tests.benchmarks.pairwise.pair_faults import PairFault
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.reports.contrast import CONTRAST
from tests.reports.reported import result, run_of
from tests.reports.sections import training_run
from tests.testbed.browser import Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
# The contrast of each number in the heat map with its cell's colour.
HEAT_CONTRAST = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const value = part / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
return Math.min(...[...document.querySelectorAll(".swatch")].filter((one) => one.textContent).map((one) => {
  const pair = [light(getComputedStyle(one).color), light(getComputedStyle(one).backgroundColor)].sort();
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}), ...[...document.querySelectorAll(".heat .numbers text")].map((one) => {
  const cell = document.querySelector(".heat g." + one.classList[0].slice(3));
  const pair = [light(getComputedStyle(one).fill), light(getComputedStyle(cell).fill)].sort();
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}));
"""


@pytest.fixture(scope="module")
def of_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that measured pairs, some slow and some failed."""

    def put(cluster: Simulated) -> None:
        cluster.slow_nodes = {"n0003": 0.8, "n0009": 0.4, "n0012": 0.92}
        cluster.dead = ("n0005",)

    between = measured(PairFault("slow and dead", put))
    names = between.campaigns[0].journal.plan.nodes
    path = tmp_path_factory.mktemp("pairs") / "report.html"
    run = run_of([result("network.not_a_straggler", name) for name in names], between=between)
    path.write_text(document(run), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_numbers_of_the_heat_map_can_be_read_in_light_and_dark(
    chromium: Browser, of_pairs: Path, scheme: str
) -> None:
    chromium.look(scheme)
    chromium.open(of_pairs)
    assert chromium.count(".heat .numbers text") > 50
    assert chromium.run(HEAT_CONTRAST) >= 4.5
    assert chromium.run(CONTRAST) >= 4.5
    assert chromium.complaints() == []


def test_the_heat_map_needs_no_script_and_its_nodes_lead_to_their_pages(chromium: Browser, of_pairs: Path) -> None:
    chromium.tell("Emulation.setScriptExecutionDisabled", value=True)
    chromium.open(of_pairs)
    assert chromium.find(".heat").is_displayed()
    assert chromium.find(".heat .low-3 path title").get_attribute("textContent") == "n0003 ~ n0004: 80 %"
    chromium.tell("Emulation.setScriptExecutionDisabled", value=False)
    chromium.open(of_pairs)
    chromium.find(".strip a").click()
    assert chromium.awaited("#node h2").text.endswith("n0009")


def test_the_heat_map_scrolls_by_itself_in_a_narrow_window(chromium: Browser, of_pairs: Path) -> None:
    chromium.look(width=380)
    chromium.open(of_pairs)
    assert chromium.run("return document.documentElement.scrollWidth") <= 380


COLOURS = """
return new Set([...document.querySelectorAll(arguments[0])].map((one) => getComputedStyle(one)[arguments[1]])).size;
"""


@pytest.fixture(scope="module")
def of_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a training run with every section."""
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
    assert chromium.run(COLOURS, "figure.loss .line, figure.loss .outlier, figure.loss .wrong", "stroke") == 3


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
    assert chromium.find("figure.loss svg").is_displayed()
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
