"""`nvidia-smi -q`, its XML and a bug report, parsed into the `nvml` collector (docs/evidence.md)."""

from __future__ import annotations

import textwrap

import pytest

from clusterproof.plugins.captures.collection import read_text
from tests.captures.captured import first_gpu, gpus_in, output_of
from tests.evidence.gpu.nvidia_smi_q import FULL


def test_nvidia_smi_q_shows_every_value() -> None:
    collector = output_of(FULL.format(reset="No", dram=5))["nvml"]
    assert {key: collector[key] for key in ("init", "driver", "cuda", "count")} == {
        "init": None,
        "driver": "550.90.07",
        "cuda": 12040,
        "count": 2,
    }
    expected = {
        "index": 0,
        "lost": None,
        "uuid": "GPU-aaaa",
        "serial": "1650523020001",
        "name": "NVIDIA H100 80GB HBM3",
        "vbios": "96.00.99.00.01",
        "pci": "0000:53:00.0",
        "ecc_enabled": True,
        "ecc_uncorrected_dram": 5,
        "ecc_uncorrected_sram": 5,
        "ecc_uncorrected_total": 10,
        "ecc_corrected_total": 5,
        "ecc_aggregate_uncorrected_sram": 13,
        "sram_threshold_exceeded": True,
        "remap_pending": True,
        "remap_failed": False,
        "remapped_correctable": 1,
        "remapped_uncorrectable": 2,
        "remap_banks": [2558, 1, 0, 1, 0],
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_replays": 3,
        "temperature_c": 41.0,
        "temperature_margin_c": 46.0,
        "clocks_event_reasons": 0x1 | 0x8 | 0x40,
        "power_limit_w": 600.0,
        "power_limit_default_w": 700.0,
        "persistence_mode": True,
        "mig_mode": False,
        "compute_mode": 3,
        "memory_used_mib": 4,
        "memory_total_mib": 81559,
        "utilization_percent": 12,
        "fabric": {"state": 2, "status": 0, "clique": 1, "health_mask": 0b100001},
        "processes": [{"pid": 4711, "memory_mib": 900, "name": "python3.10", "cgroup": ""}],
    }
    gpu = collector["gpus"][0]
    assert {key: gpu[key] for key in expected} == expected
    assert gpu["recovery_action"]["error"] == gpu["retired_pages_pending"]["error"] == "NOT_SUPPORTED"


def test_a_lost_gpu_has_only_its_name_and_that_it_is_lost() -> None:
    gpu = gpus_in(FULL.format(reset="No", dram=0))[1]
    assert gpu == {
        "name": "NVIDIA H100 80GB HBM3",
        "lost": {"error": "GPU_IS_LOST", "text": "GPU is lost"},
        "pci": "0000:64:00.0",
        "index": 1,
    }


@pytest.mark.parametrize(
    ("end", "key"),
    [
        ("Max                       : 16", "pcie_width_max"),
        ("Total                             : 8155", "memory_total_mib"),
        ("Gpu                               : 1", "utilization_percent"),
        ("GPU Current Temp                  : 4", "temperature_c"),
        ("GPU T.Limit Temp                  : 4", "temperature_margin_c"),
        ("Current Power Limit               : 60", "power_limit_w"),
        ("Default Power Limit               : 70", "power_limit_default_w"),
    ],
)
def test_a_number_that_is_cut_before_its_unit_is_not_understood(end: str, key: str) -> None:
    text = FULL.format(reset="No", dram=0).partition("GPU 00000000:64")[0]
    gpu = first_gpu(text[: text.rindex(end) + len(end)])
    assert gpu[key]["error"] == "NOT_UNDERSTOOD"


@pytest.mark.parametrize(
    ("end", "key"),
    [
        ("Status : Suc", "status"),
        ("Status : Success\n        Health\n            Incorrect Configuration : Inc", "health_mask"),
    ],
)
def test_a_word_of_the_fabric_that_is_cut_is_no_fault(end: str, key: str) -> None:
    gpu = first_gpu(f"GPU 00000000:53:00.0\n    Fabric\n        State : Completed\n        {end}")
    assert gpu["fabric"][key]["error"] == "NOT_UNDERSTOOD"


