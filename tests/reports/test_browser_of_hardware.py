"""The picture of one node, what the demo shows a newcomer, and a filter for one node, in Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.transport.gather import replay
from clusterproof.reports.formats.html import document
from tests.builders.recordings import boot, gpu, node, nvml
from tests.reports.contrast import CONTRAST
from tests.reports.reported import result, run_of
from tests.testbed.browser import LONGEST_S, Browser
from tests.testbed.needs import needs_chromium

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo cluster's page from `--cluster demo`, with the findings on two of its nodes."""
    cluster = resolve("demo")
    evidence = replay(DEMO, cluster)
    results = [result("host.boot", name) for name in evidence]
    results += [
        result("gpu.nvlink_active", "gpu002", Verdict.FAIL, "GPU 7: NVLink 5 inactive", devices=("GPU 7",)),
        result(
            "gpu.no_uncorrected_ecc", "gpu003", Verdict.FAIL, "14 errors", devices=("GPU 1", "GPU 5"), team="hardware"
        ),
        result("network.memlock", "gpu008", Verdict.FAIL, "8 MiB", team="image", owner="hyperpod-nccl", section="17"),
    ]
    facts = ClusterFacts(cluster, NodeEvidence("demo"), nodes(cluster, evidence))
    path = tmp_path_factory.mktemp("hardware") / "report.html"
    path.write_text(document(replace(run_of(results, list(evidence.values())), facts=facts)), encoding="utf-8")
    return path


def test_the_link_that_is_down_is_red_and_said(chromium: Browser, demo: Path) -> None:
    chromium.open(demo, "#node=gpu002")
    label = chromium.find("#node svg.hardware").get_attribute("aria-label")
    assert label == ("gpu002: 8 GPUs, 32 network devices, 4 NVSwitches, NVLink 5 of GPU 7 inactive")
    assert chromium.count("#node svg.hardware .link.dead") == 1
    assert chromium.count("#node svg.hardware rect.part.F") == 1
    assert "17/18 NVLinks" in chromium.find("#node svg.hardware").text
    assert chromium.complaints() == []


def test_a_link_that_could_not_be_read_is_not_drawn_as_inactive(chromium: Browser, tmp_path: Path) -> None:
    links = [True, {"error": "UNKNOWN"}, True]
    raw = node("gpu001", boot=boot(), nvml=nvml(gpu(0, nvlinks=links)))
    path = tmp_path / "report.html"
    path.write_text(document(run_of([result("gpu.ecc", "gpu001")], [raw])), encoding="utf-8")
    chromium.open(path, "#node=gpu001")
    assert chromium.find("#node svg.hardware").get_attribute("aria-label") == "gpu001: 1 GPU, 0 network devices"
    assert chromium.count("#node svg.hardware .link.dead") == 0
    assert "2/3, 1 unread" in chromium.find("#node svg.hardware").text
    assert "2 of 3, 1 unread" in chromium.texts("#node .readings tbody td")


def test_a_port_that_is_down_is_red_only_where_a_check_failed(chromium: Browser, tmp_path: Path) -> None:
    ports = {"mlx5_0": "4: ACTIVE", "mlx5_1": "1: DOWN", "mlx5_2": "1: DOWN"}  # mlx5_1 was switched off by somebody
    rdma = {"devices": [{"name": name, "ports": [{"state": state}]} for name, state in ports.items()]}
    failed = result("network.ib_ports", "gpu001", Verdict.FAIL, "port 1 is 1: DOWN", devices=("mlx5_2",))
    path = tmp_path / "report.html"
    raw = node("gpu001", boot=boot(), nvml=nvml(gpu(0)), rdma=rdma)
    path.write_text(document(run_of([failed], [raw])), encoding="utf-8")
    chromium.open(path, "#node=gpu001")
    drawn = "return [...document.querySelectorAll('#node svg.hardware .part')].map((one) => one.getAttribute('class'))"
    assert chromium.run(drawn) == ["part ok", "part ok", "part off", "part F"]
    assert "mlx5_1 DOWN" in chromium.find("#node svg.hardware").text
    assert "no port is active" in chromium.find("#node .legend").text


