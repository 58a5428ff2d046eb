"""DCGM's health watches in a capture: a warning where it complains, and nothing where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, output_of, written
from tests.testbed.outputs import dcgm_json, dcgm_table


def row(left: str, right: str) -> str:
    return f"| {left:<25} | {right:<56} |\n"


LINE = f"+{'-' * 27}+{'-' * 58}+\n"
HEAD = f"$ dcgmi health -c\n{LINE}| {'Health Monitor Report':<85}|\n{LINE.replace('-', '=')}"
HEALTHY = HEAD + row("Overall Health", "Healthy") + LINE
FAILING = (
    HEAD
    + row("Overall Health", "Failure")
    + row("GPU", "")
    + row("-> 3", "Failure")
    + row("   -> Errors", "")
    + row("      -> Memory system", "Failure")
    + row("", "A DBE has been detected on GPU 3. Drain the GPU and")
    + row("", "reset it or reboot the node.")
    + row("NvSwitch", "")
    + row("-> 0", "Warning")
    + row("   -> Errors", "")
    + row("      -> NVLINK system", "Warning")
    + row("", "NVSwitch 0 has a non-fatal error.")
    + LINE
)
DBE = "A DBE has been detected on GPU 3. Drain the GPU and reset it or reboot the node."
SWITCH = "NVLINK system: NVSwitch 0 has a non-fatal error."
OLD = """\
Health Monitor Report
+------------------+---------------------------------------------------------+
| Overall Health:  | {overall:<55} |
+==================+=========================================================+
"""
OLD_FAILING = OLD.format(overall="Warning") + (
    "| GPU ID: 1        | Warning                                                 |\n"
    "|                  | InfoROM system: Warning - A corrupt InfoROM has been    |\n"
    "|                  | detected in GPU 1.                                      |\n"
)
JSON = {
    "header": ["Health Monitor Report"],
    "body": {
        "Overall Health": {"value": "Failure"},
        "GPU": {
            "children": {
                "3": {
                    "value": "Failure",
                    "children": {
                        "Errors": {"children": {"Memory system": {"value": "Failure", "overflow": ["A DBE on GPU 3."]}}}
                    },
                }
            }
        },
    },
}
JSON_HEALTHY = {"header": ["Health Monitor Report"], "body": {"Overall Health": {"value": "Healthy"}}}
DMON = """\
#Entity   XIDER                       TMPTR
ID                                    C
GPU 0     0                           35
GPU 1     {xid}                         {temperature}
GPU 0     0                           35
"""


def dmon(xid: object, temperature: object = 36) -> str:
    return DMON.format(xid=xid, temperature=temperature)


@pytest.mark.parametrize(
    "text",
    [
        HEALTHY,
        OLD.format(overall="Healthy"),
        json.dumps(JSON_HEALTHY),
        dmon(0),
        dmon("N/A"),
        dmon(43),  # a program was killed
        dmon(31),  # a program's own page fault
        "$ dcgmi dmon -e 150,230 | grep GPU\nGPU 0  35  0\nGPU 1  79  0\n",
    ],
)
def test_where_dcgm_complains_of_nothing_nothing_is_said_and_no_diagnostic_is_proven(text: str, tmp_path: Path) -> None:
    assert read_text(text) == ({}, [])
    assert evaluated(written(tmp_path, dcgm=text) / "dcgm")["gpu.dcgm_diag"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            FAILING,
            f"dcgmi health on GPU 3: warn: Memory system: {DBE}, dcgmi health on NvSwitch 0: warn: {SWITCH}",
        ),
        (
            OLD_FAILING,
            "dcgmi health on GPU 1: warn: InfoROM system: Warning - A corrupt InfoROM has been detected in GPU 1.",
        ),
        (OLD.format(overall="Failure"), "dcgmi health: warn: Failure"),
        (json.dumps(JSON, indent=1), "dcgmi health on GPU 3: warn: Memory system: A DBE on GPU 3."),
        (dmon(79, "N/A"), "dcgmi dmon on GPU 1: warn: its last Xid is 79: GPU has fallen off the bus"),
        (
            "$ dcgmi dmon -e 150,230 | grep GPU\nGPU 0  35  0\nGPU 1  31  48\n",
            "dcgmi dmon on GPU 1: warn: its last Xid is 48: Double Bit ECC Error",
        ),
        (
            "$ dcgmi dmon -e 150,230 | grep GPU\nGPU 1  35  0\nGPU 1  31  48\nGPU 1  31  48\nGPU 1  N/A  79\n",
            "dcgmi dmon on GPU 1: warn: its last Xid is 48: Double Bit ECC Error, then 79: GPU has fallen off the bus",
        ),
    ],
)
def test_what_dcgm_complains_of_is_a_concern_as_any_user_may_have_injected_it(
    text: str, words: str, tmp_path: Path
) -> None:
    result = evaluated(written(tmp_path, dcgm=text) / "dcgm")["gpu.dcgm_diag"]
    assert (result.verdict, result.message) == (Verdict.CONCERN, f"{words}; expected every test to pass")


def test_health_that_is_good_takes_nothing_from_a_diagnostic_that_passed(tmp_path: Path) -> None:
    folder = written(tmp_path, diag=dcgm_table(), health=HEALTHY)
    assert evaluated(folder)["gpu.dcgm_diag"].verdict is Verdict.PASS


@pytest.mark.long
def test_health_that_is_bad_is_said_beside_a_diagnostic_that_passed(tmp_path: Path) -> None:
    folder = written(tmp_path, diag=dcgm_table(), health=FAILING)
    assert evaluated(folder)["gpu.dcgm_diag"].verdict is Verdict.CONCERN


@pytest.mark.parametrize(("xid", "verdict"), [(94, Verdict.CONCERN), (95, Verdict.FAIL)])
def test_a_diagnostic_that_fails_for_an_xid_alone_counts_as_the_xid_does(
    xid: int, verdict: Verdict, tmp_path: Path
) -> None:
    warning = f"Detected XID {xid} for GPU 3 Please consult the documentation for details of this XID."
    folder = written(tmp_path, diag=dcgm_json("Fail", severity=4, warning=warning))
    assert evaluated(folder / "diag")["gpu.dcgm_diag"].verdict is verdict


def test_watches_that_are_off_are_named() -> None:
    message = "Error: Health watches not enabled. Please enable watches."
    assert read_text(f"$ dcgmi health -c\n{message}\n")[1] == [f"dcgmi health -c is none of the known forms: {message}"]


def links(*gpus: str) -> str:
    """The output of `dcgmi nvlink -s`."""
    rows = "".join(f"    gpuId {number}:\n        {states}\n" for number, states in enumerate(gpus))
    return f"GPUs:\n{rows}NvSwitches:\n    No NvSwitches found.\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n"


def in_words(folder: Path, *states: str) -> dict[Verdict, str]:
    """The messages about GPUs' links, by verdict."""
    result = evaluated(written(folder, links=links(*states)) / "links")["gpu.nvlink_active"]
    return {
        finding.verdict: finding.message.partition(": ")[2].partition(";")[0]
        for finding in result.by_verdict or (result,)
    }


