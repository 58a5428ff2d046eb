"""The kernel log as people save it: dmesg with and without times, journalctl -k, /dev/kmsg, syslog."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.kernel_log.collect_lines import BOOT_S, UNKNOWN, Kept
from clusterproof.plugins.evidence.kernel_log.facts import OF_ALL_PROGRAMS
from clusterproof.plugins.evidence.kernel_log.line import BOOTED, ISO_DAY, SYSLOG_TIME, WORD, ZONE, unwrap
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.parsing import CaptureError, Form

LONGEST_LINE = 2048
LOOKED_AT = 400  # lines in which the form is recognised
MAX_BOOT_LINES = 200  # in which the kernel names the machine
SHARE = 0.5  # of these that have the form
NO_TIME = math.nan  # a line does not have one
LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")

_STAMPED = re.compile(
    r"(?:<\d{1,3}>)?\[\s{0,12}\d{1,12}\.\d{3,9}\]"  # dmesg
    r"|\d{1,3},\d{1,12},\d{1,18},[^;\s]{1,80};"  # /dev/kmsg
    rf"|\[{WORD} {SYSLOG_TIME} \d{{4}}\] "  # dmesg -T
    r"|kern\s{0,4}:\s?\w{1,8}\s{0,4}:"  # dmesg -x, talosctl dmesg
    rf"|{ISO_DAY}T\d\d:\d\d:\d\d[.,]\d{{6}}[+-]\d\d:\d\d "  # dmesg --time-format iso
    r"|\[ {0,12}[+<] {0,12}\d{1,12}\.\d{6}>?\]|\[[A-Z][a-z]{2}[ \d]\d \d\d:\d\d\] "  # dmesg -H, -e, delta
    r"|\[ {0,12}\d{1,12}\.\d{6} < {0,12}\d{1,12}\.\d{6}>\]"  # dmesg -d
    r"|\S.{0,300}? kernel: "  # syslog, journalctl; the kernel has no pid
)
# When a line of a journal or a syslog was logged: journalctl's -o short, short-iso, short-full and short-unix.
_TIME = rf"(?:{SYSLOG_TIME}|(?:{WORD} )?{ISO_DAY}[T ]\d\d:\d\d:\d\d\S{{0,20}}(?: (?:{ZONE}))?|\d{{9,11}}\.\d{{6}})"
_OF_SYSLOG = re.compile(rf"{_TIME} \S")  # a program's, if no head
_OF_KERNEL = re.compile(rf"^{_TIME} (?:\S{{1,255}} )?kernel: ", re.MULTILINE)
_JOURNALS = re.compile(r"-- (?:Logs begin|Journal begins|No entries)\b")  # what journalctl says of itself
_BOOT_LINE = re.compile(r"-- (?:Re)?boot\b", re.IGNORECASE)  # journalctl's own
# A stamp of the kernel's clock with the message behind it. Where dmesg, klogd or busybox has it from syslog(2), each
# line of one record has the same.
_KERNELS_STAMP = re.compile(r"[^\[]{0,300}\[\s{0,12}\d{1,12}\.\d{3,9}\] (?!\S{1,255} kernel: )")
_OF_DRIVER = "NVRM:"  # whose records of several lines are the driver's to their end
_DRIVERS = re.compile(r"(?:kernel: )?(?:NVRM: |nvidia-nvswitch\d{0,3}: |nvidia-peermem )")
_BOOTED = re.compile(BOOTED, re.IGNORECASE)
_DMI = re.compile(r"DMI: (Amazon EC2) ([a-z0-9-]{1,30}\.[a-z0-9-]{1,30})/")
_VERSION = re.compile(r"Linux version (\S{1,80})")
_WRITTEN_BY_PROGRAMS = 8  # priorities of /dev/kmsg from here on
_LEVEL = re.compile(rf"<?(?=\d[>,])([0-7])|kern\s{{0,4}}:\s?({'|'.join(LEVELS)})\s{{0,4}}:", re.IGNORECASE)
_PRIORITY = re.compile(r"(\d{1,3}),\d{1,12},\d{1,18},")


def is_kernel_log(text: str) -> bool:
    """Whether most lines begin as the kernel's do, or all that matter are the NVIDIA driver's."""
    lines = _first_lines(text)
    stamped = sum(1 for line in lines if _STAMPED.match(line))
    return (stamped and stamped >= len(lines) * SHARE) or any(_DRIVERS.match(line) for line in lines)


def is_of_all_programs(text: str) -> bool:
    """Whether it is a journal or a syslog in which the kernel's lines are some of many."""
    lines = _first_lines(text)
    dated = sum(1 for line in lines if _OF_SYSLOG.match(line))
    return bool(dated > len(lines) * SHARE and not is_kernel_log(text) and _OF_KERNEL.search(text))


def _first_lines(text: str) -> list[str]:
    lines = text[:200_000].split("\n")[:LOOKED_AT]
    return [line for line in lines if line.strip() and not _JOURNALS.match(line)]


