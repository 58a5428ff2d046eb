"""The command-line options for load."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.load.options import COLLECTORS, DCGM_SECONDS, SECONDS, STRESS, TAKES_TURNS
from clusterproof.plugins.benchmarks.meters.selection import METERS as OF_METERS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.fact import LOAD_COLLECTORS
from clusterproof.plugins.options.perf_table import DCGM_LEVELS, LAUNCHERS, LOADS, METERS
from clusterproof.plugins.options.perf_validate import timeouts
from clusterproof.plugins.suite.perf.load_options import (
    collectors_named,
    load_options,
    others,
    pairs_are_needed,
    paths_named,
)
from clusterproof.plugins.suite.perf.pairs_planning import LAUNCHERS as OF_LAUNCHERS
from tests.builders.runs import ALONE_OR_NOT, Runs

ROOT = Path(__file__).resolve().parents[3]
DEFAULTS = {
    "host_root": "/",
    "sudo": False,
    "dcgm_level": 2,
    "dcgm_parameters": "",
    "load_timeout": "",
    "load_path": "",
    "torch_python": "",
    "exact_s": 60.0,
    "stress_s": 0,
    "fs_bandwidth": "",
    "fs_size": 4096,
    "fs_at_once": 4,
    "markexpr": "",
    "keyword": "",
}


def given(**options: object) -> Namespace:
    return Namespace(**(DEFAULTS | options))


@pytest.mark.parametrize(
    ("text", "data"),
    [("", {}), ("60", {"": 60}), ("dcgm_diag=1200,gpu_gemm=60.5", {"dcgm_diag": 1200, "gpu_gemm": 60.5})],
)
def test_deadlines_are_for_all_or_for_some(text: str, data: dict[str, float]) -> None:
    assert timeouts(text) == data


@pytest.mark.parametrize(
    "text", ["0", "-5", "soon", "gemm=60", "dcgm_diag=", "dcgm_diag", "inf", "nan", "gpu_gemm=1e999"]
)
def test_a_deadline_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--load-timeout has"):
        timeouts(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fs_size": 8}, "--fs-size is 8; expected at least 64"),
        ({"exact_s": 0.5}, "--exact-s is 0.5; expected 1 to 86400"),
        ({"exact_s": float("nan")}, "--exact-s is nan; expected 1 to 86400"),
        ({"stress_s": -1}, "--stress-s is -1; expected 1 to 86400, or 0 for none"),
        ({"stress_s": 90000}, "--stress-s is 90000; expected 1 to 86400, or 0 for none"),
        ({"fs_at_once": 0}, "--fs-at-once is 0; expected at least 1"),
        ({"fs_bandwidth": "scratch"}, "--fs-bandwidth is 'scratch'; expected a path of the nodes"),
        ({"torch_python": "python3"}, "--torch-python is 'python3'; expected a path of the nodes"),
        ({"dcgm_parameters": "test_duration=300"}, "has 'test_duration=300'; expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=1;"}, "--dcgm-parameters has ''; expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=1,pcie.b=2"}, "has 'pcie.a=1,pcie.b=2'; expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a="}, "has 'pcie.a='; expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=$(reboot)"}, "expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=1 -i 0"}, "expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=1\n"}, "expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "-p pcie.a=1"}, "expected TEST.NAME=VALUE"),
        ({"dcgm_parameters": "pcie.a=1;PCIe.a=2"}, "--dcgm-parameters has pcie.a twice; expected it once"),
        ({"dcgm_parameters": f"pcie.a={'1' * 93}"}, "of 100 characters; expected at most 99"),
        ({"dcgm_parameters": ";".join(f"pcie.a{n}=1" for n in range(101))}, "has 101 parameters; expected at most 100"),
        (
            {"dcgm_parameters": "diagnostic.test_duration=600;memtest.test_duration=300.0"},
            "--dcgm-parameters asks for 900 s, and dcgm_diag is killed after 900; expected --load-timeout dcgm_diag=9",
        ),
        (
            {"stress_s": 3600, "load_timeout": "600"},
            "--stress-s asks for 3600 s, and stress_ng is killed after 600; expected --load-timeout stress_ng=3630 or",
        ),
        (
            {"exact_s": 600.0, "load_timeout": "gpu_exact=300"},
            "--exact-s asks for 600 s, and gpu_exact is killed after 300; expected --load-timeout gpu_exact=660 or",
        ),
        (
            {"dcgm_parameters": "diagnostic.test_duration=soon"},
            "--dcgm-parameters has diagnostic.test_duration 'soon'; expected seconds",
        ),
        ({"dcgm_parameters": "diagnostic.test_duration=nan"}, "has diagnostic.test_duration 'nan'; expected seconds"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(pytest.UsageError, match=re.escape(words)):
        load_options(given(**options))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "diagnostic.test_duration=300.0",
        "pcie.h2d_d2h_single_pinned.min_bandwidth=20;pcie.test_nvlink_status=False",
        "diagnostic.temperature_max=90;diagnostic.precision=dh;eud.passthrough_args=-a,b:c/d",
        f"pcie.a={'1' * 92}",
    ],
)
def test_what_dcgmi_takes_after_p_is_taken_as_it_is(text: str) -> None:
    assert load_options(given(dcgm_parameters=text)).settings.get("dcgm_parameters", "") == text


def test_longer_tests_of_dcgm_are_allowed_with_a_longer_deadline() -> None:
    longer = given(dcgm_parameters="diagnostic.test_duration=3000", load_timeout="dcgm_diag=4000")
    assert load_options(longer).deadline_s("dcgm_diag") == 4000


@pytest.mark.parametrize(("options", "seconds"), [({"exact_s": 600.0}, 780), ({"load_timeout": "90"}, 90)])
def test_a_deadline_follows_the_time_for_exact_products_unless_it_is_given(
    options: dict[str, object], seconds: float
) -> None:
    assert load_options(given(**options)).deadline_s("gpu_exact") == seconds


def test_what_needs_a_folder_or_a_time_is_loaded_only_where_that_is_named() -> None:
    assert load_options(given()).requested(COLLECTORS) == COLLECTORS - {TAKES_TURNS, STRESS}
    assert load_options(given(fs_bandwidth="/fsx", stress_s=60)).requested(COLLECTORS | {"boot"}) == COLLECTORS


@pytest.mark.parametrize(
    ("markexpr", "keyword", "path", "collectors"),
    [
        ("perf", "", "checks", COLLECTORS - {TAKES_TURNS, STRESS}),
        ("perf and gpu", "gemm or busbw", "checks", {"gpu_gemm", "node_busbw"}),
        ("perf and not gpu", "", "checks", {"cpu_exact", "efa_loopback", "nccom"}),
        ("perf", "test_exact", "checks", {"cpu_exact", "exact_collective", "exact_step", "gpu_exact"}),
        ("perf", "not test_gpu_gemm and test_speed", "checks", {"efa_loopback", "gpu_bandwidth", "node_busbw"}),
        ("perf", "", "checks/perf/test_speed.py", {"efa_loopback", "gpu_bandwidth", "gpu_gemm", "node_busbw"}),
        ("perf", "", "checks/perf/test_pairwise.py", set()),
        ("perf", "gemm", "clusterproof.checks", {"gpu_gemm"}),
        ("gpu", "", "checks", set()),
        ("not perf", "", "checks", set()),
    ],
)
def test_before_anything_is_collected_the_command_line_says_what_will_be_loaded(
    markexpr: str, keyword: str, path: str, collectors: set[str]
) -> None:
    config: Any = SimpleNamespace(args=[f"{path}::test_it"], invocation_params=SimpleNamespace(dir=ROOT))
    assert collectors_named(given(markexpr=markexpr, keyword=keyword), paths_named(config)) == collectors


def test_the_command_line_names_what_there_is() -> None:
    assert tuple(SECONDS) == LOADS
    assert tuple(DCGM_SECONDS) == DCGM_LEVELS
    assert sorted(METERS) == sorted(OF_METERS)
    assert sorted(LAUNCHERS) == sorted(OF_LAUNCHERS)


OWN = """
import pytest
from clusterproof import reads

