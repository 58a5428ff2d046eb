"""nvidia-smi's shorter outputs parsed into the `nvml` collector: the table, lists, and error messages."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from tests.captures.captured import first_gpu, gpus_in, output_of

TABLE = """\
    Fri Jul  3 22:10:45 2026
    +-----------------------------------------------------------------------------------------+
    | NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
    +-----------------------------------------+------------------------+----------------------+
    | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
    | Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
    |                                         |                        |               MIG M. |
    |=========================================+========================+======================|
    |   0  NVIDIA H100 80GB HBM3          On  |   00000000:53:00.0 Off |                    2 |
    | N/A   28C    P0             77W /  650W |       4MiB /  81559MiB |      0%   E. Process |
    |                                         |                        |             Disabled |
    +-----------------------------------------+------------------------+----------------------+
    |   1  NVIDIA H100 80GB HBM3          Off |   00000000:64:00.0 Off |                  Off |
    | ERR!  ERR!  ERR!          ERR! /  ERR!  |       0MiB /  81559MiB |     N/A      Default |
    |                                         |                        |                  N/A |
    +-----------------------------------------+------------------------+----------------------+
"""
PROCESSES = """
    +-----------------------------------------------------------------------------------------+
    | Processes:                                                                              |
    |  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
    |        ID   ID                                                               Usage      |
    |=========================================================================================|
    |    0   N/A  N/A           20037      C   /usr/bin/python3                        538MiB |
    +-----------------------------------------------------------------------------------------+
