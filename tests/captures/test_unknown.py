"""Text that no format recognises is named; a tool's error in place of its output fails, and passes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.captures.captured import XID, of_file, written
from tests.faults.captured_fault import evaluated

SESSION = """\
me@gpu07:~$ cat /proc/uptime
350735.47 234388.90
me@gpu07:~$ ethtool eth0
Settings for eth0:
\tSpeed: 100000Mb/s
\tDuplex: Full
\tLink detected: yes
me@gpu07:~$ cd /tmp
me@gpu07:~$ dcgmi health -c
Error: no connection to localhost
"""


def unknown(text: str) -> list[str]:
    """The messages about unrecognised outputs in a text."""
    return read_text(text)[1]


def test_each_unknown_output_of_a_session_is_named_and_the_others_are_read() -> None:
    values, names = read_text(SESSION)
    assert values["boot"] == {"uptime_s": 350735.47}
    assert names == [
        "ethtool eth0 is none of the known forms",
        "dcgmi health -c is none of the known forms: Error: no connection to localhost",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "# ethtool eth0\nCannot get device settings: No such device\n",
            "ethtool eth0 is none of the known forms: Can",
        ),
        (
            "== ethtool ==\nCannot get device settings\n\n== dmesg ==\n[1.0] a\n",
            "ethtool is none of the known forms: Ca",
        ),
        ("==> gpu07/modinfo <==\nnothing\n", "gpu07/modinfo is none of the known forms: nothing"),
        (f"$ ethtool {'x' * 500}\nno\n", f"ethtool {'x' * 72} is none of the known forms: no"),
    ],
)
def test_what_a_prompt_or_a_heading_opens_is_called_by_its_command(text: str, said: str) -> None:
    assert unknown(text)[0].startswith(said)


@pytest.mark.parametrize("text", ["$ cd /tmp\n$ uptime\n", "remember the milk\n", "# the notes of a colleague\nmilk\n"])
def test_where_nothing_was_printed_or_no_command_is_shown_no_output_is_named(text: str) -> None:
    assert unknown(text) == []


def test_no_part_of_a_bug_report_is_named_unless_it_was_chosen() -> None:
    rule = "_" * 44
    head = f"{rule}\n\nStart of NVIDIA bug report log file.  Please include this file\n{rule}\n\n"
    assert unknown(f"{head}*** /proc/uptime\n350735.47 234388.90\n{rule}\n\n*** /proc/pci\nbusy\n") == []


def test_a_file_that_shows_a_command_is_reported_by_its_output_and_not_the_command(tmp_path: Path) -> None:
    file = written(tmp_path, **{"chrony.txt": "# ethtool eth0\nno such device\n"}) / "chrony.txt"
    assert of_file(file).unknown == ("chrony.txt: ethtool eth0 is none of the known forms: no such device",)


NO_DRIVER = "Unable to read device information from the driver."
ERRORS = {
    f'FATA[0000] Failed to discover neuron devices             error="{NO_DRIVER}"': (
        "neuron.devices_answer",
        Verdict.FAIL,
        "neuron-ls says FATA[0000] Failed to discover neuron devices",
    ),
    "506 Cannot talk to daemon": ("host.clock_sync", Verdict.INCOMPLETE, "(chronyc: 506 Cannot talk to daemon)"),
    "No IB devices found": ("network.ib_count", Verdict.INCOMPLETE, "(ibv_devinfo: No IB devices found)"),
    "Failed to get IB devices list: Function not implemented": (
        "network.ib_count",
        Verdict.INCOMPLETE,
        "(ibv_devinfo: Failed to get IB devices)",
    ),
}


@pytest.mark.parametrize("output", ERRORS, ids=lambda output: output[:30])
def test_an_error_in_place_of_an_output_is_said_in_its_own_words(output: str) -> None:
    check, verdict, message = ERRORS[output]
    assert read_text(output + "\n")[1] == []
    expect(evaluated({"a.txt": output + "\n"})[check], verdict, message)


@pytest.mark.parametrize("output", ERRORS, ids=lambda output: output[:30])
def test_below_a_typed_command_it_is_the_same(output: str) -> None:
    check, verdict, message = ERRORS[output]
    expect(evaluated({"a.txt": f"# sudo the command\n$ date -u\n{output}\n"})[check], verdict, message)


@pytest.mark.parametrize("output", ["FATA[0012] error running neuron job", 'time=12:00 level=fatal msg="neuron job"'])
def test_what_a_job_logs_of_neuron_is_no_output_of_neuron_ls(output: str) -> None:
    assert "neuron_ls" not in read_text(f"step 1\n{output}\n")[0]


def test_neuron_ls_says_why_it_fails_below_another_line() -> None:
    assert "neuron_ls" in read_text(f"step 1\nFATA[0000] Failed to discover neuron devices  error={NO_DRIVER}\n")[0]


@pytest.mark.parametrize(
    "line",
    [
        "[   {0}.000000] {1}",
        "[   {0}.000000][    T1] {1}",
        "[Tue Dec  1 10:00:{0} 2026] {1}",
        "kern  :err   : [   {0}.000000] {1}",
        "2026-12-01T10:00:{0},123456+00:00 {1}",
        "Dec 01 10:00:{0} gpu001 kernel: {1}",
        "2026-12-01T10:00:{0}+0000 gpu001 kernel: {1}",
    ],
)
def test_a_kernel_log_below_a_long_output_is_read_or_named(line: str) -> None:
    log = "".join(line.format(number, f"{XID} {number}") + "\n" for number in range(10, 40))
    smi = sample("nvidia-smi-q/gpud-h100x8-535.183.txt").text
    assert unknown(smi + log) == [
        "dmesg: not read below another output; expected its command above it, or a file of its own"
    ]
    assert unknown(f"{smi}$ dmesg\n{log}") == unknown(smi) == []


def test_what_ucx_logs_is_no_kernel_log() -> None:
    log = "".join(f"[16987654{number}.123456] [gpu001:77 :0] ucp_context.c:99 UCX WARN x\n" for number in range(10, 40))
    assert unknown(sample("nvidia-smi-q/gpud-h100x8-535.183.txt").text + log) == []


def test_an_error_hides_no_answer_of_another_tool() -> None:
    files = {"chrony": "506 Cannot talk to daemon\n", "timedatectl": "System clock synchronized: no\n"}
    expect(evaluated(files)["host.clock_sync"], Verdict.CONCERN, "the clock is not synchronised")
