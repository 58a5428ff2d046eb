"""Parses saved kernel logs: dmesg with and without times, journalctl -k, /dev/kmsg, syslog."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.kernel_log.collect_lines import BOOT_S, UNKNOWN, Kept
from clusterproof.plugins.evidence.kernel_log.facts import OF_ALL_PROGRAMS
from clusterproof.plugins.evidence.kernel_log.line import BOOTED, ISO_DAY, SYSLOG_TIME, WORD, ZONE, unwrap
from clusterproof.plugins.evidence.kernel_log.prefixes import hold_to_one_node, is_of_all, is_typed_of_all, shown
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.parsing import CaptureError, Form, below_typed

LONGEST_LINE = 2048
FURTHER = " " * 13  # at least, before the further lines of a message: journalctl and dmesg put them below its text
LOOKED_AT = 400  # lines in which the form is recognised
MAX_BOOT_LINES = 200  # lines in which the kernel names the machine
SHARE = 0.5  # share of these that must have the form
NO_TIME = math.nan  # a line does not have one
LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")

_OF_X_SERVER = r" \((?:II|WW|EE|NI|--|==|\*\*|\+\+|!!|\?\?)\)"  # behind the same stamp, in a log that users may write
_STAMPED = re.compile(
    rf"(?:<\d{{1,3}}>)?\[\s{{0,12}}\d{{1,12}}\.\d{{3,9}}\](?!{_OF_X_SERVER})"  # dmesg
    r"|\d{1,3},\d{1,12},\d{1,18},[^;\s]{1,80};"  # /dev/kmsg
    rf"|\[{WORD} {SYSLOG_TIME} \d{{4}}\] "  # dmesg -T
    r"|kern\s{0,4}:\s?\w{1,8}\s{0,4}:"  # dmesg -x, talosctl dmesg
    rf"|{ISO_DAY}T\d\d:\d\d:\d\d,\d{{6}}[+-]\d\d:\d\d "  # dmesg --time-format iso; rsyslog's has a dot
    r"|\[ {0,12}[+<] {0,12}\d{1,12}\.\d{6}>?\]|\[[A-Z][a-z]{2}[ \d]\d \d\d:\d\d\] "  # dmesg -H, -e, delta
    r"|\[ {0,12}\d{1,12}\.\d{6} < {0,12}\d{1,12}\.\d{6}>\]"  # dmesg -d
    r"|(?P<by>\S.{0,300}? kernel: )"  # syslog, journalctl; the kernel has no pid
)
# A line's time in a journal or a syslog: journalctl's -o short, short-iso, short-full and short-unix.
_DATE = rf"(?:(?!\d+ ){WORD} )?{ISO_DAY}"  # the number before it counts errors
_TIME = rf"(?:{SYSLOG_TIME}|{_DATE}[T ]\d\d:\d\d:\d\d[^\s,]{{0,20}}(?: (?:{ZONE}))?|\d{{9,11}}\.\d{{6}})"
_OF_SYSLOG = re.compile(rf"{_TIME} \S")  # a program's line, if there is no head
_BY = rf"{_TIME} (?:\S{{0,254}}[^\s:] )?"  # and its host
_OF_KERNEL = re.compile(rf"^{_BY}kernel: ", re.MULTILINE)
_LOGGED = re.compile(rf"{_TIME} \S{{1,255}} [^\s:\[]{{1,128}}(?:\[\d{{1,10}}\])?: ")  # of a program, and its host
# Other lines in journalctl -k: those that systemd and the journal write into the kernel's log at the start.
_KERNELS = r"kernel|systemd-(?:journald|shutdown)\[\d{1,10}\]"
_AT_BOOT = r"(?:systemd|(?:systemd|dracut)-[a-z-]{1,40})\[\d{1,10}\]"
_OF_PROGRAM = re.compile(rf"^(?!{_BY}(?:{_KERNELS}): ){_TIME} \S", re.MULTILINE)
_OF_PROGRAM_LATER = re.compile(rf"^(?!{_BY}(?:{_KERNELS}|{_AT_BOOT}): ){_TIME} \S", re.MULTILINE)
_FROM_BOOT = re.compile(rf"(?:-- .{{0,200}}\n)?{_BY}kernel: (?:\[\s{{0,12}}\d{{1,12}}\.\d{{3,9}}\] )?Linux version \d")
_SINCE_BOOT = re.compile(r"^\[ {0,12}\d{1,12}\.\d{6}\] (?=(\S{1,255}) )", re.MULTILINE)  # -o short-monotonic
_KERNEL_SINCE_BOOT = re.compile(r"^\[ {0,12}\d{1,12}\.\d{6}\] (\S{1,255}) kernel: ", re.MULTILINE)
_ANY_DATE = "Jan  1 00:00:00 "
_JOURNALS = re.compile(r"-- (?:Logs begin|Journal begins|No entries)\b")  # journalctl's own messages
_HEADING = re.compile(r"[A-Z][\w ./-]{0,60}:")  # a person's heading: `From dmesg:`
_BOOT_LINE = re.compile(r"-- (?:Re)?boot\b", re.IGNORECASE)  # journalctl's own
# A stamp of the kernel's clock and the message after it. If dmesg, klogd or busybox has it from syslog(2), each
# line of one record has the same.
_KERNELS_STAMP = re.compile(r"[^\[]{0,300}\[\s{0,12}\d{1,12}\.\d{3,9}\] (?!\S{1,255} kernel: )")
_OF_DRIVER = "NVRM:"  # whose records of several lines are the driver's up to their end
DRIVERS = re.compile(r"(?:kernel: )?(?:NVRM: |nvidia-nvswitch\d{0,3}: |nvidia-peermem )")
_BOOTED = re.compile(BOOTED, re.IGNORECASE)
_DMI = re.compile(r"DMI: (Amazon EC2) ([a-z0-9-]{1,30}\.[a-z0-9-]{1,30})/")
_VERSION = re.compile(r"Linux version (\S{1,80})")
_WRITTEN_BY_PROGRAMS = 8  # priorities of /dev/kmsg from here on
_LEVEL = re.compile(rf"<?(?=\d[>,])([0-7])|kern\s{{0,4}}:\s?({'|'.join(LEVELS)})\s{{0,4}}:", re.IGNORECASE)
_PRIORITY = re.compile(r"(\d{1,3}),\d{1,12},\d{1,18},")


def is_kernel_log(text: str) -> bool:
    """Whether most lines begin as the kernel's do, or all relevant ones are the NVIDIA driver's.

    Further lines of a record are indented, and do not count.
    """
    lines = [line for line in _first_lines(text) if not line[0].isspace() or _STAMPED.match(line)]
    stamped = sum(1 for line in lines if _STAMPED.match(line))
    return (stamped and stamped >= len(lines) * SHARE) or any(DRIVERS.match(line) for line in lines)


def without_logged(text: str) -> str:
    """The lines that belong to no log: logged lines are not the output of another command.

    Further lines of a logged record are left out too, among which blank ones may have lost their indentation.
    """
    text = shown(text)
    is_stamped = _STAMPED.match if is_kernel_log(text) else _LOGGED.match
    kept: list[str] = []
    is_of_log = False
    for line in text.split("\n"):
        is_further = is_of_log and (not line or line.startswith(FURTHER))
        is_of_log = is_further or bool(_LOGGED.match(line) or is_stamped(line))
        kept += [] if is_of_log else [line]
    return "\n".join(kept)


def is_logged(line: str) -> bool:
    """Whether a line is the first one of a record logged by a program or the kernel."""
    return bool(_LOGGED.match(line) or _STAMPED.match(line))


def is_of_kernel_alone(text: str) -> bool:
    """Whether this is a kernel log into which programs do not write by themselves."""
    return is_kernel_log(text) and not _has_programs(text)


def is_of_all_programs(text: str) -> bool:
    """Whether this is a journal or a syslog of all programs, with the kernel's lines among others."""
    dated = _dated(text)
    lines = _first_lines(dated)
    is_dated = sum(1 for line in lines if _OF_SYSLOG.match(line)) > len(lines) * SHARE
    is_stamped = is_kernel_log(dated)
    has_kernels = _OF_KERNEL.search(dated) or (is_stamped and is_typed_of_all(text))
    return bool((is_dated or is_stamped) and has_kernels and _has_programs(text))


