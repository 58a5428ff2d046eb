"""Findings of `clusterproof return` on other nodes than those to be returned are reported and count."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.accept.return_to_service import FIT, NOT_PROVEN, judge, other_findings, return_nodes
from clusterproof.plugins.core.result import Finding, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.facts import SLOWER
from clusterproof.plugins.inventory import resolve
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import default_path, write_run
from tests.accept.returned import CLUSTER, LOADED, MEASUREMENT, TYPED, WELL, Launched, result
from tests.testbed.cluster import testbed
from tests.testbed.faults import with_file
from tests.testbed.load import gpu_node
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5

PASS, FAIL, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_healthy_node_that_fails_the_load_is_said_and_bears_no_more() -> None:
    launched = Launched({("gpu004", "gpu.gpu_exact"): FAIL, ("gpu001", "gpu.gpu_exact"): CONCERN})
    code, text = return_nodes([CLUSTER, "gpu003", "--beside", "gpu001,gpu004"], launched)
    assert [command[2] for command in launched.typed] == [
        "--nodes=gpu[001,003-004]",
        "--nodes=gpu[001,003-004]",
        "--nodes=gpu[001,003]",
    ]
    assert "beside      gpu004: gpu.gpu_exact: fail: 2; expected 0\n" in text
    assert "beside      gpu001: gpu.gpu_exact: concern: 2; expected 0\n" in text
    assert (code, "FIT         gpu003\n" in text) == (0, True)


def test_a_healthy_node_that_fails_a_check_is_said_and_bears_no_load() -> None:
    launched = Launched({("gpu004", "gpu.no_xid"): FAIL})
    code, text = return_nodes([CLUSTER, "gpu003", "--beside", "gpu001,gpu004"], launched)
    assert [command[2] for command in launched.typed] == ["--nodes=gpu[001,003-004]", *["--nodes=gpu[001,003]"] * 2]
    assert "beside      gpu004: gpu.no_xid: fail: 2; expected 0\n" in text
    assert code == 0


@needs_cluster
def test_a_node_with_other_firmware_than_the_healthy_ones_is_said() -> None:
    images = {name: gpu_node(healthy_p5(name)) for name in ("gpu001", "gpu002", "gpu003", "gpu004")}
    images["gpu002"] = with_file(images["gpu002"], "/sys/class/dmi/id/bios_version", "2.0\n")
    arguments = ["return", "ssh:gpu[001-004]", "gpu002", "--beside", "gpu[001,003-004]", "--load", "gpu_gemm"]
    with testbed(images) as bed:
        ran = bed.run([sys.executable, "-c", TYPED, *arguments], timeout=600.0)
    output = ran.stdout.decode()
    assert "concern: host.firmware_uniform: BIOS of Amazon EC2 Not Specified 2.0; expected 1.0 as on 3 of" in output


def test_where_no_healthy_node_is_left_no_pair_is_measured_and_nothing_is_proven() -> None:
    launched = Launched({("gpu004", "gpu.gpu_exact"): FAIL})
    code, text = return_nodes([CLUSTER, "gpu003", "--beside", "gpu004", "--json"], launched)
    assert len(launched.typed) == 2
    of_gpu003 = json.loads(text)[0]
    assert (code, of_gpu003["said"], of_gpu003["beside"]) == (
        10,
        NOT_PROVEN,
        ["gpu004: gpu.gpu_exact: fail: 2; expected 0"],
    )
    assert of_gpu003["reasons"] == [f"the pairs told nothing of it; {MEASUREMENT}"]


OF_CLUSTER = result("host.same_kernel", FAIL, "c", subject="cluster")


@pytest.mark.parametrize(
    ("verdict", "expected", "reasons"),
    [
        (FAIL, NOT_PROVEN, ("host.same_kernel: the cluster failed: 2; expected 0",)),
        (CONCERN, FIT, ()),
        (INCOMPLETE, FIT, ()),
    ],
)
def test_what_failed_of_the_cluster_is_said_and_no_node_is_fit_then(
    verdict: Verdict, expected: str, reasons: tuple[str, ...]
) -> None:
    ran = [[*WELL, replace(OF_CLUSTER, verdict=verdict)], [*LOADED, replace(OF_CLUSTER, verdict=verdict)]]
    judged = judge("n1", (), ran, 2)
    assert (judged.said, judged.reasons) == (expected, reasons)
    assert other_findings(ran, ["n1"]) == (f"c: host.same_kernel: {verdict.value}: 2; expected 0",)


def test_a_healthy_node_that_cannot_be_reached_is_said_once_and_not_without_end() -> None:
    lost = [result(f"gpu.check{number}", INCOMPLETE, "n2", cause="unreachable: refused") for number in range(30)]
    assert other_findings([lost], ["n1"]) == ("n2: gpu.check0: incomplete: 2; expected 0",)
    many = [result(f"gpu.check{number}", FAIL, "n2") for number in range(30)]
    assert other_findings([many], ["n1"])[-1] == "10 more"


def test_each_check_by_which_a_node_is_slower_than_others_is_said() -> None:
    checks = ("perf.gpu_compute", "perf.host_to_gpu", "perf.fs_bandwidth")
    slow = [result(check, verdict, "n2", cause=SLOWER) for check in checks for verdict in (FAIL, CONCERN)]
    messages = [f"n2: {check}: {word}: 2; expected 0" for check in checks for word in ("fail", "concern")]
    assert list(other_findings([slow], ["n1"])) == messages


def test_a_concern_beside_what_is_missing_for_one_cause_is_said() -> None:
    gap = Finding(INCOMPLETE, "no root; expected it", cause="no root")
    lost, more = (result(f"gpu.check{number}", INCOMPLETE, "n2") for number in range(2))
    ran = [with_findings(lost, (gap,)), with_findings(more, (gap, Finding(CONCERN, "90 °C; expected 80")))]
    assert other_findings([ran], ["n1"]) == (
        "n2: gpu.check0: incomplete: no root; expected it",
        "n2: gpu.check1: concern: 90 °C; expected 80",
    )


def test_what_nobody_has_on_record_of_a_node_is_said(here: Path) -> None:
    name = resolve(CLUSTER).name
    path = default_path(name)
    code, text = return_nodes([CLUSTER, "gpu002"], Launched())
    assert (code, f"concern: no history of gpu002 at {path}: what was found before is not known; expected" in text) == (
        0,
        True,
    )
    path.parent.mkdir(parents=True, mode=0o700)
    write_run(path, PastRun(name, 1.0, 2.0), [result("host.thp", PASS, "gpu002")])
    code, text = return_nodes([CLUSTER, "gpu[002-003]"], Launched())
    assert (code, "no history of gpu002" in text, "no history of gpu003" in text) == (0, False, True)