def test_the_table_of_gpus_marks_the_reading_that_failed(chromium: Browser, demo: Path) -> None:
    chromium.open(demo, "#node=gpu003")
    heads = chromium.texts("#node .readings thead th")
    assert heads[2:] == [
        "temperature, °C",
        "power, W",
        "graphics clock, MHz",
        "memory in use, GiB",
        "uncorrected ECC errors",
        "corrected ECC errors",
        "NVLink errors",
        "NVLinks",
        "PCIe",
        "Xids",
    ]
    assert chromium.texts("#node .readings td.number.F") == ["14", "14"]
    assert chromium.texts("#node .readings tbody tr:nth-child(2) td")[-1] == "48"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_can_be_read_in_light_and_dark(chromium: Browser, demo: Path, scheme: str) -> None:
    chromium.look(scheme)
    chromium.open(demo, "#node=gpu003")
    assert chromium.run(CONTRAST) >= 4.5


def test_a_newcomer_sees_every_picture_and_that_it_is_simulated(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    assert chromium.texts("#map-places h3")[0].startswith("rack-1 4 nodes")
    assert chromium.count("#trend svg.trend > g") == 20
    assert "gpu002 (9 changes)" in chromium.find("#trend").text
    assert chromium.texts("#trend .stories tr[data-nodes='gpu002'] td.state") == ["new, 9 changes"]
    assert "slow node gpu011" in chromium.find("#pairs").text
    assert chromium.count("#pairs .chords .dot.marked") == 3  # the slow node, and both ends of a slow link
    assert chromium.count("#pairs svg.heat") == 1
    assert "rank 19" in chromium.texts("#training tbody th")
    assert "simulated here" in chromium.find("header").text
    assert chromium.complaints() == []


def test_all_runs_of_the_demo_are_on_a_laptop(chromium: Browser, demo: Path) -> None:
    chromium.look(width=1024)
    chromium.open(demo)
    assert chromium.find("#trend .stories").size["width"] < 1024 - 40


def test_a_filter_of_one_node_filters_everything(chromium: Browser, demo: Path) -> None:
    chromium.open(demo, "#q=gpu011")
    assert chromium.find("#shown").text.endswith("1 of 16 nodes")
    assert chromium.texts("#trend table:not(.stories) tbody th") == ["gpu011"]
    assert chromium.texts("#trend .stories tbody th") == ["gpu.no_xid", "network.memlock"]
    lines = "[...document.querySelectorAll('#pairs .strip g')].map((one) => getComputedStyle(one).display)"
    assert chromium.run(f"return {lines}.filter((display) => display !== 'none').length") == 1
    chromium.find("#all").click()
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.find("#shown").text.endswith("16 of 16 nodes"))
    assert len(chromium.texts("#trend table:not(.stories) tbody th")) == 16


def test_the_owner_of_a_finding_is_its_team_and_the_skill_stands_in_small_print(chromium: Browser, demo: Path) -> None:
    chromium.open(demo)
    assert [option.text for option in chromium.driver.find_elements("css selector", "#owner option")] == [
        "all",
        "hardware",
        "hyperpod-node-debugger § G",
        "image",
    ]
    chromium.open(demo, "#q=&owner=image")
    shown = chromium.texts("#findings > details:not([hidden])")
    assert len(shown) == 1
    assert "owner\nimage on HyperPod the skill hyperpod-nccl § 17" in shown[0]


def test_the_heat_map_opens_on_the_strongest_outlier_and_says_value_peers_and_why(
    chromium: Browser, demo: Path
) -> None:
    chromium.open(demo)
    WebDriverWait(chromium.driver, LONGEST_S).until(lambda _: chromium.count("#gpu-bands svg.heat") == 1)
    chosen = "return document.getElementById('measure').selectedOptions[0].textContent"
    assert chromium.run(chosen) == "uncorrected ECC errors"
    assert chromium.count("#gpu-bands path.absent") == 1  # gpu005, which was not reached, is an empty column
    assert chromium.run("return document.querySelector('.heat .absent').getAttribute('d').split('M').length - 1") == 1
    chromium.run("describeGpu(2, 1, (node) => data.pool[data.gpus[heat.by.value][3][node]])")
    text = chromium.find("#gpu-detail").text
    assert "uncorrected ECC errors 14: counts what should be zero; of 116 GPUs the middle is 0" in text