@pytest.mark.parametrize("name", ["GPU is lost", "GPU requires reset"])
def test_a_process_that_calls_itself_lost_is_no_lost_gpu(name: str) -> None:
    xml = (
        '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:53:00.0"><processes><process_info>'
        f"<pid>7</pid><type>C</type><process_name>{name}</process_name></process_info></processes></gpu></nvidia_smi_log>"
    )
    as_text = FULL.format(reset="No", dram=0).replace("/usr/bin/python3.10 train.py", name)
    for text in (as_text, xml):
        gpu = gpus_in(text)[0]
        assert gpu["lost"] is None
        assert [process["name"] for process in gpu["processes"]] == [""]


def test_an_older_driver_that_asks_for_a_reset_asks_for_an_action() -> None:
    assert first_gpu(FULL.format(reset="Yes", dram=0))["recovery_action"] == 1


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("N/A", "NOT_SUPPORTED"),
        ("Requested functionality has been deprecated", "NOT_SUPPORTED"),
        ("Unknown Error", "UNKNOWN"),
        ("[Unknown Error]", "UNKNOWN"),
        ("ERR!", "UNKNOWN"),
        ("Insufficient Permissions", "NO_PERMISSION"),
        ("many", "NOT_UNDERSTOOD"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_in_its_place(word: str, error: str) -> None:
    assert first_gpu(FULL.format(reset="No", dram=word))["ecc_uncorrected_dram"]["error"] == error


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("None", 0),
        ("GPU Reset", 1),
        ("GPU_RESET", 1),
        ("Reset", 1),
        ("Reboot", 2),
        ("Drain P2P", 3),
        ("Drain and Reset", 4),
    ],
)
def test_the_words_of_a_recovery_action(word: str, number: int) -> None:
    text = f"GPU 00000000:53:00.0\n    GPU Recovery Action   : {word}\n    Compute Mode   : Default\n"
    assert first_gpu(text)["recovery_action"] == number


def test_a_section_that_is_chosen_with_d_shows_only_itself() -> None:
    text = """\
        ==============NVSMI LOG==============
        Attached GPUs                             : 8
        GPU 00000001:00:00.0
            Retired Pages
                Single Bit ECC                    : 60
                Double Bit ECC                    : 5
                Pending Page Blacklist            : Yes
    """
    assert first_gpu(text) == {
        "lost": None,
        "pci": "0001:00:00.0",
        "retired_pages_single_bit": 60,
        "retired_pages_double_bit": 5,
        "retired_pages_pending": True,
    }


def test_pascal_counts_errors_by_their_bits() -> None:
    text = """\
        GPU 00000000:04:00.0
            ECC Errors
                Volatile
                    Single Bit
                        Device Memory     : 1
                        Total             : 3
                    Double Bit
                        Device Memory     : 2
                        Register File     : 5
                        Total             : 7
    """
    gpu = first_gpu(text)
    assert gpu["ecc_uncorrected_dram"] == 2
    assert gpu["ecc_uncorrected_sram"]["error"] == "NOT_SUPPORTED"
    assert gpu["ecc_uncorrected_total"] == 7
    assert gpu["ecc_corrected_total"] == 3


