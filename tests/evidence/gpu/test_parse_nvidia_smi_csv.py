"""nvidia-smi's CSV parsed into the `nvml` collector, and which lines below it are no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from tests.captures.captured import first_gpu, gpus_in, output_of


def test_csv_is_read_by_its_column_names_whatever_their_order() -> None:
    text = """\
        $ nvidia-smi --query-gpu=index,pci.bus_id,ecc.errors.uncorrected.volatile.dram,temperature.gpu --format=csv
        index, pci.bus_id, ecc.errors.uncorrected.volatile.dram, temperature.gpu, power.limit [W], pcie.link.width.max
        1, 00000000:64:00.0, 0, 40, 700.00 W, 16
        0, 00000000:53:00.0, [Unknown Error], [N/A], [GPU requires reset], 16
    """
    lost, fine = gpus_in(text)
    assert fine == {
        "index": 1,
        "lost": None,
        "pci": "0000:64:00.0",
        "ecc_uncorrected_dram": 0,
        "temperature_c": 40.0,
        "power_limit_w": 700.0,
        "pcie_width_max": 16,
    }
    assert lost["lost"]["error"] == "RESET_REQUIRED"


@pytest.mark.parametrize(
    "line",
    [
        "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard",
        " 10:14:32 up 1 day,  3:04,  2 users,  load average: 0.08, 0.03, 0.01",
        "Flags: fpu, vme, de",
    ],
)
def test_a_line_of_another_output_below_the_csv_is_no_gpu(line: str) -> None:
    values, _ = read_text(f"index, uuid, temperature.gpu\n0, GPU-a, 33\n1, [Unknown Error], 34\n{line}\n")
    nvml: Any = values["nvml"]
    assert [gpu["index"] for gpu in nvml["gpus"]] == [0, 1]


def test_a_gpu_whose_csv_line_has_more_values_than_columns_is_there_and_nothing_is_known_of_it() -> None:
    line = "1, Reset  <= this one, since noon"
    values, problems = read_text(f"index, gpu_recovery_action\n0, None\n{line}\n")
    nvml: Any = values["nvml"]
    assert nvml["gpus"][1] == {"index": 1, "lost": None}
    assert problems == [f"nvidia-smi --query-gpu: 3 values for 2 columns: {line}"]


@pytest.mark.parametrize(
    ("columns", "gpus", "line"),
    [
        ("index, uuid", ["0, GPU-aaa"], "0,1,2,3,4,5,6,7"),  # CUDA_VISIBLE_DEVICES
        ("index, uuid", ["0, GPU-aaa"], "5,2,0,0,,2,2,2,0"),  # lscpu -p
        ("uuid, index", ["GPU-aaa, 0"], "ok, 1, 2, 3"),
        ("uuid, index", ["GPU-aaa, 0"], "GPU-aaa, 1234, python, 500 MiB"),  # --query-compute-apps without its header
        ("pci.bus_id, index", ["00000000:53:00.0, 0"], "mlx5_0, ACTIVE, 400, ib"),
        ("timestamp, uuid", ["2026/12/01 10:00:00.000, GPU-aaa"], "2026/12/01 10:00:00.000, GPU-aaa, 2026/12/01"),
    ],
)
def test_a_line_with_more_values_than_columns_adds_no_gpu_that_it_does_not_name(
    columns: str, gpus: list[str], line: str
) -> None:
    nvml: Any = read_text("\n".join([columns, *gpus, line, ""]))[0]["nvml"]
    assert len(nvml["gpus"]) == len(gpus)


def test_of_the_csv_of_a_loop_that_ran_for_long_the_last_lines_are_read_and_the_others_counted() -> None:
    lines = ["timestamp, index, temperature.gpu", *["2026/12/01 10:00:00.000, 0, 30"] * 5_000]
    lines.append("2026/12/01 17:00:00.000, 0, [GPU is lost]")
    values, problems = read_text("\n".join(lines) + "\n")
    nvml: Any = values["nvml"]
    assert nvml["gpus"][-1]["lost"]["error"] == "GPU_IS_LOST"
    assert problems == ["nvidia-smi --query-gpu: 5,002 lines, of which the last 4,096 were read"]


def test_the_last_value_of_a_csv_line_that_is_cut_short_is_ignored() -> None:
    gpu = first_gpu("index, uuid, pcie.link.width.current, pcie.link.width.max\n0, GPU-a, 1")
    assert gpu == {"index": 0, "lost": None, "uuid": "GPU-a"}


def test_columns_alone_do_not_say_that_no_process_runs() -> None:
    assert output_of("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n")["nvml"] == {"init": None}