def _has_programs(text: str) -> bool:
    """Whether any line is a program's: then any user may have written those with the kernel's name."""
    if is_of_all(text):
        return True
    text = _dated(below_typed(text))
    return bool((_OF_PROGRAM_LATER if _FROM_BOOT.match(text) else _OF_PROGRAM).search(text))


def _dated(text: str) -> str:
    """The text, with dates in a journal that shows seconds since boot, to tell it from the kernel's own log."""
    text = shown(text)
    match = _KERNEL_SINCE_BOOT.search(text)
    first = "\n".join(_first_lines(text)) if match else ""
    is_journal = match and set(_SINCE_BOOT.findall(first)) == {match[1]}
    return _SINCE_BOOT.sub(_ANY_DATE, text) if is_journal else text


def _first_lines(text: str) -> list[str]:
    lines = shown(below_typed(text[:200_000])).split("\n")[:LOOKED_AT]
    return [line for line in lines if line.strip() and not _JOURNALS.match(line)]


def read(text: str) -> Mapping[str, object]:
    """The collector `kernel_log`: the relevant lines of the last boot in the text. Raises CaptureError."""
    hold_to_one_node(text)
    if _has_programs(text):
        return read_of_all_programs(text)
    text = shown(below_typed(text))
    return since_last_boot(_timed(_records(text)), is_cut=any(map(is_unclear, text.split("\n"))))


