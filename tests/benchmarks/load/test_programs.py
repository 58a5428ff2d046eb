"""The programs that load a node: what they run, how they end, and that they leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent import loader
from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.agent.payload import modules_for, source_of
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.load import asking, options, tool, torch_python
from clusterproof.plugins.benchmarks.load.asking import merged, program, rounds
from clusterproof.plugins.benchmarks.load.options import COLLECTORS, FUNCTIONS, SECONDS, TAKES_TURNS, LoadOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document
from clusterproof.plugins.transport import Answer, Limits, connection_for
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM
from tests.benchmarks.load.loaded import evidence_of, read
from tests.builders.pythons import interpreter
from tests.testbed.image import File
from tests.testbed.load import OPTIONS, TORCH, loadable_p5, with_speed, without_torch
from tests.testbed.load import tool as load_tool
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, with_file, with_tool, without_file
from tests.testbed.pci import EFA_NAMES

# What is run


def test_every_collector_has_a_function_a_deadline_and_a_place_in_the_order() -> None:
    files = {file.stem: file.read_text("utf-8") for file in Path(options.__file__).parent.glob("*.py")}
    for module, function in (place.split(":") for place in FUNCTIONS.values()):
        assert f"\ndef {function}(node: Node)" in files[module]
    assert set(FUNCTIONS) == COLLECTORS == set(SECONDS)
    assert next(iter(SECONDS)) == "dcgm_diag"  # it needs idle GPUs


def test_the_whole_time_is_that_of_all_collectors_one_after_another() -> None:
    two = LoadOptions().whole_s(["dcgm_diag", "gpu_gemm"])
    assert two > LoadOptions().deadline_s("dcgm_diag") + LoadOptions().deadline_s("gpu_gemm")
    assert LoadOptions(dcgm_level=3).deadline_s("dcgm_diag") > LoadOptions().deadline_s("dcgm_diag")
    assert LoadOptions(exact_s=600).deadline_s("gpu_exact") == LoadOptions().deadline_s("gpu_exact") + 540
    assert LoadOptions(stress_s=600).deadline_s("stress_ng") == LoadOptions().deadline_s("stress_ng") + 600
    assert LoadOptions(seconds={"": 60, "gpu_gemm": 30}).whole_s(["nccom", "gpu_gemm"]) < 120


@pytest.mark.long
def test_all_collectors_travel_as_one_argument_of_systems_manager() -> None:
    to_run = program(list(SECONDS), LoadOptions(fs_folder="/fsx", stress_s=60), on_stdin=False)
    assert len(to_run.command) < LONGEST_PROGRAM


def test_nodes_are_loaded_all_at_once_and_take_turns_where_they_share_something() -> None:
    """The last has as many beside it as the others: alone it would have a larger share."""
    nodes = [f"gpu{number}" for number in range(5)]
    assert list(rounds(frozenset({"gpu_gemm", TAKES_TURNS, "dcgm_diag"}), nodes, 2)) == [
        (["dcgm_diag", "gpu_gemm"], nodes),
        ([TAKES_TURNS], nodes[:2]),
        ([TAKES_TURNS], nodes[2:4]),
        ([TAKES_TURNS], [nodes[4], nodes[0]]),
    ]
    assert list(rounds(frozenset({TAKES_TURNS}), nodes[:2], 4)) == [([TAKES_TURNS], nodes[:2])]


def test_a_result_behind_what_a_library_logs_is_not_cut_off() -> None:
    """As with NCCL_DEBUG=INFO in /etc/nccl.conf."""
    shell = f"yes 'node:1:1 [0] NCCL INFO Channel 00/24' | head -c {3 * tool.MAX_OUTPUT_BYTES}; echo; echo '{{}}'"
    ran = tool.output_of(Node(collector_s=60.0), ("sh", "-c", shell), "/bin/sh", 60.0)
    assert len(str(ran["output"])) < tool.MAX_OUTPUT_BYTES + 100
    assert "bytes left out" in str(ran["output"])
    assert document(ProgramRun(ran)) == {}


@pytest.mark.parametrize(
    ("unreached", "seen"),
    [(None, []), (Unreached.BUSY, []), (Unreached.LOST, ["the node answered before, and not under load: lost: gone"])],
)
def test_what_a_node_measured_in_its_own_turn_counts_unless_it_is_lost_beside_another(
    unreached: Unreached | None, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[str]] = []

    def probe(part: Cluster, _to: Any, _run: Any, _limits: Any, merge: Any, _collectors: Any) -> None:
        turns.append([target.name for target in part.targets])
        for target in part.targets:
            if unreached and turns[-1] == ["c", "a"] and target.name == "a":
                merge(NodeEvidence(target.name, unreached=unreached, detail="gone"))
            else:
                merge(NodeEvidence(target.name, {TAKES_TURNS: Collected(Status.READ, len(turns))}))

    monkeypatch.setattr(asking, "probe_nodes", probe)
    cluster = Cluster("c", "ssh", tuple(Target(name) for name in "abc"))
    answered = {target.name: NodeEvidence(target.name) for target in cluster.targets}
    kept: list[NodeEvidence] = []
    chosen = LoadOptions(fs_folder="/fsx", fs_at_once=2)
    asking.load(cluster, connection_for("ssh"), [TAKES_TURNS], chosen, Limits(), answered, kept.append)
    assert turns == [["a", "b"], ["c", "a"]]
    said = [(of.node, of.collectors[TAKES_TURNS].value or of.collectors[TAKES_TURNS].detail) for of in kept]
    assert said == [("a", 1), ("b", 1), ("c", 2), *(("a", words) for words in seen)]


def test_a_node_that_is_lost_under_load_keeps_its_earlier_evidence() -> None:
    before = NodeEvidence("gpu001", {"boot": Collected(Status.READ, {})})
    after = merged(before, NodeEvidence("gpu001", unreached=Unreached.TIMED_OUT, detail="no end"), ["gpu_gemm"])
    assert after.unreached is None
    assert after.collectors["boot"] is before.collectors["boot"]
    assert after.collectors["gpu_gemm"].status is Status.BROKE
    assert after.collectors["gpu_gemm"].detail == "the node answered before, and not under load: timed out: no end"


@needs_nodes
@pytest.mark.parametrize(
    ("chosen", "arguments"),
    [
        (LoadOptions(), "-r 2 -j"),
        (LoadOptions(dcgm_level=3, dcgm_parameters="pcie.a=1;memory.b=c"), "-r 3 -p pcie.a=1;memory.b=c -j"),
    ],
)
def test_dcgmi_gets_level_and_parameters_as_the_user_chose_them(chosen: LoadOptions, arguments: str) -> None:
    shown = with_tool(loadable_p5(), "dcgmi", '#!/bin/sh\nprintf \'%s \' "$#" "$@"\n')
    value = evidence_of(shown, "dcgm_diag", replace(chosen, seconds=OPTIONS.seconds)).value
    assert value["command"] == f"dcgmi diag {arguments}"
    assert value["output"] == f"{len(arguments.split()) + 1} diag {arguments} "


@needs_nodes
def test_collectors_run_one_after_another() -> None:
    noting = '#!/bin/sh\necho "$0 begins" >>/tmp/order; sleep 0.3; echo "$0 ends" >>/tmp/order; echo "{}"\n'
    image = with_tool(with_tool(loadable_p5(), "dcgmi", noting), "nvbandwidth", noting)
    to_run = program(["dcgm_diag", "gpu_bandwidth"], OPTIONS)
    with entered(image, "gpu001") as node:
        node.run(["/bin/sh", "-c", to_run.command], input=to_run.stdin, timeout=600)
        order = (node.root / "tmp/order").read_text().split("\n")
    assert [line.rpartition("/")[2] for line in order if line] == [
        *("dcgmi begins", "dcgmi ends"),
        *("nvbandwidth begins", "nvbandwidth ends") * 3,
    ]


# PyTorch


@needs_nodes
def test_the_first_python_that_has_pytorch_runs_the_products() -> None:
    value = evidence_of(loadable_p5(), "gpu_gemm").value
    assert value["command"] == f"{TORCH}/bin/python3: torch_gemm"
    result = json.loads(value["output"])
    assert (result["torch"], result["type"], len(result["tflops"]), len(result["tflops"][0])) == (
        *("2.6.0+cu126", "torch.bfloat16"),
        *(8, 5),
    )


@needs_nodes
def test_the_python_that_the_user_names_is_the_only_one_tried() -> None:
    named = LoadOptions(torch_python="/usr/bin/python3")
    assert evidence_of(loadable_p5(), "gpu_gemm", named).status is Status.ABSENT


@needs_nodes
def test_copies_are_made_by_pytorch_where_there_is_no_nvbandwidth() -> None:
    value = evidence_of(without_file(loadable_p5(), "/usr/bin/nvbandwidth"), "gpu_bandwidth").value
    assert value["by"] == "PyTorch"
    rates = json.loads(value["runs"][0]["output"])["gb_per_s"]
    assert {direction: len(copies) for direction, copies in rates.items()} == {
        "host to GPU": 8,
        "GPU to host": 8,
        "GPU to GPU": 56,
    }


@needs_nodes
def test_a_measurement_that_is_too_long_for_the_connection_is_cut_and_said_to_be() -> None:
    talkative = with_tool(loadable_p5(), "nvbandwidth", "#!/bin/sh\nhead -c 40000 /dev/urandom | base64\n")
    assert evidence_of(talkative, "gpu_bandwidth").status is Status.READ
    assert evidence_of(talkative, "gpu_bandwidth", replace(OPTIONS, max_answer_chars=23_000)).status is Status.CUT


@needs_nodes
def test_what_is_missing_is_named() -> None:
    collector = evidence_of(without_torch(without_file(loadable_p5(), "/usr/bin/nvbandwidth")), "gpu_bandwidth")
    assert collector.status is Status.ABSENT
    assert "no nvbandwidth on PATH" in collector.detail
    assert "Pythons has PyTorch" in collector.detail


def test_the_search_for_pytorch_is_bounded(tmp_path: Path) -> None:
    for number in range(100):
        python = tmp_path / "opt" / f"env{number:03}" / "bin" / "python3"
        python.parent.mkdir(parents=True)
        python.touch(0o755)
    pythons, _ = torch_python.candidates(Node(str(tmp_path)), "")
    assert len(pythons) == torch_python.MAX_TRIED


def test_the_gpus_that_a_container_was_given_count_and_not_those_of_the_bus(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:53:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    assert tool.gpu_count(Node(str(tmp_path))) == 1
    (tmp_path / "dev").mkdir()
    for name in ("nvidia2", "nvidia5", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert tool.gpu_count(Node(str(tmp_path))) == 2


def test_a_gpu_whose_file_a_device_cgroup_keeps_from_the_process_was_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2"):
        (tmp_path / "dev" / name).touch()
    opened = os.open
    errors = {"nvidia1": PermissionError(1, "not permitted"), "nvidia2": OSError(5, "I/O error")}

    def refused(path: str, flags: int) -> int:
        if error := errors.get(Path(path).name):
            raise error
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refused)
    assert tool.gpu_count(Node(str(tmp_path))) == 2


# Time


@needs_nodes
def test_a_diagnostic_that_hangs_is_asked_to_end_and_its_last_words_are_kept() -> None:
    hanging = "#!/bin/sh\ntrap 'echo stopped by SIGINT; exit 1' INT\necho busy; while :; do sleep 0.05; done\n"
    collector = evidence_of(
        with_tool(loadable_p5(), "dcgmi", hanging), "dcgm_diag", LoadOptions(seconds={"dcgm_diag": 16.0})
    )
    assert collector.status is Status.TIMED_OUT
    assert "dcgmi diag -r 2 -j does not end within 1 s; its last words: busy stopped by SIGINT" in collector.detail


HANGS = """#!/bin/sh
case "$*" in *{well}*) exec {program}-that-ends "$@" ;; esac
exec sleep 1000
"""


@needs_nodes
@pytest.mark.parametrize(
    ("collector", "program", "well", "seconds", "key"),
    [
        ("gpu_bandwidth", "/usr/bin/nvbandwidth", "host_to_device", 19.0, "runs"),
        ("efa_loopback", "/opt/amazon/efa/bin/fi_pingpong", min(EFA_NAMES), 20.0, "domains"),
    ],
)
def test_what_was_measured_before_a_program_hangs_is_kept(
    collector: str, program: str, well: str, seconds: float, key: str
) -> None:
    image = loadable_p5()
    ends = image.files.get(program) or File(load_tool(Path(program).name), 0o755)
    image = with_file(image, f"{program}-that-ends", ends)
    image = with_tool(image, program, HANGS.format(well=well, program=program))
    answer = evidence_of(image, collector, LoadOptions(seconds={collector: seconds}))
    assert answer.status is Status.TIMED_OUT, answer
    assert answer.value[key][0]["exit"] == 0


@needs_nodes
def test_what_a_collector_has_started_ends_with_it() -> None:
    image = with_tool(with_speed(loadable_p5(), "dcgm hangs"), "dcgmi", "#!/bin/sh\nsleep 1000 & sleep 1000\n")
    to_run = program(["dcgm_diag"], LoadOptions(seconds={"dcgm_diag": 16.0}))
    with entered(image, "gpu001") as node:
        ran = node.run(["/bin/sh", "-c", to_run.command], input=to_run.stdin, timeout=600)
        left = [entry for entry in (node.root / "proc").glob("[0-9]*/cmdline") if b"1000" in read(entry)]
    assert decode("gpu001", Answer(ran.stdout), to_run.nonce).collectors["dcgm_diag"].status is Status.TIMED_OUT
    assert left == []


@pytest.mark.long
def test_collectors_of_load_and_the_programs_for_pytorch_start_in_the_oldest_python() -> None:
    python = interpreter("python3.8")
    if python is None:
        pytest.skip("no python3.8 here")
    collectors = {f"{asking.PACKAGE}.{function.partition(':')[0]}" for function in FUNCTIONS.values()}
    modules = modules_for([*collectors, *asking.PYTORCH_MODULES.values()])
    without_pytorch = "import sys\nfrom unittest.mock import MagicMock\n" + "".join(
        f"sys.modules[{name!r}] = MagicMock()\n"
        for name in ("torch", "torch.distributed", "torch.nn", "torch.nn.functional")
    )
    loaded = f"{source_of(Path(loader.__file__))}\nsys.meta_path.insert(0, ModuleFinder({modules!r}))\n"
    text = without_pytorch + loaded + "".join(f"import_module({name!r})\n" for name in modules)
    ran = subprocess.run([python, "-I", "-"], input=text, text=True, capture_output=True, check=False)
    assert (ran.stderr, ran.returncode) == ("", 0)
