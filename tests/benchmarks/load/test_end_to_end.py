"""`pytest --cluster ssh:… -m perf` as typed by a user: nodes are loaded once, and the slow one is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.load.options import COLLECTORS, SECONDS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.reports.results import read_results
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.load import SCRATCH, gpu_node, with_speed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5

pytestmark = [needs_cluster]

ROOT = Path(__file__).parents[3]
CHOSEN = [name for name, check in node_checks().items() if "perf" in occasions(check)]
PASS = dict.fromkeys(CHOSEN, Verdict.PASS) | {"neuron.nccom": Verdict.NOT_APPLICABLE}
ONE_NODE = ("-k", "not pairwise and not straggler")  # pairs of nodes have their own tests
ON_FSX = ("--fs-bandwidth", SCRATCH, "--fs-size", "64", "--fs-at-once", "2")
STRESS = ("--stress-s", "1")
SLOW = {"gpu.gpu_gemm": Verdict.FAIL, "storage.fs_bandwidth": Verdict.CONCERN}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """Four nodes, the second of which is slow."""
    images = {name: gpu_node(healthy_p5(name)) for name in ("gpu001", "gpu002", "gpu003", "gpu004")}
    images["gpu002"] = with_speed(images["gpu002"], "gemm 5 512", "fio write 1.1")
    with testbed(images) as bed:
        yield bed


def run(bed: Testbed, folder: Path, *options: str) -> tuple[dict[str, dict[str, Verdict]], str]:
    """Run `pytest OPTIONS` in the checkout; returns every verdict by node and check, and the output."""
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    arguments = ["-m", "pytest", f"--rootdir={ROOT}", "-p", "no:cacheprovider", "--results", str(results), *options]
    ran = bed.run([sys.executable, *arguments, str(ROOT / "checks")], timeout=600)
    verdicts: dict[str, dict[str, Verdict]] = {}
    for result in read_results(results):
        verdicts.setdefault(result.node, {})[result.check] = result.verdict
    return verdicts, (ran.stdout + ran.stderr).decode()


def collectors(recording: Path, node: str) -> set[str]:
    """The collectors that a recorded node was asked for."""
    return set(json.loads((recording / "nodes" / f"{node}.json").read_text())["collectors"])


def test_the_slow_node_is_named_and_no_other_and_a_replay_says_the_same(bed: Testbed, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    verdicts, output = run(
        bed,
        tmp_path,
        "--cluster",
        "ssh:gpu[001-004]",
        "-m",
        "perf",
        *ONE_NODE,
        *ON_FSX,
        *STRESS,
        "--record",
        str(recording),
    )
    assert verdicts == {f"gpu00{number}": PASS for number in (1, 3, 4)} | {"gpu002": PASS | SLOW}, output
    assert "GPU 5, bfloat16 products of 8192 × 8192: 512 TFLOP/s, 26 % below" in " ".join(output.split())
    assert f"loading 4 nodes ({', '.join(SECONDS)})" in output
    assert collectors(recording, "gpu001") > COLLECTORS
    (tmp_path / "again").mkdir()
    assert run(bed, tmp_path / "again", "--cluster", f"replay:{recording}", "-m", "perf", *ONE_NODE)[0] == verdicts


def test_with_workers_of_xdist_only_what_is_selected_is_loaded(bed: Testbed, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    options = (
        "--cluster",
        "ssh:gpu[001-004]",
        "-m",
        "perf and gpu",
        "-k",
        "gemm",
        "-n",
        "2",
        "--record",
        str(recording),
    )
    verdicts, output = run(bed, tmp_path, *options)
    assert verdicts == {
        "gpu001": {"gpu.gpu_gemm": Verdict.PASS},
        "gpu002": {"gpu.gpu_gemm": Verdict.FAIL},
        "gpu003": {"gpu.gpu_gemm": Verdict.PASS},
        "gpu004": {"gpu.gpu_gemm": Verdict.PASS},
    }, output
    assert collectors(recording, "gpu001") & COLLECTORS == {"gpu_gemm"}


@pytest.mark.parametrize("mark", ["gpu", "preflight and not perf", "prolog"])
def test_without_perf_in_m_no_node_is_loaded(mark: str, bed: Testbed, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    verdicts, output = run(bed, tmp_path, "--cluster", "ssh:gpu001", "-m", mark, "--record", str(recording))
    assert verdicts["gpu001"].get("gpu.dcgm_diag", Verdict.NOT_APPLICABLE) is Verdict.NOT_APPLICABLE
    assert "gpu.gpu_gemm" not in verdicts["gpu001"], output
    assert not collectors(recording, "gpu001") & COLLECTORS
    assert "loading" not in output


def test_without_a_folder_nothing_is_written(bed: Testbed, tmp_path: Path) -> None:
    verdicts, output = run(bed, tmp_path, "--cluster", "ssh:gpu001", "-m", "perf and storage")
    assert verdicts == {"gpu001": {"storage.fs_bandwidth": Verdict.NOT_APPLICABLE}}, output


def test_no_scratch_file_is_left(bed: Testbed) -> None:
    assert [list((node.root / SCRATCH[1:]).iterdir()) for node in bed.nodes.values()] == [[]] * 4