def since_last_boot(lines: list[tuple[float, str, int]], *, is_cut: bool) -> Mapping[str, object]:
    """The same from lines, each with its own time (of any clock) and its level. Raises CaptureError."""
    boots = [number for number, (_, message, _) in enumerate(lines) if _BOOTED.match(message)]
    lines = lines[boots[-1] if boots else 0 :]
    begins = lines[0][0] if lines else NO_TIME
    first = (message for seconds, message, _ in lines[:MAX_BOOT_LINES] if not BOOT_S <= seconds < CALENDAR_S)
    is_whole = not is_cut and any(map(_BOOTED.match, first))
    whole_from = 0.0 if is_whole else begins if begins < CALENDAR_S and not is_cut else None
    log = {**_kept(lines), "source": "capture", "truncated": not is_whole, "whole_from": whole_from}
    return {"kernel_log": log, **_machine(lines)}


def read_of_kernel_alone(text: str) -> Mapping[str, object]:
    """The same if no program's lines follow those by which the form is recognised. Raises CaptureError."""
    if _has_programs(text):
        raise CaptureError("programs have lines far down in it; expected dmesg or journalctl -k")
    return read(text)


def read_of_all_programs(text: str) -> Mapping[str, object]:
    """The same from the kernel's lines among those of programs, whose tag any user may write, so that it fails no node.

    Finding nothing proves nothing either; and a boot that somebody writes there hides nothing before it.
    Raises CaptureError.
    """
    hold_to_one_node(text)
    lines = _of_kernel(_dated(below_typed(text)), may_be_bare=is_typed_of_all(text))
    return of_all_programs(_timed(_records("\n".join(lines))))


def of_all_programs(lines: list[tuple[float, str, int]]) -> Mapping[str, object]:
    """The collector `kernel_log` from lines that any user may have written. Raises CaptureError."""
    return {"kernel_log": {**_kept(lines), "source": OF_ALL_PROGRAMS, "truncated": True, "whole_from": None}}


def _kept(lines: list[tuple[float, str, int]]) -> dict[str, Any]:
    """The relevant lines, selected as by the probe's collector. Raises CaptureError."""
    if not lines:
        raise CaptureError("the kernel log has no line")
    log: dict[str, Any] = Kept().of((time, line.encode("utf-8", "replace"), level) for time, line, level in lines)
    return {**log, "lines": [[None if math.isnan(seconds) else seconds, *rest] for seconds, *rest in log["lines"]]}


def _of_kernel(text: str, *, may_be_bare: bool) -> list[str]:
    """The kernel's lines, each with the further lines of its record, since the last boot that journalctl shows.

    Bare ones are without the time and the name that a journal or a syslog has before them.
    """
    kernels: list[str] = []
    is_kernels = may_be_bare
    for line in text.split("\n"):
        if _BOOT_LINE.match(line):
            kernels.clear()
            is_kernels = may_be_bare
        elif _OF_SYSLOG.match(line):
            is_kernels = bool(_OF_KERNEL.match(line))
        elif may_be_bare and _STAMPED.match(line):
            is_kernels = True
        if is_kernels:
            kernels.append(line)
    return kernels