def test_xml_that_ends_early_has_the_gpus_that_are_whole() -> None:
    text = """\
        <?xml version="1.0" ?>
        <!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
        <nvidia_smi_log>
        <driver_version>550.90.07</driver_version>
        <attached_gpus>2</attached_gpus>
        <gpu id="00000000:53:00.0"><ecc_errors><volatile><dram_uncorrectable>4</dram_uncorrectable></volatile>
        </ecc_errors><remapped_rows>N/A</remapped_rows></gpu>
        <gpu id="00000000:64:00.0"><ecc_errors><vola
    """
    described, other = gpus_in(text)
    assert described["ecc_uncorrected_dram"] == 4
    assert described["remap_pending"]["error"] == "NOT_SUPPORTED"
    assert other == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log><x>&b;</x></nvidia_smi_log>',
        '<nvidia_smi_log><!DOCTYPE x [<!ENTITY a "a">]><gpu id="1"/></nvidia_smi_log>',
        "<nvidia_smi_log><gpu",
        "<nvidia_smi_log>" + "<a>" * 100_000,
        "==============NVSMI LOG==============\n",
        "==============NVSMI LOG==============\nTimestamp    : now\n",
        "| NVIDIA-SMI 550.90.12   Driver Version: 550.90.12   CUDA Version: 12.4 |\n",
        "index, uuid, name\n",
    ],
)
def test_text_that_cannot_be_understood_is_a_problem_and_no_value(text: str) -> None:
    values, problems = read_text(text)
    assert values == {}
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("health", "mask"),
    [
        ("Bandwidth : Full\n            Route Unhealthy : True", 0b010010),
        ("Bandwidth : Full\n            Incorrect Configuration : None", 0x102),
        ("Bandwidth : Full\n            Incorrect Configuration : Incorrect System GUID", 0x202),
        ("Bandwidth : Full\n            Incorrect Configuration : GPU State Invalid", 0x802),
        ("Bandwidth : Full\n            Incorrect Configuration : Something new", 0xF02),
        ("Bandwidth : Full\n            Partition Assigned : False", 0x2002),
        ("Bandwidth : Odd\n            Route Unhealthy : True", 0b010000),
        ("Bandwidth : Odd\n            Route Unhealthy : False", "NOT_UNDERSTOOD"),
    ],
)
def test_the_words_of_the_fabrics_health(health: str, mask: object) -> None:
    text = "GPU 00000000:53:00.0\n    Fabric\n        State : Completed\n        Health\n            " + health + "\n"
    health_mask = first_gpu(text)["fabric"]["health_mask"]
    assert (health_mask["error"] if isinstance(health_mask, dict) else health_mask) == mask


@pytest.mark.parametrize(
    ("thermal", "idle", "expected"),
    [("Active", "Unknown Error", 0x40), ("Unknown Error", "Active", "UNKNOWN"), ("Not Active", "Active", 0x1)],
)
def test_a_slowdown_that_is_seen_outranks_a_reason_that_cannot_be_read(
    thermal: str, idle: str, expected: object
) -> None:
    text = f"""\
        GPU 00000000:53:00.0
            Clocks Throttle Reasons
                Idle : {idle}
                HW Slowdown : Not Active
                    HW Thermal Slowdown : {thermal}
                Sync Boost : Not Active
                SW Thermal Slowdown : Not Active
    """
    mask = first_gpu(text)["clocks_event_reasons"]
    assert (mask["error"] if isinstance(mask, dict) else mask) == expected


def test_a_bug_report_is_cut_into_its_parts() -> None:
    rule = "____________________________________________\n\n"
    text = (
        rule
        + "Start of NVIDIA bug report log file.  Please include this file\n\n"
        + rule
        + "*** /proc/driver/nvidia/version\n*** ls: -r--r--r-- 1 root root 0 /proc/driver/nvidia/version\nNVRM\n"
        + rule
        + "/usr/bin/nvidia-smi --query\n\n"
        + textwrap.dedent(FULL.format(reset="No", dram=0))
        + "/usr/bin/nvidia-smi --query --unit\n\n==============NVSMI LOG==============\n\nAttached Units   : 0\n"
        + "/usr/bin/nvidia-smi nvlink --remotelinkinfo\n\n"
        + "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa)\n\t Link 0: Remote Device 00000000:05:00.0: Link 6\n"
        + "/usr/bin/nvidia-smi nvlink --status\n\n"
        + "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa)\n\t Link 0: <inactive>\n"
    )
    gpus = gpus_in(text)
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    assert gpus[0]["nvlinks"] == [False]
    assert gpus[0]["remap_pending"] is True
