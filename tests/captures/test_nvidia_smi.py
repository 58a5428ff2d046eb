"""Real nvidia-smi outputs as captures: which formats they are recognised as, and the checks' results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.pieces import pieces
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.samples import FOLDER, Sample, manifest, of_topic, sample
from tests.captures.captured import evaluated, of_file, text_of

FORM_OF = {
    "nvidia-smi-L": "nvidia-smi -L",
    "nvidia-smi-nvlink": "nvidia-smi nvlink -s",
    "nvidia-smi-q": "nvidia-smi -q",
    "nvidia-smi-q-xml": "nvidia-smi -q -x",
    "nvidia-smi-query-gpu": "nvidia-smi --query-gpu",
    "nvidia-smi-table": "nvidia-smi",
    "nvidia-smi-topo": "nvidia-smi topo -m",
}
OTHER_FORM = {  # by the command, not by its folder
    "nvidia-smi-table/azure-bad_nvsmi8_output.txt": "nvidia-smi -q",
    "nvidia-smi-table/azure-orig_nvsmi8_output.txt": "nvidia-smi -q",
    "nvidia-smi-table/h100-version.txt": "nvidia-smi --version",
    "nvidia-smi-table/h200-version.txt": "nvidia-smi --version",
    "nvidia-smi-table/rtx4080s-version.txt": "nvidia-smi --version",
}
NO_OUTPUT = ["nvidia-smi-query-gpu/h100-help-query-gpu.txt"]  # a manual page
TYPES = {  # the instance type, if MANIFEST.tsv has it
    "nvidia-smi-q/gpud-h100x8-535.161.txt": "p5.48xlarge",
    "nvidia-smi-q/gpud-h100x8-535.183.txt": "p5.48xlarge",
    "nvidia-smi-q-xml/h100-hw.xml": "p5.48xlarge",
    "nvidia-smi-q-xml/l40s-hw.xml": "g6e.2xlarge",
    "nvidia-smi-topo/gke-a3u-h200-nic-legend.txt": "p5en.48xlarge",
    "nvidia-smi-topo/stas-node2.txt": "p5.48xlarge",
    "nvidia-smi-nvlink/awsome-p4de-s.txt": "p4de.24xlarge",
    "nvidia-smi-nvlink/azure-good_nvlink_status.txt": "p4de.24xlarge",
    "nvidia-smi-nvlink/h200-s.txt": "p5en.48xlarge",
}
# Findings about captures that MANIFEST.tsv calls healthy, and why they are right.
KNOWN = {
    "gpu.no_leftover_processes": (  # taken during work: MANIFEST.tsv says (load), or it lists processes
        "h100-590-load.txt h100-mig-590-load.txt h200-590-load.txt l40s-595-load.txt rtx4080s-595-idle.txt "
        "gpud-4090x8-535.154-a.txt gpud-h100x8-535.183.txt h100-mig-load.txt h200-mig-load.txt l40s-load.txt "
        "telegraf-tesla-t4.xml"
    ),
    "gpu.persistence_mode": (  # off on machines outside clusters
        "l40s-595-idle.txt l40s-595-load.txt l40s-idle.txt l40s-load.txt l40s-allfields-idle.csv rtx4080s-595-idle.txt "
        "rtx2080s-r610-610-idle.txt gpud-titanv-560.35.txt telegraf-tesla-t4.xml netdata-tesla-p100.xml"
    ),
    "gpu.pcie_link": "telegraf-tesla-t4.xml telegraf-quadro-p2000-v12.xml l40s-hw.xml",  # 8 of 16 lanes are wired
    # The manifest describes the fabric: on one, the power brake holds all GPUs at 86 MHz; the other has one slow GPU.
    "gpu.no_throttle": "gpud-h100x8-535.161.txt gpud-h100x8-535.183.txt",
}


def captures(*, healthy: bool | None = None) -> list[object]:
    """nvidia-smi captures: all, or those that MANIFEST.tsv calls healthy or faulty."""
    chosen = {None: lambda _: True, True: lambda capture: capture.is_healthy, False: lambda capture: capture.is_faulty}[
        healthy
    ]
    params = [param for topic in FORM_OF for param in of_topic(topic, chosen)]
    return params if manifest() else params[:1]


@pytest.mark.parametrize("capture", captures())
def test_a_capture_is_known_by_what_is_in_it(capture: Sample) -> None:
    text = text_of((FOLDER / capture.file).read_bytes())
    known = {form.name for piece in pieces(text, FORMS) for form in FORMS if form.recognises(piece.text)}
    expected = OTHER_FORM.get(capture.file, FORM_OF[capture.topic])
    assert known == (set() if capture.file in NO_OUTPUT else {expected})


@pytest.mark.parametrize("capture", captures())
def test_a_capture_is_understood_as_a_whole(capture: Sample) -> None:
    understood = of_file(FOLDER / capture.file)
    assert bool(understood.unknown) == (capture.file in NO_OUTPUT)


@pytest.mark.long
@pytest.mark.parametrize("capture", captures(healthy=True))
def test_no_check_complains_about_a_healthy_capture(capture: Sample) -> None:
    results = evaluated(FOLDER / capture.file, instance_type=TYPES.get(capture.file, ""))
    known = {check for check, files in KNOWN.items() if capture.name in files.split()}
    complaints = {check for check, result in results.items() if result.verdict in (Verdict.FAIL, Verdict.CONCERN)}
    assert complaints - known == set()


@pytest.mark.parametrize("capture", captures(healthy=False))
def test_a_check_complains_about_a_faulty_capture(capture: Sample) -> None:
    verdicts = {result.verdict for result in evaluated(FOLDER / capture.file).values()}
    assert verdicts & {Verdict.FAIL, Verdict.CONCERN}


@pytest.mark.parametrize(
    ("file", "check", "message"),
    [
        ("nvidia-smi-q/gpud-a10-535.129-remap-pending.txt", "gpu.row_remap", "GPU 0: row remapping is pending"),
        (
            "nvidia-smi-table/azure-bad_nvsmi8_output.txt",
            "gpu.row_remap",
            "GPU 1, GPU 3, GPU 5, GPU 7: page retirement",
        ),
        ("nvidia-smi-q-xml/mock-gb200-lost.xml", "gpu.gpu_answers", "GPU 1: the driver says GPU_IS_LOST"),
        ("nvidia-smi-q-xml/mock-gb200-lost.xml", "gpu.no_uncorrected_ecc", "GPU 0: uncorrected ECC errors: 5 in DRAM"),
    ],
)
def test_a_fault_is_found_where_it_is(file: str, check: str, message: str) -> None:
    result = evaluated(FOLDER / sample(file).file)[check]
    assert result.verdict is Verdict.FAIL
    assert message in result.message


def test_links_that_are_all_down_fail_a_node_that_should_have_some() -> None:
    file = FOLDER / sample("nvidia-smi-nvlink/rtx2080s-r610-s.txt").file
    result = evaluated(file, instance_type="p5.48xlarge")["gpu.nvlink_active"]
    assert result.message == "GPU 0: 0 NVLinks; expected 18 active links"
    assert result.verdict is Verdict.FAIL


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "shown", "instead", "check", "message"),
    [
        (
            "nvidia-smi-q/h200-590-load.txt",
            r"(Uncorrectable Error +): 0",
            r"\1: 512",
            "gpu.row_remap",
            "GPU 0: 512 rows remapped for errors; expected less than 512",
        ),
        (
            "nvidia-smi-q/h200-590-load.txt",
            r"(Unrepairable Memory +): No",
            r"\1: Yes",
            "gpu.row_remap",
            "GPU 0: its memory cannot be repaired; expected no unrepairable memory",
        ),
        (
            "nvidia-smi-q-xml/gb300-hw.xml",
            r"<channel_repair_pending>No",
            "<channel_repair_pending>Yes",
            "gpu.row_remap",
            "GPU 0: repair of a memory channel is pending; expected none",
        ),
        (
            "nvidia-smi-query-gpu/h200-allfields-idle.csv",
            r", valid,",
            ", invalid,",
            "gpu.inforom",
            "GPU 0: the InfoROM is corrupted; expected valid checksums",
        ),
    ],
)
def test_a_line_of_a_real_capture_that_a_fault_has_changed(
    file: str, shown: str, instead: str, check: str, message: str, tmp_path: Path
) -> None:
    changed = re.sub(shown, instead, sample(file).text, count=1)
    (tmp_path / "nvidia-smi.txt").write_text(changed, encoding="utf-8")
    messages = [finding.message for finding in evaluated(tmp_path / "nvidia-smi.txt")[check].by_verdict]
    assert messages[0] == message


def table(gpus: int, shown: str, instead: str) -> str:
    """The real table of one GPU, repeated; in the last copy something is replaced."""
    lines = sample("nvidia-smi-table/h200-idle.txt").text.split("\n")
    blocks = ["\n".join(lines[8:12]).replace("|   0 ", f"|   {number} ") for number in range(gpus)]
    assert shown in blocks[-1]
    return "\n".join([*lines[:8], *blocks[:-1], blocks[-1].replace(shown, instead), *lines[12:]])


@pytest.mark.parametrize(
    ("shown", "instead", "check", "message"),
    [
        (
            "28C",
            "91C",
            "gpu.temperature",
            "GPU 1: 91 °C; expected less than 88 °C, unless this model is allowed to run hotter",
        ),
        ("28C", "87C", "gpu.temperature", ""),
        ("700W", "300W", "gpu.power_limit", "GPU 2: power limit is 300 W; expected 700 W, as on 2 GPUs here"),
        ("700W", "750W", "gpu.power_limit", ""),
    ],
)
def test_what_the_table_shows_of_a_gpu_without_what_it_is_held_against(
    shown: str, instead: str, check: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-smi.txt").write_text(table(3 if "W" in shown else 2, shown, instead), encoding="utf-8")
    messages = [
        finding.message
        for finding in evaluated(tmp_path / "nvidia-smi.txt")[check].by_verdict
        if finding.verdict is Verdict.CONCERN
    ]
    assert messages == [message] * bool(message)


P5EN = "p5en.48xlarge"
NAMED = "".join(
    f"GPU {number}: {'NVIDIA T1000' if number == 3 else 'NVIDIA H200'} (UUID: GPU-{number})\n" for number in range(8)
)


@pytest.mark.parametrize(
    ("way", "kind", "beside", "message"),
    [
        (
            "NV17",
            "",
            "",
            "GPU 3: 17 NVLinks to GPU 0, GPU 1, GPU 2, GPU 4, GPU 5, GPU 6, GPU 7; expected 18, as between",
        ),
        ("SYS ", P5EN, "", "GPU 3: 0 NVLinks to GPU 0"),
        ("SYS ", "", NAMED.replace("T1000", "H200"), "GPU 3: 0 NVLinks to GPU 0"),
        ("SYS ", "", NAMED, ""),  # a display card has no NVLink
        ("NV18", P5EN, NAMED, ""),
    ],
)
def test_gpus_that_the_matrix_joins_by_fewer_nvlinks(
    way: str, kind: str, beside: str, message: str, tmp_path: Path
) -> None:
    matrix = sample("nvidia-smi-topo/gke-a3u-h200-nic-legend.txt").text
    in_column = re.sub(r"^(GPU[0-7].{28})NV18", rf"\g<1>{way}", matrix, flags=re.MULTILINE)
    in_row = re.sub(r"^GPU3 .*", lambda row: row[0].replace("NV18", way), in_column, flags=re.MULTILINE)
    (tmp_path / "capture.txt").write_text(f"{in_row}\n{beside}", encoding="utf-8")
    result = evaluated(tmp_path / "capture.txt", instance_type=kind)["gpu.nvlink_active"]
    messages = [finding.message for finding in result.by_verdict if finding.verdict is Verdict.FAIL]
    assert (message in messages[0]) if message else not messages


@pytest.mark.parametrize(
    ("model", "is_wired"), [("NVIDIA H100 80GB HBM3", True), ("NVIDIA H200", True), ("NVIDIA H200 NVL", False)]
)
def test_gpus_of_a_baseboard_whose_links_are_all_down(model: str, is_wired: bool, tmp_path: Path) -> None:
    links = "".join(f"\t Link {number}: <inactive>\n" for number in range(18))
    text = "".join(f"GPU {number}: {model} (UUID: GPU-{number})\n{links}" for number in range(4))
    (tmp_path / "nvlink.txt").write_text(text, encoding="utf-8")
    result = evaluated(tmp_path / "nvlink.txt")["gpu.nvlink_active"]
    messages = [finding.message for finding in result.by_verdict if finding.verdict in (Verdict.CONCERN, Verdict.FAIL)]
    assert [message[:40] for message in messages] == ["GPU 0, GPU 1, GPU 2, GPU 3: all 18 NVLin"] * is_wired


@pytest.mark.long
def test_a_gpu_that_the_capture_leaves_out_is_incomplete_and_none_is_missing() -> None:
    results = evaluated(FOLDER / sample("nvidia-smi-q-xml/h100-hw.xml").file, instance_type="p5.48xlarge")
    assert results["gpu.gpu_count"].verdict is Verdict.PASS
    assert results["gpu.no_uncorrected_ecc"].verdict is Verdict.INCOMPLETE
    assert results["gpu.no_uncorrected_ecc"].devices == ("GPU 7",)


@pytest.mark.parametrize("file", ["nvidia-smi-topo/h100.txt", "nvidia-smi-table/h100-version.txt"])
def test_what_a_capture_does_not_have_never_passes(file: str) -> None:
    results = evaluated(FOLDER / sample(file).file)
    assert [check for check, result in results.items() if result.verdict is Verdict.PASS] == []
