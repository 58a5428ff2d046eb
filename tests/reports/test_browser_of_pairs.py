"""The heat map of pairs in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clusters import Simulated
from clusterproof.reports.formats.html import document
from tests.benchmarks.pairwise.pair_faults import PairFault
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.reports.contrast import CONTRAST
from tests.reports.reported import result, run_of
from tests.testbed.browser import Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium
# The contrast of each number of the heat map with the colour of its cell.
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
    """The page of a run that measured pairs, of which some are slow and some fail."""

    def put(cluster: Simulated) -> None:
        cluster.slow_nodes = {"n0003": 0.8, "n0009": 0.4, "n0012": 0.92}
        cluster.dead = ("n0005",)

    between = measured(PairFault("slow and dead", put))
    names = between.campaigns[0].journal.plan.nodes
    path = tmp_path_factory.mktemp("pairs") / "report.html"
    data = run_of([result("network.not_a_straggler", name) for name in names], between=between)
    path.write_text(document(data), encoding="utf-8")
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
