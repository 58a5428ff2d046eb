"""Sections cut out of `nvidia-smi -q`, and which GPU each belongs to."""

from __future__ import annotations

import pytest

from tests.captures.captured import first_gpu, gpus_in

FABRIC = "    Fabric\n        State                             : {}\n        Status                            : {}\n"
ROWS = "    Remapped Rows\n        Uncorrectable Error : 4\n        Pending : Yes\n"


@pytest.mark.parametrize("between", ["", "--\n", "    Processes                             : None\n--\n"])
def test_sections_that_grep_cut_out_are_of_the_gpus_in_their_order(between: str) -> None:
    text = FABRIC.format("Completed", "Success") + between + FABRIC.format("In Progress", "N/A")
    gpus = gpus_in(f"$ nvidia-smi -q | grep -A12 Fabric\n{text}")
    assert [(gpu["index"], gpu["fabric"]["state"]) for gpu in gpus] == [(0, 3), (1, 2)]


GUID = "        GPU Fabric GUID                       : N/A\n    Inforom Version\n        Image Version : G520.0{}\n"


def test_what_grep_finds_besides_the_fabric_hides_it_not() -> None:  # since driver 560
    sections = [
        GUID.format(n) + "--\n" + FABRIC.format(state, "N/A") for n, state in enumerate(("Completed", "In Progress"))
    ]
    gpus = gpus_in("$ nvidia-smi -q | grep -A12 Fabric\n" + "--\n".join(sections))
    assert [(gpu["index"], gpu["fabric"]["state"]) for gpu in gpus] == [(0, 3), (1, 2)]
    assert not any("inforom" in gpu for gpu in gpus)


@pytest.mark.parametrize("guid", ["", GUID.format(0) + "--\n"])
@pytest.mark.parametrize("prompt", ["", "$ nvidia-smi -q | grep -A12 Fabric\n"])
def test_a_section_before_the_first_gpu_that_grep_shows_is_of_the_one_before_it(prompt: str, guid: str) -> None:
    named = "    Processes : None\n\nGPU 00000000:{}:00.0\n    Product Name : NVIDIA H100\n    Serial Number : {}\n--\n"
    text = guid + FABRIC.format("In Progress", "N/A")
    for number in (2, 3):
        text += named.format(f"{number}c", number) + guid + FABRIC.format("Completed", "Success")
    gpus = gpus_in(f"{prompt}{text}")
    assert [(gpu.get("pci"), gpu["fabric"]["state"]) for gpu in gpus] == [
        ("0000:2c:00.0", 3),
        ("0000:3c:00.0", 3),
        (None, 2),
    ]


def test_what_the_check_of_pcie_errors_tells_to_look_at_is_read() -> None:
    shown = "".join(f"GPU 00000000:{n}C:00.0\n        Replays Since Reset : {n}00\n" for n in (2, 3))
    gpus = gpus_in(f"$ nvidia-smi -q | grep -E '^GPU|Replays'\n{shown}")
    assert [(gpu["pci"], gpu.get("pcie_replays")) for gpu in gpus] == [("0000:2c:00.0", 200), ("0000:3c:00.0", 300)]


def test_a_section_that_was_cut_out_of_one_gpu_is_of_a_gpu_without_a_number() -> None:
    gpu = first_gpu(ROWS)
    assert "index" not in gpu
    assert gpu["remap_pending"] is True


ECC = "    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 0\n            DRAM Uncorrectable : {}\n"
OF_MIG = "        ECC Errors\n            Volatile\n                SRAM Uncorrectable : 0\n"
FAILED = "    Remapped Rows\n        Remapping Failure Occurred : {}\n"
LISTED = "GPU {0}: NVIDIA A100-SXM4-80GB (UUID: GPU-{0})\n"


def test_the_sections_of_mig_devices_are_of_no_gpu_of_their_own() -> None:
    gpus = gpus_in(OF_MIG * 2 + ECC.format(0) + OF_MIG * 2 + "--\n" + ECC.format(3))
    assert [(gpu["index"], gpu["ecc_uncorrected_dram"]) for gpu in gpus] == [(0, 0), (1, 3)]


@pytest.mark.parametrize(("shown", "failed"), [("no yes", [None, False, True]), ("yes no", [None, True, False])])
def test_a_gpu_without_the_section_has_its_place(shown: str, failed: list[object]) -> None:
    none = "    Remapped Rows                         : N/A\n"
    sections = (FAILED.format(word.capitalize()) for word in shown.split())
    gpus = gpus_in(none + "".join(sections))
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2]
    assert [None if isinstance(gpu["remap_failed"], dict) else gpu["remap_failed"] for gpu in gpus] == failed


@pytest.mark.parametrize("chosen", ["-q -i 2,3", "-i 2,3 -q", "-q --id=2,3"])
def test_of_gpus_that_were_chosen_nobody_knows_which_they_are(chosen: str) -> None:
    gpus = gpus_in(f"$ nvidia-smi {chosen} | grep -A3 -i 'ECC Errors'\n{ECC.format(0)}--\n{ECC.format(5)}")
    assert [gpu["ecc_uncorrected_dram"] for gpu in gpus] == [0, 5]
    assert not any("index" in gpu for gpu in gpus)


def test_fewer_sections_than_gpus_are_of_gpus_that_were_chosen() -> None:
    listed = "".join(map(LISTED.format, range(4)))
    gpus = gpus_in(f"$ nvidia-smi -L\n{listed}$ cat ecc\n{ECC.format(0)}--\n{ECC.format(5)}")
    assert [gpu.get("ecc_uncorrected_dram") for gpu in gpus if "index" in gpu] == [None] * 4
    assert [gpu["ecc_uncorrected_dram"] for gpu in gpus if "index" not in gpu] == [0, 5]


def test_a_section_beside_the_only_gpu_is_of_it() -> None:
    gpu = first_gpu(f"$ nvidia-smi -L\n{LISTED.format(0)}$ nvidia-smi -q | grep -A3 'ECC Errors'\n{ECC.format(14)}")
    assert (gpu["index"], gpu["ecc_uncorrected_dram"]) == (0, 14)


def test_a_section_beside_several_gpus_is_of_one_more_without_a_number() -> None:
    listed = "".join(map(LISTED.format, range(2)))
    gpus = gpus_in(f"$ nvidia-smi -L\n{listed}$ nvidia-smi -q -i 1 | grep -A3 'ECC Errors'\n{ECC.format(14)}")
    assert [(gpu.get("index"), gpu.get("ecc_uncorrected_dram")) for gpu in gpus] == [(0, None), (1, None), (None, 14)]


@pytest.mark.parametrize("fabric", [1, 2])
def test_sections_of_one_session_are_all_read(fabric: int) -> None:
    shown = [FABRIC.format("Completed", "Success"), ECC.format(2)]
    gpu = first_gpu(
        "".join(f"$ nvidia-smi -q | grep -A3 x\n{section}" for section in shown[:: 1 if fabric == 1 else -1])
    )
    assert (gpu["fabric"]["state"], gpu["ecc_uncorrected_dram"]) == (3, 2)