@pytest.mark.parametrize("count", [1, 2, 8])
def test_links_that_are_all_down_are_said_and_accuse_no_card_where_the_model_is_not_known(
    count: int, tmp_path: Path
) -> None:
    messages = in_words(tmp_path, *["D " * 18] * count)
    assert (list(messages), messages[Verdict.INCOMPLETE]) == ([Verdict.INCOMPLETE], "all 18 NVLinks inactive")


@pytest.mark.parametrize(
    ("states", "link"), [("U U X X D U", 4), ("X D U", 1), ("_ _ U D U", 3), ("U D U", 1), ("U D U X", 1)]
)
def test_a_link_that_is_down_is_called_as_the_grid_counts_it(states: str, link: int, tmp_path: Path) -> None:
    assert in_words(tmp_path, states)[Verdict.FAIL].startswith(f"NVLink {link} inactive")


@pytest.mark.parametrize("states", ["D D", "U U", "X X D U"])
def test_links_alone_do_not_prove_that_a_gpu_answers(states: str, tmp_path: Path) -> None:
    by_check = evaluated(written(tmp_path, links=links(states, states)) / "links")
    assert by_check["gpu.gpu_answers"].verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("named", [{"gpu_ids": "3"}, {}])  # without a GPU: a test of the deployment
def test_json_of_dcgm_2_says_why_in_one_text(named: dict[str, str]) -> None:
    result = {**named, "status": "Fail", "warnings": "DBE on GPU 3"}
    tests = [{"name": "memory", "results": [result]}]
    (log,) = output_of(json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"tests": tests}]}}))["dcgm_diag"][
        "logs"
    ]
    (failed,) = log["tests"][0]["results"]
    assert [message["text"] for message in failed["messages"]] == ["DBE on GPU 3"]
