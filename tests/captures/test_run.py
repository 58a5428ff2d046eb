"""`pytest --cluster capture:PATH` as typed by a user: summary, unrecognised text, records, redaction."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures import layout
from clusterproof.plugins.captures.collection import understood
from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.to_collect import COMMANDS, how_to_collect
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.needs import control_plane_collectors
from clusterproof.plugins.evidence.parsing import Form
from tests.builders.runs import ROOT, Runs
from tests.captures.captured import written
from tests.evidence.gpu.nvidia_smi_q import FULL

CHECKS = [str(ROOT / "checks" / name) for name in ("node", "gpu")]
LOST = "Unable to determine the device handle for GPU 0000:C8:00.0: GPU is lost.  Reboot the system\n"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Two nodes, one with much evidence and a concern, one with little; and a file without evidence."""
    return written(
        tmp_path / "cap",
        **{
            "gpu001/nvidia-smi-q.txt": FULL.format(reset="No", dram=5),
            "gpu001/notes": "remember the milk\n",
            "gpu002/err.log": LOST,
        },
    )


def run(runs: Runs, capture: Path, *arguments: str) -> pytest.RunResult:
    """Run the checks of nodes and GPUs over a capture."""
    return runs.run("--cluster", f"capture:{capture}", "--results", str(runs.results_file), *arguments, *CHECKS)


def by_check(results: list[Result], node: str) -> dict[str, Result]:
    return {result.check: result for result in results if result.node == node}


def test_faults_fail_and_what_is_missing_says_what_to_collect(runs: Runs, capture: Path) -> None:
    ended = run(runs, capture, "--instance-type", "p5.48xlarge")
    assert ended.ret == pytest.ExitCode.TESTS_FAILED
    output = " ".join(ended.stdout.str().split())
    assert "cluster: cap: 2 nodes (gpu[001-002]) by capture, p5.48xlarge" in output
    assert "capture: gpu001/notes is none of the known forms" in output
    assert "gpu001: GPU 0: uncorrected ECC errors: 5 in DRAM; expected 0" in output
    assert "gpu002: GPU at 0000:c8:00.0: the driver says GPU_IS_LOST; expected an answer" in output
    assert "INCOMPLETE gpu[001-002]: evidence was not collected" in output  # one gap, whatever is missing
    first, second = by_check(runs.results, "gpu001"), by_check(runs.results, "gpu002")
    to_collect = "kernel_log: was not collected (no file of this capture has it; collect: sudo dmesg"
    assert first["gpu.no_xid"].message.startswith(to_collect)
    assert first["gpu.gpu_count"].verdict is Verdict.FAIL
    assert second["gpu.gpu_count"].verdict is Verdict.INCOMPLETE
    assert first["node.reachable"].verdict is Verdict.NOT_APPLICABLE
    assert first["node.evidence_complete"].verdict is Verdict.INCOMPLETE


def test_a_capture_that_was_recorded_replays_the_same(runs: Runs, capture: Path) -> None:
    run(runs, capture, "--record", str(runs.folder / "kept"))
    before = [(result.node, result.check, result.verdict, result.message) for result in runs.results]
    runs.run("--cluster", f"replay:{runs.folder / 'kept'}", "--results", str(runs.results_file), *CHECKS)
    after = [(result.node, result.check, result.verdict, result.message) for result in runs.results]
    assert sorted(after) == sorted(before)


def test_expectations_and_narrowing_hold_for_captures_too(runs: Runs, capture: Path) -> None:
    run(runs, capture, "--nodes", "gpu001", "--expect", "gpus=2")
    assert {result.node for result in runs.results} == {"gpu001"}
    assert by_check(runs.results, "gpu001")["gpu.gpu_count"].verdict is Verdict.PASS


def test_a_redacted_run_names_no_file(runs: Runs, capture: Path) -> None:
    output = run(runs, capture, "--redact").stdout.str()
    assert "capture: not understood: 1 of its outputs" in output
    assert "gpu001" not in output.partition("rootdir")[0]


def test_workers_evaluate_what_the_first_process_has_read(runs: Runs, capture: Path) -> None:
    ended = runs.started(
        "--cluster", f"capture:{capture}", "--results", str(runs.results_file), "-n", "2", "-q", *CHECKS
    ).communicate()
    assert "GPU_IS_LOST" in ended[0]
    assert by_check(runs.results, "gpu001")["gpu.no_uncorrected_ecc"].verdict is Verdict.FAIL


def test_evidence_on_disk_is_marked_as_captured(runs: Runs, capture: Path) -> None:
    run(runs, capture, "--record", str(runs.folder / "kept"))
    kept = json.loads((runs.folder / "kept" / "nodes" / "gpu002.json").read_text())
    assert kept["probe"] == {"source": "capture"}
    assert kept["collectors"]["boot"]["status"] == "uncollected"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_is_in_the_manual(form: Form) -> None:
    assert form.name in (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("collector", sorted(COMMANDS))
def test_every_collector_that_a_command_gives_is_a_collector(collector: str) -> None:
    assert collector in {*collector_names(), *control_plane_collectors()}
    assert COMMANDS[collector] in how_to_collect(collector)


MANUAL = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
RECIPE = MANUAL.partition("```sh\n")[2].partition("```")[0]  # for a node; kubectl is not there


@pytest.mark.parametrize("collector", sorted(COMMANDS))
def test_what_is_to_be_collected_is_in_the_manual(collector: str) -> None:
    where = RECIPE if collector in collector_names() else MANUAL
    for command in COMMANDS[collector].replace("sudo ", "as_root ").split("; "):
        assert " ".join(command.split()) in " ".join(where.split())


def test_what_the_manual_collects_is_understood_or_says_why_not(runs: Runs) -> None:
    machine = runs.folder / "cap"
    machine.mkdir()
    subprocess.run(["bash", "-c", RECIPE], cwd=machine, stdin=subprocess.DEVNULL, check=False)
    (folder,) = machine.iterdir()
    (node,) = layout(machine).nodes
    read = understood(node, machine, collector_names())
    assert [line for line in read.unknown if "none of the known forms" in line and ": " not in line] == []
    known = {name for name, value in read.evidence.collectors.items() if value.status is Status.READ}
    assert known >= {"boot", "cpus", "kernel", "limits", "memory", "mounts", "processes"}, folder