def test_plain(node):
    assert node.boot

class TestLoad:
    pytestmark = pytest.mark.perf

    @reads("gpu_gemm")
    def test_gemm(self, node, tmp_path):
        node.gpu_gemm

@pytest.mark.perf
@reads("fs_bandwidth")
def test_fs(node):
    assert node.fs_bandwidth

@pytest.mark.perf
def test_any(node):
    assert node.gpu_gemm

@pytest.mark.perf
@reads("pairwise")
def test_between(node):
    node.pairwise
"""


def test_tests_of_others_are_known_before_anything_is_collected(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "test_own.py").write_text(OWN)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    (tmp_path / "helper.py").write_text("raise SystemExit(1)\n")
    tests = others(pytestconfig, [tmp_path, tmp_path / "test_own.py", Path("/")])
    assert {(test.words.rpartition(" ")[2], test.needs_pairs) for test in tests} == {
        ("test_plain", False),
        ("test_gemm", False),
        ("test_fs", False),
        ("test_any", False),
        ("test_between", True),
    }
    options = given(markexpr="perf", fs_bandwidth="/fsx")
    narrow = given(markexpr="perf", keyword="not any", fs_bandwidth="/fsx")
    assert collectors_named(narrow, [], tests) == {"gpu_gemm", "fs_bandwidth"}
    assert collectors_named(options, [], tests) == load_options(options).requested(COLLECTORS)
    assert collectors_named(given(markexpr="perf", keyword="gemm"), [], tests) == {"gpu_gemm"}
    assert pairs_are_needed(options, [], tests)
    assert not pairs_are_needed(given(markexpr="perf", keyword="fs or gemm"), [], tests)


OF_THE_FILE_SYSTEM = """
import pytest
from clusterproof import reads

@pytest.mark.perf
@reads("fs_bandwidth")
def test_fs(node):
    assert node.fs_bandwidth
"""


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_check_of_another_author_gets_the_results_of_the_load(runs: Runs, tmp_path: Path, workers: list[str]) -> None:
    runs.checks(test_own=OF_THE_FILE_SYSTEM)  # declares what it reads; otherwise everything is loaded
    load = ["-m", "perf", f"--fs-bandwidth={tmp_path}", "--fs-size=64"]
    results = [f"--results={runs.results_file}"]
    assert runs.run("--cluster", "local", *load, *results, *workers).ret == 0
    assert [result.verdict for result in runs.results] == [Verdict.PASS]


def test_each_collector_that_loads_the_hardware_has_its_deadline() -> None:
    assert LOAD_COLLECTORS == COLLECTORS