"""


def test_the_table_has_three_lines_for_each_gpu() -> None:
    collector = output_of(textwrap.dedent(TABLE) + textwrap.dedent(PROCESSES))["nvml"]
    assert (collector["driver"], collector["count"]) == ("550.90.07", 2)
    assert collector["gpus"][0] == {
        "index": 0,
        "lost": None,
        "pci": "0000:53:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "persistence_mode": True,
        "ecc_enabled": True,
        "ecc_uncorrected_total": 2,
        "temperature_c": 28,
        "power_limit_w": 650,
        "memory_used_mib": 4,
        "memory_total_mib": 81559,
        "utilization_percent": 0,
        "compute_mode": 3,
        "mig_mode": False,
        "processes": [{"pid": 20037, "memory_mib": 538, "name": "python3", "cgroup": ""}],
    }
    assert collector["gpus"][1]["lost"]["error"] == "UNKNOWN"


def test_half_a_table_says_neither_how_many_gpus_nor_that_nobody_uses_them() -> None:
    collector = output_of(TABLE)["nvml"]
    assert "count" not in collector
    assert all("processes" not in gpu for gpu in collector["gpus"])


def test_the_old_table_is_read_as_the_new_one() -> None:
    text = """\
        +-----------------------------------------------------------------------------+
        | NVIDIA-SMI 396.37                 Driver Version: 396.37                    |
        |-------------------------------+----------------------+----------------------+
        | GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
        | Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
        |===============================+======================+======================|
        |   0  Tesla V100-SXM2...  On   | 00000000:00:1B.0 Off |                    0 |
        | N/A   44C    P0    44W / 300W |      0MiB / 16160MiB |      0%      Default |
        +-------------------------------+----------------------+----------------------+

        +-----------------------------------------------------------------------------+
        | Processes:                                                       GPU Memory |
        |  GPU       PID   Type   Process name                             Usage      |
        |=============================================================================|
        |  No running processes found                                                 |
        +-----------------------------------------------------------------------------+
    """
    assert first_gpu(text) == {
        "index": 0,
        "lost": None,
        "pci": "0000:00:1b.0",
        "persistence_mode": True,
        "ecc_enabled": True,
        "ecc_uncorrected_total": 0,
        "temperature_c": 44,
        "power_limit_w": 300,
        "memory_used_mib": 0,
        "memory_total_mib": 16160,
        "utilization_percent": 0,
        "compute_mode": 0,
        "processes": [],
    }


def test_a_line_without_a_uuid_below_a_list_names_no_gpu_and_is_said_to_be_unread() -> None:
    both = "GPU 0: NVIDIA H100 (UUID: GPU-a)\nGPU 1: NVIDIA H100 (UUID: GPU-b)\n"
    values, problems = read_text(f"{both}\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n")
    nvml: Any = values["nvml"]
    assert (nvml["count"], [gpu["name"] for gpu in nvml["gpus"]]) == (2, ["NVIDIA H100", "NVIDIA H100"])
    assert problems == ["nvidia-smi -L: 2 lines below it of no known form: GPU 0: OK, GPU 1: FAULTY"]


@pytest.mark.parametrize("cut", ["GPU 2: NVIDIA H1", "GPU 2: NVIDIA H100 (UUID: GPU-"])
def test_a_list_whose_last_line_is_cut_does_not_say_how_many_gpus_there_are(cut: str) -> None:
    both = "GPU 0: NVIDIA H100 (UUID: GPU-a)\nGPU 1: NVIDIA H100 (UUID: GPU-b)\n"
    values, problems = read_text(f"{both}{cut}")
    nvml: Any = values["nvml"]
    assert ("count" in nvml, len(nvml["gpus"])) == (False, 2)
    assert problems == [f"nvidia-smi -L: 1 line below it of no known form: {cut}"]


def test_nvlink_s_shows_each_links_state_and_says_what_it_leaves_out() -> None:
    text = """\
        GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-xxx)
        \t Link 0: 26.562 GB/s
        \t Link 1: <inactive>
        \t Link 3: [N/A]
    """
    links = first_gpu(text)["nvlinks"]
    assert links[:2] == [True, False]
    assert [link["error"] for link in links[2:]] == ["UNKNOWN", "NOT_SUPPORTED"]


def test_links_of_the_last_gpu_that_an_output_ends_before_are_unknown() -> None:
    links = "".join(f"\t Link {number}: 26.562 GB/s\n" for number in range(4))
    text = "".join(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index})\n{links}" for index in range(2))
    whole, cut = gpus_in(text[: text.rindex("Link 2") + 9])
    assert whole["nvlinks"] == [True] * 4
    assert cut["nvlinks"][:2] == [True, True]
    assert [link["error"] for link in cut["nvlinks"][2:]] == ["UNKNOWN"] * 2


def test_nvlink_e_shows_the_counters_that_are_not_zero() -> None:
    text = """\
        GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-xxx)
        \t Link 0: Replay Errors: 0
        \t Link 0: Recovery Errors: 0
        \t Link 0: CRC Errors: 9
        \t Link 1: Replay Errors: 7
        \t Link 1: Recovery Errors: 0
        \t Link 1: CRC Errors: N/A
    """
    assert first_gpu(text)["nvlink_errors"] == {
        "replay": {"1": 7},
        "recovery": {},
        "crc_flit": {"0": 9, "1": {"error": "NOT_SUPPORTED", "text": "N/A"}},
    }


def test_nvlink_e_of_blackwell_shows_bit_error_rates_and_no_corrected_error() -> None:
    text = """\
        GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-xxx)
        \t Link 0: Malformed packet Errors: 0
        \t Link 0: Effective BER: 15e-255
        \t Link 0: Symbol BER: 15e-255
        \t Link 0: Raw BER Lane 0: 2061
        \t Link 0: FEC Errors - 0: 36140749276
        \t Link 1: Effective BER: 3e-11
        \t Link 1: Symbol BER: N/A
        \t Link 2: Effective BER: high
        \t Link 2: Symbol BER: 0
    """
    errors = first_gpu(text)["nvlink_errors"]
    assert errors == {
        "malformed": {},
        "effective_ber": {"0": 15e-255, "1": 3e-11, "2": {"error": "NOT_UNDERSTOOD", "text": "nvidia-smi says 'high'"}},
        "symbol_ber": {"0": 15e-255, "1": {"error": "NOT_SUPPORTED", "text": "N/A"}},
    }


def test_a_counter_of_nvlink_e_that_is_not_understood_is_not_zero() -> None:
    counter = first_gpu("GPU 0: NVIDIA B200 (UUID: GPU-xxx)\n\t Link 0: Rx Errors: 0x7\n")["nvlink_errors"]["receive"]
    assert counter == {"0": {"error": "NOT_UNDERSTOOD", "text": "nvidia-smi says '0x7'"}}


@pytest.mark.parametrize(
    ("text", "collector"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure …",
            {"init": "DRIVER_NOT_LOADED"},
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.104",
            {"init": "LIB_RM_VERSION_MISMATCH"},
        ),
        ("Failed to initialize NVML: something new", {"init": "UNKNOWN"}),
        ("bash: nvidia-smi: command not found", {"init": "LIBRARY_NOT_FOUND"}),
        ("No devices were found", {"init": "", "count": 0, "gpus": []}),
    ],
)
def test_why_there_is_no_output(text: str, collector: dict[str, object]) -> None:
    nvml = output_of(text)["nvml"]
    assert {**nvml, "init": (nvml["init"] or {"error": ""})["error"]} == collector


@pytest.mark.parametrize(
    ("message", "gpu"),
    [
        ("GPU 0000:C8:00.0: GPU is lost.  Reboot the system to recover this GPU", {"lost": "GPU_IS_LOST"}),
        ("gpu 0000:c8:00.0: GPU is lost. Reboot the system to recover this GPU", {"lost": "GPU_IS_LOST"}),
        ("GPU0000:C8:00.0: Unknown Error", {"lost": "UNKNOWN"}),
        ("GPU3: 0000:C8:00.0: Unknown Error", {"lost": "UNKNOWN", "index": 3}),
        ("GPU 00000000:C8:00.0: The NVIDIA kernel module detected an issue", {"lost": "UNKNOWN"}),
    ],
)
def test_a_gpu_without_a_handle_is_lost(message: str, gpu: dict[str, object]) -> None:
    reported = first_gpu(f"Unable to determine the device handle for {message}\n")
    assert {**reported, "lost": reported["lost"]["error"]} == {"pci": "0000:c8:00.0", **gpu}


def test_the_kernel_module_says_its_version_and_nothing_of_the_driver_library() -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build"
    assert output_of(f"{line}\nGCC version: gcc 12.3.0\n")["nvml"] == {"kernel_module": line}


def test_a_message_and_a_table_together_are_one_node() -> None:
    text = textwrap.dedent(TABLE) + "Unable to determine the device handle for GPU 0000:53:00.0: GPU is lost.\n"
    gpu = first_gpu(text)
    assert gpu["index"] == 0
    assert gpu["lost"]["error"] == "GPU_IS_LOST"
