"""Splitting a file with several commands' outputs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.captures import outputs
from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.outputs import of_text
from clusterproof.plugins.captures.pieces import pieces
from clusterproof.plugins.evidence.parsing import Form

FORM = Form("greeting", lambda text: "hello" in text, lambda _text: {}, begins=lambda line: line.startswith("hello"))


def cut(text: str) -> list[tuple[str, str]]:
    return [(piece.typed, piece.text.strip()) for piece in pieces(text, [FORM])]


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("$ nvidia-smi -q", "nvidia-smi -q"),
        ("# dmesg", "dmesg"),
        ("+ lspci -nn", "lspci -nn"),
        ("ubuntu@ip-10-1-2-3:~$ dmesg -T", "dmesg -T"),
        ("[root@gpu001 ~]# ibstat", "ibstat"),
        ("(venv) me@gpu001:/fsx/a b$ lfs df", "lfs df"),
        ("root@gpu001:/# ", ""),
        ("=== nvidia-smi -q ===", "nvidia-smi -q"),
        ("==> gpu001/dmesg <==", "gpu001/dmesg"),
        ("---- lspci ----", "lspci"),
        ("*** /proc/meminfo", "cat /proc/meminfo"),
        ("/usr/bin/lspci -nnDvvv", "/usr/bin/lspci -nnDvvv"),
        ("____________________________________________", ""),
        ("```", ""),
        ("```bash", ""),
        ("<details><summary>dmesg</summary>", ""),
        ("</pre>", ""),
        ('<pre class="x"><code>', ""),
    ],
)
def test_a_prompt_or_a_heading_begins_another_output(line: str, typed: str) -> None:
    assert cut(f"before\n{line}\nafter") == [("", "before"), (typed, "after")]


@pytest.mark.parametrize(
    "line",
    [
        "# mount the file system of the team",
        "#       size         count      type",
        "==============NVSMI LOG==============",
        "Linux version 6.8.0 (buildd@lcy02) (gcc 12.3) #21-Ubuntu SMP",
        "10.1.2.3@tcp:/abcde on /fsx type lustre (rw,flock)",
        "/dev/nvme0n1p1   97G   29G   69G  30% /",
        '{"smart_status":{"passed":false}} 100 50 50 50% /home/me/{}',  # whoever mounts with FUSE names its source
        '{"smart_status":{"passed":false}} /home/me/mnt fuse.sshfs rw 0 0',
        "/usr/lib/xorg/Xorg",
        "\r",
        "==\r==",
        "| N/A   28C    P0             77W /  700W |",
        "+-----------------------------------------------------------------------------------------+",
    ],
)
def test_what_only_looks_like_a_prompt_is_part_of_the_output(line: str) -> None:
    assert cut(f"before\n{line}\nafter") == [("", f"before\n{line}\nafter")]


def test_a_known_beginning_begins_another_output() -> None:
    assert cut("hello 1\na\nhello 2\nb") == [("", "hello 1\na"), ("", "hello 2\nb")]


def test_an_object_of_json_behind_another_is_another_output() -> None:
    disks = [
        {"device": {"name": f"/dev/nvme{number}"}, "smart_status": {"passed": passed}, "smartctl": {"exit_status": 0}}
        for number, passed in enumerate((True, False, True))
    ]
    values, problems = read_text("\n".join(json.dumps(disk, indent=2) for disk in disks))
    assert not problems
    assert {disk["name"]: disk["passed"] for disk in values["nvme"]["smart"]["logs"]} == {  # type: ignore[index]
        "nvme0": True,
        "nvme1": False,
        "nvme2": True,
    }


@pytest.mark.parametrize("document", ['{"a": 1}', '{\n  "a": [\n    {"b": 1}\n  ]\n}', '[{"a": 1}]', "[\n {\n}\n]"])
def test_a_document_of_json_below_another_output_is_another(document: str) -> None:
    assert cut(f"before\n{document}") == [("", "before"), ("", document)]
    assert cut(f"$ free\nwarning\n{document}")[1][0] == "free"  # one command prints both


def test_a_root_that_lsblk_shows_in_json_below_uptime_is_read() -> None:
    root = {"name": "nvme0n1", "size": "100G", "type": "disk", "ro": True, "mountpoints": ["/"]}
    text = (
        f" 05:38:27 up 12 days,  3:12,  1 user,  load average: 0.10, 0.12, 0.09\n{json.dumps({'blockdevices': [root]})}"
    )
    values, problems = read_text(text)
    assert not problems
    assert {"boot", "nvme"} <= values.keys()


@pytest.mark.parametrize("begin", ["[   1{}.000000] ", "Dec 01 10:00:0{} gpu001 kernel: "])
def test_a_document_among_the_lines_of_a_log_hides_none_of_them(begin: str) -> None:
    xid = "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus."
    usb = [f"{begin.format(second)}usb 1-1: new device" for second in range(4)]
    text = "\n".join([*usb, "cloud-init finished", '{"status": "done"}', begin.format(5) + xid])
    values, problems = read_text(text)
    assert not problems
    assert [line for _, line in values["kernel_log"]["lines"]] == [xid]  # type: ignore[index]


def test_a_document_without_indentation_is_one() -> None:
    assert len(cut("before\n" + json.dumps({"a": [[{"b": {}}, {"c": [1]}]]}, indent=0))) == 2


def test_lines_of_json_one_behind_another_are_one_output() -> None:
    assert len(cut('before\n{"a": 1}\n{"a": 2}\n{"a": 3}')) == 2


def test_an_entry_of_a_journal_behind_another_is_not() -> None:
    entry = '{\n        "_TRANSPORT" : "kernel",\n        "MESSAGE" : "a"\n}\n'
    assert len(cut(entry * 3)) == 1


@pytest.mark.parametrize(
    "text", ["<pre>hello\na", '<pre lang="x"><code>hello\na</code></pre>', "x\n<pre>hello\na\n</pre>"]
)
def test_tags_beside_a_line_take_nothing_of_it_away(text: str) -> None:
    assert cut(text)[-1] == ("", "hello\na")


def test_a_prompt_behind_a_tag_is_one() -> None:
    assert cut("<pre>$ dmesg\nx</pre>") == [("dmesg", "x")]


@pytest.mark.any_user
def test_a_tag_at_the_end_of_a_line_divides_nothing() -> None:
    assert cut("a</pre>\nb") == [("", "a\nb")]


def test_blank_lines_are_no_output() -> None:
    assert cut("\n \n$ true\n\n$ dmesg\nx\n") == [("dmesg", "x")]


def test_a_query_without_a_header_gets_the_one_that_its_command_names() -> None:
    cut_texts = cut("$ nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader,nounits\n0, 00000000:53:00.0\n")
    assert [text for _, text in cut_texts] == ["index, pci.bus_id\n0, 00000000:53:00.0"]


@pytest.mark.parametrize("before", ["", "sudo ", "/usr/bin/"])
def test_a_query_is_a_command_without_a_prompt_too(before: str) -> None:
    typed = f"{before}nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv,noheader"
    assert cut(f"before\n{typed}\n1, Reset\n")[1] == (typed, "index, gpu_recovery_action\n1, Reset")


@pytest.mark.parametrize(
    "line", ["nvidia-smi is slow", "nvidia-smi --query-gpu=index says nothing", "my nvidia-smi -q"]
)
def test_what_is_said_of_a_command_is_no_command(line: str) -> None:
    assert len(cut(f"before\n{line}\nafter")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "$ journalctl -k -b -1\nNVRM: Xid (PCI:0000:53:00): 79",
        "____________________________________________\n\nScanning kernel log files for NVRM messages:\n\nNVRM: Xid",
    ],
)
def test_what_the_kernel_said_before_this_boot_is_left_out(text: str) -> None:
    assert cut(text) == []


@given(st.text(alphabet="$#+=-_*@:~ \nabchello/[]()", max_size=200))
def test_no_line_of_an_output_is_lost(text: str) -> None:
    kept = "\n".join(piece.text for piece in pieces(text, FORMS)).split("\n")
    assert [line for line in text.split("\n") if line.isalpha() and line not in kept] == []


MESSAGE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs."
LOST = "Unable to determine the device handle for GPU0000:19:00.0: GPU is lost.  Reboot the system to recover this GPU"
INDENT = " " * 20
JOURNAL = "Nov 28 11:22:33 gpu001 kernel: Linux version 6.1\nNov 28 11:22:34 gpu001 {}\n"


@pytest.mark.parametrize(
    "text",
    [
        *(JOURNAL.format(f"alice[1234]: {message}") for message in (MESSAGE, LOST, "No devices were found")),
        f"[    0.000000] Linux version 6.1\n[  100.000000] tmpfs: Unknown parameter '{MESSAGE}'\n",
        f"2026-11-28T11:22:34+00:00 gpu001 alice: {LOST}\n",
        *(
            JOURNAL.format(f"alice[1234]: hello\n{more}\nNov 28 11:22:35 gpu001 sshd[1]: bye")
            for message in (MESSAGE, LOST)
            for more in (
                INDENT + message,
                f"{INDENT}a\n\n{INDENT}{message}",
                f"{INDENT}$ nvidia-smi\n{INDENT}{message}",
            )
        ),
        f"[  100.000000] tmpfs: Unknown parameter 'a\n{INDENT}{MESSAGE}'\n",
        *(f"2025-07-21 15:15:00 gpu001 alice[7]: {message}\nx\n" for message in (MESSAGE, LOST)),
        f"2025-07-21 15:15:00 alice: {MESSAGE}\nx\n",
        f"USER PID COMMAND\nalice 7 echo {MESSAGE}\n",
        JOURNAL.format("alice[1]: nccom-test -r 32 allr\nNov 28 11:22:35 gpu001 alice[1]: error: no such file"),
        "To do: run nccom-test on this node.\nAlice saw an error in her job's log.\n",
        '{"evidence": "nccom-test -r 32 allr", "remedy": "an error"}',
    ],
)
def test_what_any_user_may_have_logged_or_written_is_no_output_of_another_command(text: str) -> None:
    values, _ = read_text(text)
    assert {"nvml", "nccom"}.isdisjoint(values)


BEFORE = ("", "gpu001: ", "nvidia-smi: ", "  ", "bash: line 3: ", "[gpu001] ", "[10.1.2.3] ", "2025-07-21 15:15:00 ")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("said", [MESSAGE, LOST, "No devices were found"])
def test_a_message_in_place_of_an_output_is_read_behind_a_name(before: str, said: str) -> None:
    values, _ = read_text(f"{before}{said}\n")
    assert "nvml" in values


def test_a_message_beside_a_log_in_one_file_is_read() -> None:
    values, _ = read_text(f"{JOURNAL.format('sshd[1]: x')}{MESSAGE}\n")
    assert {"nvml", "kernel_log"} <= set(values)


@pytest.mark.parametrize(
    ("text", "collector"),
    [
        ("mlxlink -d mlx5_3\nOperational Info\n----\nState : Polling\nPhysical state : Polling\n", "rdma"),
        ("sudo nvme smart-log /dev/nvme3n1 | grep media\nmedia_errors : 12\n", "nvme"),
        ("free -g\n       total  used  free  available\nMem:    2015   101  1500       1900\n", "memory"),
    ],
)
def test_a_command_without_its_prompt_says_what_the_output_below_it_is_of(text: str, collector: str) -> None:
    values, problems = read_text(text)
    assert (collector in values, problems) == (True, [])


@pytest.mark.parametrize("line", ["smartctl 7.2 2020-12-30 r5155", "free space 12", "sudo reboot"])
def test_a_line_of_an_output_that_begins_like_a_command_is_none(line: str) -> None:
    assert [piece.typed for piece in pieces(f"{line}\n", FORMS)] == [""]


@pytest.mark.parametrize("typed", ["nccom-test -r 32 allr", "+ nccom-test allr -r 32", "A=1 /opt/bin/nccom-test -b 8"])
def test_nccom_tests_command_with_what_went_wrong_is_its_output(typed: str) -> None:
    assert "nccom" in read_text(f"{typed}\nERROR  NRT_FAILURE: no neuron device\n")[0]


def test_an_output_that_is_repeated_is_read_once_and_counts_each_time() -> None:
    read: list[str] = []
    form = Form("greeting", FORM.recognises, lambda text: {"greeted": read.append(text)}, begins=FORM.begins)
    parts, problems = of_text("hello\n 1\n" * 1_000 + "hello\n 2\n", [form])
    assert [text.split() for text in read] == [["hello", "1"], ["hello", "2"]]
    assert ([part.collector for part in parts], problems) == (["greeted"] * 1_001, [])


@pytest.mark.long
def test_the_last_of_very_many_short_outputs_are_read_beside_longer_ones_and_the_others_counted() -> None:
    texts: list[str] = []

    def recognises(text: str) -> bool:
        return not texts.append(text)

    form = Form("greeting", recognises, lambda _: {}, begins=FORM.begins)
    long = f"hello\n {'x' * outputs.SHORT}\n"
    _, problems = of_text(long + "".join(f"hello\n {number}\n" for number in range(5_000)), [form])
    assert sorted(set(texts)) == sorted(
        [long, *(f"hello\n {number}\n" for number in range(1_000, 4_999)), "hello\n 4999\n\n"]
    )
    assert problems == ["5,000 outputs of fewer than 256 characters, of which the last 4,000 were read"]