def read(text: str) -> Mapping[str, object]:
    """The collector `kernel_log`: of the last boot in it, the lines that matter. Raises CaptureError."""
    lines = list(_of_last_boot(text))
    if not lines:
        raise CaptureError("the kernel log has no line")
    data: dict[str, Any] = Kept().of((time, line.encode("utf-8", "replace"), level) for time, line, level in lines)
    kept = [[None if math.isnan(seconds) else seconds, *rest] for seconds, *rest in data["lines"]]
    begins = lines[0][0]
    is_whole = any(_BOOTED.match(words) for seconds, words, _ in lines[:MAX_BOOT_LINES] if not seconds >= BOOT_S)
    whole_from = 0.0 if is_whole else begins if begins < CALENDAR_S else None
    log = {**data, "source": "capture", "lines": kept, "truncated": not is_whole, "whole_from": whole_from}
    return {"kernel_log": log, **_machine(lines)}


def read_of_all_programs(text: str) -> Mapping[str, object]:
    """The same of the kernel's lines among those of programs, whose tag any user may write: it fails no node.

    Nor does finding nothing prove anything, as whoever writes the kernel's name there may write of a boot.
    """
    log: Any = read("\n".join(_of_kernel(text)))["kernel_log"]
    return {"kernel_log": {**log, "source": OF_ALL_PROGRAMS, "truncated": True, "whole_from": None}}


def _of_kernel(text: str) -> Iterator[str]:
    """The kernel's lines, each with the further lines of its record."""
    is_kernels = False
    for line in text.split("\n"):
        if _OF_SYSLOG.match(line):
            is_kernels = bool(_OF_KERNEL.match(line))
        if is_kernels:
            yield line


def _machine(lines: list[tuple[float, str, int]]) -> dict[str, object]:
    """What a boot says of the machine: its firmware's names, and the kernel."""
    data: dict[str, object] = {}
    for _, message, _ in lines[:MAX_BOOT_LINES]:
        if found := _DMI.match(message):
            data["platform"] = {"vendor": found[1], "product": found[2]}
        elif found := _VERSION.match(message):
            data["boot"] = {"kernel": found[1]}
    return data


def _of_last_boot(text: str) -> list[tuple[float, str, int]]:
    """The lines since the last boot that the log shows, each with its own time, of whatever clock, and its level."""
    lines = list(_records(text))
    boots = [number for number, (_, message, _) in enumerate(lines) if _BOOTED.match(message)]
    last = lines[boots[-1] if boots else 0 :]
    return [(NO_TIME if time is None else time, message, level) for time, message, level in last]


def _records(text: str) -> Iterator[tuple[float | None, str, int]]:
    """Each record's time, words and level. Only its head speaks for the kernel, as any user can have a newline logged.

    Where lines have stamps a record begins with one; and not with that of the line before it, where each line has one.
    Without stamps it is unknown where one begins: only what is the driver's from the first line to the last is read.
    Raises CaptureError.
    """
    every = (line[:LONGEST_LINE] for line in text.split("\n") if line.strip())
    lines = [line for line in every if not _is_of_program(line) and not _JOURNALS.match(line)]
    if not _is_stamped(lines):
        if not all(_is_head(line) or _DRIVERS.match(line) or line.startswith("[...]") for line in lines):
            raise CaptureError(
                "its lines do not show where a record begins; expected dmesg or journalctl -k with times"
            )
        yield from ((*unwrap(line), _level(line)) for line in lines)
        return
    record: tuple[float | None, list[str], int] | None = None
    for line in lines:
        time, message = unwrap(line)
        if not _is_head(line) or (record and _goes_on(line, time, record[0])):
            if record and record[1][0].startswith(_OF_DRIVER) and (_is_head(line) or not _OF_SYSLOG.match(line)):
                record[1].append(message)
            continue
        if record:
            yield record[0], "\n".join(record[1]), record[2]
        record = time, [message], _level(line)
    if record:
        yield record[0], "\n".join(record[1]), record[2]


def _level(line: str) -> int:
    """The level of a record, where its line shows it."""
    found = _LEVEL.match(line)
    if not found:
        return UNKNOWN
    return LEVELS.index(found[2].lower()) if found[2] else int(found[1])


def _is_stamped(lines: list[str]) -> bool:
    """Whether the lines of a log begin with a stamp: its first one does, or most do."""
    first = next((line for line in lines if not line[0].isspace()), "")
    return bool(_is_head(first)) or sum(map(_is_head, lines)) > len(lines) * SHARE


def _is_head(line: str) -> bool:
    return bool(_STAMPED.match(line) or _BOOT_LINE.match(line))


def _goes_on(line: str, time: float | None, before: float | None) -> bool:
    """Whether a line with a stamp of the kernel's belongs to the record before it. In its first second nobody logs."""
    return time is not None and time == before and time >= BOOT_S and bool(_KERNELS_STAMP.match(line))


def _is_of_program(line: str) -> bool:
    """Whether a program wrote this into /dev/kmsg: it is not the kernel's word."""
    found = _PRIORITY.match(line)
    return bool(found and int(found[1]) >= _WRITTEN_BY_PROGRAMS)


FORMS = (
    Form("dmesg", is_kernel_log, read),
    Form("journalctl, syslog", is_of_all_programs, read_of_all_programs, 30),
)
