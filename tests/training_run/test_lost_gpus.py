"""Lost or slow GPUs in the output of nvidia-smi and dcgmi are named, and no file is refused because of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run.formats.gpu_tools import REASONS
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import GPU, GpuLost
from tests.training_run.builders import result_of
from tests.training_run.sampled import DCGM_4_DMON
from tests.training_run.watched import BEGAN_S, readings

COLUMNS = ("index", "utilization.gpu [%]", "memory.used [MiB]", "memory.total [MiB]", "clocks.current.sm [MHz]")
HEALTHY = ("97 %", "60000 MiB", "81559 MiB", "1980 MHz")
# As quoted in NVIDIA's forum and issues, with and without the GPU's number.
HANDLE = (
    "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU"
)
POWERLESS = """\
Unable to determine the device handle for GPU 0000:3B:00.0: Unable to communicate with GPU because it is …
This may be because not all required external power cables are
attached, or the attached cables are not seated properly."""
NO_DRIVER = (  # a container that lost its devices, a driver updated during a run, a driver that is gone
    "Failed to initialize NVML: Unknown Error",
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90",
    "\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest …\n",
)
EACH_REASON = tuple(f"clocks_event_reasons.{reason}" for reason in REASONS)
Cells = Callable[[int, int], tuple[str, ...] | str | None]  # of a GPU in a minute; a whole line; None: no line


def smi(cells: Cells, columns: tuple[str, ...] = COLUMNS, every_s: int = 10) -> str:
    """Half an hour of eight GPUs, a round of lines every ten seconds by default."""
    lines = ["timestamp, " + ", ".join(columns)]
    for second in range(0, 1800, every_s):
        for gpu in range(8):
            row = cells(gpu, second // 60)
            if isinstance(row, str):
                lines.append(row)
            elif row is not None:
                time = f"2025/07/21 15:{second // 60:02}:{second % 60:02}.{13 * gpu:03}"
                lines.append(", ".join((time, *row)))
    return "\n".join(lines) + "\n"


def after_a_quarter(row: tuple[str, ...] | str | None) -> Cells:
    return lambda gpu, minute: row if gpu == 3 and minute >= 15 else (str(gpu), *HEALTHY)


def up_to(minutes: int) -> Cells:
    return lambda gpu, minute: (str(gpu), *HEALTHY) if minute < minutes else None


@pytest.mark.parametrize(
    ("row", "verdict", "words"),
    [
        (("[GPU is lost]",) * 5, "fail", "gpu001 gpu3 from 2025-07-21 15:15:00 on: GPU is lost"),
        (("3", *("[GPU requires reset]",) * 4), "fail", "gpu001 gpu3 from 2025-07-21 15:15:00 on: GPU requires reset"),
        (HANDLE, "fail", "gpu001 0000:3B:00.0 from 2025-07-21 15:15:00 on: Unable to determine the device handle"),
        (HANDLE.replace("GPU0", "gpu 0", 1), "fail", "gpu001 0000:3B:00.0 from 2025-07-21 15:15:00 on: Unable to"),
        (HANDLE.replace("GPU0000:", "GPU3: 0000:"), "fail", "gpu001 gpu3 from 2025-07-21 15:15:00 on: Unable to"),
        (("3", *("[Unknown Error]",) * 4), "concern", "gpu001 gpu3 from 2025-07-21 15:15:00 on: Unknown Error"),
        (
            None,
            "incomplete",
            "no sample of gpu001 gpu3 after 2025-07-21 15:14:50; expected samples, as from the others",
        ),
        (("3", "[N/A]", *HEALTHY[1:]), "incomplete", "no sample of gpu001 gpu3 after 2025-07-21 15:14:50"),
    ],
    ids=["lost", "reset", "no handle", "no handle of a gpu", "no handle of a number", "unknown", "no line", "no use"],
)
def test_a_gpu_that_is_lost_during_the_run_is_named_with_the_time(
    tmp_path: Path, row: tuple[str, ...] | str | None, verdict: str, words: str
) -> None:
    (tmp_path / "gpu001.csv").write_text(smi(after_a_quarter(row)), encoding="utf-8")
    result = result_of("run.gpu_lost", read_run([str(tmp_path)]))
    assert words in result.message
    assert verdict in {result.verdict.value, *(finding.verdict.value for finding in result.findings)}


@pytest.mark.parametrize("printed", NO_DRIVER)
@pytest.mark.parametrize("form", ["csv", "dmon"])
def test_a_tool_that_does_not_reach_the_driver_accuses_no_gpu_and_is_quoted(
    tmp_path: Path, printed: str, form: str
) -> None:
    healthy = DCGM_4_DMON + "GPU 0     93  0.450  1980  60000  20000\n" * 900 if form == "dmon" else smi(up_to(15))
    (tmp_path / "gpu001.csv").write_text(healthy + f"{printed}\n" * 3, encoding="utf-8")
    result = result_of("run.gpu_lost", read_run([str(tmp_path)]))
    assert result.verdict.value == "incomplete"
    assert f"on: {printed.strip().partition('. Make')[0].partition(chr(10))[0]}; expected" in result.message


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (0, "gpu001 gpu3 at 2025-07-21 15:15:00, and with values again from 2025-07-21 15:16:00 on: Unknown Error;"),
        (3, "gpu001 gpu3 from 2025-07-21 15:15:00 to 2025-07-21 15:18:00, and with values again from"),
    ],
    ids=["once", "some minutes"],
)
def test_a_gpu_whose_values_come_back_is_not_said_to_lack_them_until_the_end(
    tmp_path: Path, last: int, words: str
) -> None:
    cells = smi(
        lambda gpu, minute: (
            ("3", *("[Unknown Error]",) * 4) if gpu == 3 and 15 <= minute <= 15 + last else (str(gpu), *HEALTHY)
        ),
        every_s=60,
    )
    (tmp_path / "gpu001.csv").write_text(cells, encoding="utf-8")
    result = result_of("run.gpu_lost", read_run([str(tmp_path)]))
    assert (result.verdict.value, words in result.message) == ("concern", True), result.message


@pytest.mark.parametrize("cells", ["[N/A]", "[Not Supported]", "[Unknown Error]"])
def test_a_value_that_is_missing_from_the_first_line_on_accuses_no_gpu(tmp_path: Path, cells: str) -> None:
    row = smi(lambda gpu, _: (str(gpu), *HEALTHY[:3], cells))
    (tmp_path / "gpu001.csv").write_text(row, encoding="utf-8")
    assert result_of("run.gpu_lost", read_run([str(tmp_path)])).verdict.value == "pass"


def test_a_gpu_that_is_lost_early_hides_nothing_of_the_others(tmp_path: Path) -> None:
    row = smi(lambda gpu, minute: None if gpu == 3 and minute >= 2 else (str(gpu), "40 %", *HEALTHY[1:]))
    (tmp_path / "gpu001.csv").write_text(row, encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert result_of("run.gpu_busy", run).verdict.value == "concern"
    assert "no sample of gpu001 gpu3 after 2025-07-21 15:01:50" in result_of("run.gpu_lost", run).message


@pytest.mark.long
@pytest.mark.parametrize(("minutes", "verdict"), [(15, "incomplete"), (26, "pass")])
def test_a_node_of_which_nothing_is_sampled_any_more_is_named(tmp_path: Path, minutes: int, verdict: str) -> None:
    for node, until in (("gpu001", 30), ("gpu002", minutes)):
        (tmp_path / f"{node}.csv").write_text(smi(up_to(until)), encoding="utf-8")
    result = result_of("run.gpu_lost", read_run([str(tmp_path)]))
    assert result.verdict.value == verdict
    assert verdict == "pass" or result.message.startswith("no sample of gpu002 after 2025-07-21 15:14:50")


@pytest.mark.long
def test_a_gpu_whose_use_dcgmi_has_no_more_is_named(tmp_path: Path) -> None:
    rows = "".join(
        f"GPU {gpu}     {'N/A  N/A' if gpu == 3 and second > 600 else '93  0.450'}  1980  60000  20000\n"
        for second in range(900)
        for gpu in range(4)
    )
    (tmp_path / "gpu001.txt").write_text(DCGM_4_DMON + rows, encoding="utf-8")
    assert "no sample of gpu001 gpu3 after minute 10" in result_of("run.gpu_lost", read_run([str(tmp_path)])).message


@pytest.mark.long
@pytest.mark.parametrize(
    ("reasons", "verdict"),
    [
        ({}, "incomplete"),
        ({"clocks_event_reasons.hw_thermal_slowdown": "Active"}, "fail"),
        ({"clocks_throttle_reasons.hw_slowdown": "Active"}, "fail"),
        ({"clocks_event_reasons.active": "0x0000000000000048"}, "fail"),
        ({"clocks_event_reasons.active": "0x0000000000000004"}, "concern"),
        ({"clocks_event_reasons.sw_power_cap": "Active"}, "concern"),
        ({"clocks_event_reasons.sw_power_cap": "Not Active"}, "incomplete"),
        ({"clocks_event_reasons.hw_thermal_slowdown": "Not Active"}, "incomplete"),
        (dict.fromkeys(EACH_REASON[:-1], "Not Active"), "incomplete"),
        (dict.fromkeys(EACH_REASON[1:], "Not Active"), "incomplete"),
        ({"clocks_event_reasons.active": "[N/A]"}, "incomplete"),
        (dict.fromkeys(EACH_REASON, "Not Active"), "pass"),
        ({"clocks_event_reasons.active": "0x0000000000000001"}, "pass"),
    ],
)
def test_a_slow_clock_passes_only_where_all_reasons_for_it_were_printed(
    tmp_path: Path, reasons: dict[str, str], verdict: str
) -> None:
    usual = {"Active": "Not Active", "Not Active": "Not Active"}
    text = smi(
        lambda gpu, _: (
            (str(gpu), *HEALTHY[:3], "1200 MHz", *reasons.values())
            if gpu == 3
            else (str(gpu), *HEALTHY, *(usual.get(reason, "0x0000000000000000") for reason in reasons.values()))
        ),
        (*COLUMNS, *reasons),
    )
    (tmp_path / "gpu001.csv").write_text(text, encoding="utf-8")
    result = result_of("run.slow_clock", read_run([str(tmp_path)]))
    assert result.verdict.value == verdict
    assert verdict == "pass" or "gpu001 gpu3 at 0.61 of its peers' clock for 30 min" in result.message


@pytest.mark.parametrize(
    ("message", "verdict", "note"),
    [
        (POWERLESS, "fail", "360 lines among samples are none (This may be because not all required external power"),
        (
            "WARNING: infoROM is corrupted at gpu 0000:3B:00.0",
            "pass",
            "180 lines among samples are none (WARNING",
        ),
    ],
)
def test_a_message_of_nvidia_smi_hides_no_sample(tmp_path: Path, message: str, verdict: str, note: str) -> None:
    (tmp_path / "gpu001.csv").write_text(smi(lambda gpu, _: message if gpu == 3 else (str(gpu), *HEALTHY)))
    run = read_run([str(tmp_path)])
    assert len(run.data.samples.of(GPU)) == 7
    assert result_of("run.gpu_lost", run).verdict.value == verdict
    assert any(line.startswith(note) for line in run.data.notes), run.data.notes


@pytest.mark.parametrize(
    ("said", "verdict", "note"),
    [
        (f"{HANDLE}\n" * 90, "fail", []),
        (f"{HANDLE:111}\n" * 9000, "fail", []),  # longer than what is read of it to know its form
        (f"{HANDLE}\n" + smi(up_to(30)), "fail", []),
        (f"{HANDLE}\n\n" + smi(up_to(30)), "fail", []),
        (NO_DRIVER[1], "incomplete", []),
        ("No devices were found\n", "pass", ["not understood: gpu002.csv"]),
    ],
    ids=[
        "no handle",
        "no handle for hours",
        "no handle before its values",
        "nor behind a blank line",
        "no driver",
        "never a GPU",
    ],
)
def test_a_node_of_which_nvidia_smi_said_nothing_else_is_not_left_out(
    tmp_path: Path, said: str, verdict: str, note: list[str]
) -> None:
    (tmp_path / "gpu001.csv").write_text(smi(up_to(30)))
    (tmp_path / "gpu002.csv").write_text(said)
    run = read_run([str(tmp_path)])
    result = result_of("run.gpu_lost", run)
    assert (result.verdict.value, run.data.notes) == (verdict, note)
    assert verdict == "pass" or "gpu002" in result.message


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        (("n1/nvidia-smi.csv", "n2/nvidia-smi.csv"), {"n1", "n2"}),
        (("n1/logs/smi.csv", "n2/logs/smi.csv"), {"n1", "n2"}),
        (("n1/nvidia-smi_4242.csv", "n2/nvidia-smi_4242.csv"), {"n1/nvidia-smi_4242", "n2/nvidia-smi_4242"}),
        (("n1/smi_1.csv", "n2/smi_1.csv", "n2/smi_2.csv"), {"smi_1", "smi_2"}),
        (("monday/gpu001.csv", "tuesday/gpu001.csv"), {"gpu001"}),
        (("monday/smi_gpu001.csv", "tuesday/smi_gpu001.csv"), {"smi_gpu001"}),
        (("nvidia-smi.csv",), {"nvidia-smi"}),
    ],
)
def test_files_that_are_called_alike_are_of_the_nodes_whose_folders_they_are_in(
    tmp_path: Path, names: tuple[str, ...], nodes: set[str]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(smi(lambda gpu, _: (str(gpu), *HEALTHY)), encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert {node for node, _ in run.data.samples.of(GPU)} == nodes


def test_a_gpu_that_cannot_be_read_does_not_hide_a_node_that_was_hardly_sampled() -> None:
    late = (
        replace(reading, node="gpu009")
        for reading in readings()
        if reading.node == "gpu002" and reading.time_s > BEGAN_S + 3_420
    )
    data = RunData()
    data.add(chain(readings(), late), "made up")
    data.add([GpuLost("gpu001", "gpu3", BEGAN_S + 600, "Unknown Error", is_gone=False)], "made up")
    verdicts = {part.verdict.value for part in result_of("run.gpu_lost", TrainingRun("made-up", data)).by_verdict}
    assert verdicts == {"concern", "incomplete"}