def _machine(lines: list[tuple[float, str, int]]) -> dict[str, object]:
    """The lines of a boot that describe the machine: the firmware's names, and the kernel."""
    collected: dict[str, object] = {}
    for _, message, _ in lines[:MAX_BOOT_LINES]:
        if match := _DMI.match(message):
            collected["platform"] = {"vendor": match[1], "product": match[2]}
        elif match := _VERSION.match(message):
            collected["boot"] = {"kernel": match[1]}
    return collected


def _timed(records: Iterable[tuple[float | None, str, int]]) -> list[tuple[float, str, int]]:
    return [(NO_TIME if time is None else time, message, level) for time, message, level in records]


def _records(text: str) -> Iterator[tuple[float | None, str, int]]:
    """Each record's time, text and level. Only its first line counts as the kernel's, as any user can have a newline
    logged.

    If lines have stamps, a record begins with one; if each line has one, with one that differs from that of the line
    before. Without stamps it is unknown where a record begins: only a text that is the driver's from the first line to
    the last is read. Raises CaptureError.
    """
    every = (line[:LONGEST_LINE] for line in text.split("\n") if line.strip())
    lines = [line for line in every if not _is_of_program(line) and not _JOURNALS.match(line)]
    if sum(map(is_unclear, lines)) > sum(map(_is_head, lines)) * SHARE:
        raise CaptureError("it is not known what stands before `kernel:` in its lines; expected dmesg or journalctl -k")
    if not _is_stamped(lines):
        if not all(_is_head(line) or DRIVERS.match(line) or line.startswith("[...]") for line in lines):
            raise CaptureError(
                "its lines do not show where a record begins; expected dmesg or journalctl -k with times"
            )
        yield from ((*unwrap(line), _level(line)) for line in lines if not is_unclear(line))
        return
    yield from _stamped(lines)


def _stamped(lines: Iterable[str]) -> Iterator[tuple[float | None, str, int]]:
    """The records of lines with stamps; none of a line in which the beginning of the text is unknown."""
    record: tuple[float | None, list[str], int] | None = None
    for line in lines:
        time, message = (None, "") if is_unclear(line) else unwrap(line)
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
    """The level of a record, if its line shows it."""
    match = _LEVEL.match(line)
    if not match:
        return UNKNOWN
    return LEVELS.index(match[2].lower()) if match[2] else int(match[1])


def _is_stamped(lines: list[str]) -> bool:
    """Whether the lines of a log begin with a stamp: the first one does, or most do, apart from headings."""
    lines = [line for line in lines if not _HEADING.fullmatch(line)]
    first = next((line for line in lines if not line[0].isspace()), "")
    return bool(_is_head(first)) or sum(map(_is_head, lines)) > len(lines) * SHARE


def _is_head(line: str) -> bool:
    return bool(_STAMPED.match(line) or _BOOT_LINE.match(line))


def is_unclear(line: str) -> bool:
    """Whether a line is the kernel's only by its name, after an unknown prefix: then it is not used."""
    stamp = _STAMPED.match(line) if " kernel: " in line else None
    return bool(stamp and stamp["by"] and unwrap(line)[1] == line)


def _goes_on(line: str, time: float | None, before: float | None) -> bool:
    """Whether a line with a kernel stamp belongs to the record before it. In the first second nobody else logs."""
    return time is not None and time == before and time >= BOOT_S and bool(_KERNELS_STAMP.match(line))


def _is_of_program(line: str) -> bool:
    """Whether a program wrote this into /dev/kmsg, so that it is not the kernel's own text."""
    match = _PRIORITY.match(line)
    return bool(match and int(match[1]) >= _WRITTEN_BY_PROGRAMS)


FORMS = (
    Form("dmesg", is_of_kernel_alone, read_of_kernel_alone),
    Form("journalctl, syslog", is_of_all_programs, read_of_all_programs, 30),
)
