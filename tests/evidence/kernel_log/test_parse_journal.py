"""The journal with its fields, in journalctl's JSON and export formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, of_file, written

pytestmark = pytest.mark.any_user
XID = "NVRM: Xid (PCI:0000:c5:00): 48, pid=77, name=python3, DBE"
Entry = dict[str, object]


def entry(message: object, at_us: int = 12_500_000, **fields: object) -> Entry:
    """One kernel entry; a field that is None is left out."""
    every_field = {
        "__CURSOR": "s=1;i=2",
        "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + at_us),
        "_BOOT_ID": "b" * 32,
        "_MACHINE_ID": "a" * 32,
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "kernel",
        "SYSLOG_FACILITY": "0",
        "_TRANSPORT": "kernel",
        "_SOURCE_MONOTONIC_TIMESTAMP": str(at_us),
        "MESSAGE": message,
        **fields,
    }
    return {name: value for name, value in every_field.items() if value is not None}


BOOT = entry("Linux version 6.8.0-1021-aws (x)", 0)
USB = entry("usb 1-1: new device")


def compact(*entries: Entry) -> str:
    return "".join(f"{json.dumps(item)}\n" for item in entries)


def pretty(*entries: Entry) -> str:
    fields = (",\n".join(f"\t{json.dumps(name)} : {json.dumps(item[name])}" for name in item) for item in entries)
    return "".join(f"{{\n{some}\n}}\n" for some in fields)


def exported(*entries: Entry) -> str:
    return "\n".join("".join(f"{name}={value}\n" for name, value in item.items()) for item in entries)


def xids(folder: Path, text: str) -> Result:
    """The Xid check's result on a capture of this text."""
    return evaluated(written(folder, journal=text) / "journal")["gpu.no_xid"]


@pytest.mark.parametrize("form", [compact, pretty, exported])
def test_an_xid_in_the_kernels_entries_fails_and_a_healthy_journal_passes(
    form: Callable[..., str], tmp_path: Path
) -> None:
    result = xids(tmp_path, form(BOOT, entry(XID)))
    assert result.verdict is Verdict.FAIL
    assert "Xid 48 (Double Bit ECC Error) at 0000:c5:00.0, last 12 s after boot, in process python3" in result.message
    assert xids(tmp_path, form(BOOT, USB)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "text",
    [
        pretty(BOOT, entry(XID)).replace("\n", "\r\n"),
        "$ journalctl -k -o json-pretty\n" + pretty(BOOT, entry(XID)),
        "```json\n" + compact(BOOT, entry(XID)) + "```\n",
        pretty(BOOT, entry(XID))[40:],
        compact(BOOT, entry("hello", SYSLOG_IDENTIFIER="a", _TRANSPORT="journal"), entry(XID)),
        compact(entry(list(XID.encode()))),
        '{\n "MESSAGE" : "' + XID + '",\n "_TRANSPORT" : "kernel",\n "PRIORITY" : "3"\n}\n',
    ],
    ids=["crlf", "prompt", "markdown", "cut at its begin", "all programs", "bytes", "few fields"],
)
def test_an_entry_is_read_however_it_was_pasted(text: str, tmp_path: Path) -> None:
    assert Verdict.FAIL in [finding.verdict for finding in xids(tmp_path, text).by_verdict]


@pytest.mark.long
@pytest.mark.parametrize(
    "forged",
    [
        entry(XID, _TRANSPORT="syslog"),
        entry(XID, _TRANSPORT=["kernel", "journal"]),
        entry(XID, SYSLOG_IDENTIFIER="me", SYSLOG_FACILITY="3"),  # root wrote into the kernel log
        entry(f"tmpfs: Unknown parameter 'x\n{XID}'"),
        entry(f"tmpfs: Unknown parameter 'x\n{compact(entry(XID))}'"),
        entry(XID, 1, _BOOT_ID="c" * 32),  # the previous boot
    ],
)
def test_only_what_journald_has_from_the_kernel_counts(forged: Entry, tmp_path: Path) -> None:
    for form in (compact, pretty):
        assert xids(tmp_path, form(forged, BOOT, USB)).verdict is Verdict.PASS


def test_without_journalds_word_who_calls_himself_kernel_fails_no_node(tmp_path: Path) -> None:
    result = xids(tmp_path, compact(entry(XID, _TRANSPORT=None), entry(XID, _TRANSPORT=None, SYSLOG_IDENTIFIER="me")))
    assert [finding.verdict for finding in result.by_verdict] == [Verdict.INCOMPLETE, Verdict.CONCERN]


@pytest.mark.parametrize("further", [f"__CURSOR=2\n_TRANSPORT=kernel\nMESSAGE={XID}", f"$ dmesg\n[   12.500000] {XID}"])
def test_the_lines_of_a_users_message_are_no_entry_of_an_export(further: str, tmp_path: Path) -> None:
    for begin in ("", "\n", "the journal:\n"):
        text = f"{begin}{exported(BOOT, USB)}\n__CURSOR=1\nMESSAGE\n.......hello\n\n{further}\n"
        assert xids(tmp_path, text).verdict is Verdict.INCOMPLETE
        message = "none of the known forms" if begin.strip() else "a field of several lines"
        assert message in " ".join(of_file(tmp_path / "journal").unknown)


@pytest.mark.long
@pytest.mark.parametrize("text", [compact(BOOT, USB)[:-40], pretty(BOOT, USB)[:-40], pretty(BOOT, USB)[:-3]])
def test_a_journal_that_is_cut_proves_nothing(text: str, tmp_path: Path) -> None:
    assert xids(tmp_path, text).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (compact(BOOT, entry(XID, _MACHINE_ID="d" * 32)), "entries of several machines"),
        (compact(entry(XID, _TRANSPORT="journal", SYSLOG_IDENTIFIER="me")), "no entry of the kernel"),
    ],
)
def test_what_is_not_one_kernels_journal_says_so(text: str, message: str, tmp_path: Path) -> None:
    assert message in " ".join(of_file(written(tmp_path, journal=text) / "journal").unknown)
