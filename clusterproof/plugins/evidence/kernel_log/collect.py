"""The relevant lines of this boot's kernel log: /dev/kmsg, else `journalctl -k -b`, else `dmesg`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator

from clusterproof.plugins.agent.reading import NO_CURSOR, Absent, Broke, Denied, Node, TimedOut
from clusterproof.plugins.agent.tools import Tool
from clusterproof.plugins.evidence.kernel_log.collect_lines import BOOT_S, MAX_CHARACTERS, UNKNOWN, Kept

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    Line = tuple[float, bytes, int]  # seconds since boot, the text, its level

KMSG = "/dev/kmsg"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
BLOCK_BYTES = 64 * 1024  # a device gives one record at a time, of at most 8 KiB
RECORD = re.compile(rb"(\d+),(\d+),(\d+),[^;]*;(.*)")  # priority and facility, sequence, microseconds, text
PRINTED = re.compile(rb"\[ *(\d+\.\d+)\] (.*)")  # as dmesg prints a line
JOURNALED = re.compile(rb"\[ *(\d+\.\d+)\] \S+ kernel: (.*)")
OF_DRIVER = b"NVRM:"  # whose records of several lines are the driver's up to their end
FURTHER = b" " * 13  # at least, before the further lines of a record
ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
JOURNAL_SHARE = 0.6  # part of the collector's time for the journal's additions, or for a tool to print
READING_SHARE = 0.8  # part of the collector's time, after which the lines read so far are sent
KERNEL_FACILITY = 8  # priorities from here on belong to programs that wrote to the log


def read(node: Node) -> object:
    """The relevant lines of this boot, from the first readable source.

    Raises Absent, Broke, Denied, TimedOut.
    """
    until = time.monotonic() + READING_SHARE * node.collector_s
    text = node.text(BOOT_ID, absent="")
    boot_id = text if isinstance(text, str) else ""
    begins = node.log_cursor if node.log_cursor[0] == boot_id else NO_CURSOR
    refused, empty, late = [], [], []
    for source, lines in SOURCES.items():
        node.at(source)
        try:
            kept = Kept(*begins[1:])
            read = kept.of(_in_time(lines(node, kept), kept, node, until))
        except Denied as why:
            refused.append(str(why))
        except Broke as why:
            late.append(str(why))
        except Absent:
            continue
        else:
            if read["read"] or kept.has_cursor:
                return {"source": source, **read, "cursor": [boot_id, kept.sequence, kept.seconds]}
            empty.append(f"{source} holds nothing")  # a container may have put another file in its place
    if late:
        raise TimedOut("; ".join(late + refused + empty))
    if refused:
        raise Denied("; ".join(refused + empty))
    if empty:
        raise Broke("; ".join(empty))
    raise Absent(f"no {KMSG}, journalctl or dmesg")


def _in_time(lines: Iterator[Line], kept: Kept, node: Node, until: float) -> Iterator[Line]:
    """The lines that arrive in time. Raises Broke if there are none; TimedOut if a second try will have more time."""
    is_begun = False
    try:
        for line in lines:
            yield line
            is_begun = True
            if time.monotonic() > until:
                kept.is_unfinished = True
                break
    except Broke:
        if not is_begun:
            raise
        kept.is_unfinished = True
    if kept.is_unfinished and node.is_hurried:
        raise TimedOut("the kernel log is long")


def _kmsg(node: Node, kept: Kept) -> Iterator[Line]:
    """The kernel's ring buffer, and from the journal what it no longer holds of this boot."""
    records = _of_kernel(node, kept)
    for first in records:
        if kept.is_lost or (first[0] >= BOOT_S and not kept.has_cursor):
            kept.is_lost = False
            yield from _after(_journal_until(node, first[0], kept), kept)
        yield first
        yield from records


def _journal_until(node: Node, seconds: float, kept: Kept) -> Iterator[Line]:
    """The journal up to a time; if it does not reach that far, lines in between are lost."""
    node.at("journalctl -k -b, for what /dev/kmsg no longer holds")
    try:
        for line in _journal(node):
            if line[0] >= seconds:
                return
            yield line
    except (Absent, Denied):
        pass
    except Broke as why:
        if node.is_hurried:
            raise TimedOut(str(why)) from None
    kept.is_lost = True


def _of_kernel(node: Node, kept: Kept) -> Iterator[Line]:
    """The kernel's own records, without those that programs wrote into its log."""
    for line in _lines(_records(node, kept)):
        record = RECORD.match(line)
        if not record:
            continue
        sequence = int(record[2])
        if kept.has_cursor and sequence <= kept.sequence:
            continue
        if kept.has_cursor and kept.is_at_cursor and sequence > kept.sequence + 1:
            kept.is_lost = True
        kept.sequence, kept.is_at_cursor = sequence, False
        level = int(record[1])
        if level < KERNEL_FACILITY:
            yield int(record[3]) / 1e6, ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), record[4]), level


def _records(node: Node, kept: Kept) -> Iterator[bytes]:
    """The current records of /dev/kmsg. Raises Absent, Denied."""
    try:
        log = os.open(node.path(KMSG), os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError as problem:
        raise Denied(f"{KMSG}: {problem.strerror}") from None
    except OSError as problem:
        raise Absent(f"{KMSG}: {problem.strerror}") from None
    while True:
        try:
            record = os.read(log, BLOCK_BYTES)
        except BlockingIOError:
            break  # the end for now
        except BrokenPipeError:  # records were overwritten before they were read
            kept.is_lost = True
            continue
        except PermissionError as problem:
            raise Denied(f"{KMSG}: {problem.strerror}") from None
        if not record:
            break
        yield record
    os.close(log)


def _journal(node: Node) -> Iterator[Line]:
    return _printed(node, JOURNALED, "journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager")


def _after(lines: Iterable[Line], kept: Kept) -> Iterator[Line]:
    """The lines later than the cursor, by time; some are lost if the log begins later than it."""
    begins_s, is_known = kept.seconds, not kept.has_cursor
    for line in lines:
        if line[0] <= begins_s:
            is_known = True
            continue
        if not is_known:
            kept.is_lost = is_known = True
        yield line


def _printed(node: Node, form: re.Pattern[bytes], *command: str) -> Iterator[Line]:
    """The records printed by a program. Raises Denied with its last line if there are none; Broke if late."""
    tool, other = Tool(node, *command), b""
    stamp, text = b"", b""  # of the record whose further lines may follow
    try:
        for line in _lines(tool.chunks(JOURNAL_SHARE * node.collector_s)):
            printed = form.match(line)
            if not printed:
                if text.startswith(OF_DRIVER) and line.startswith(FURTHER) and len(text) < MAX_CHARACTERS:
                    text += b"\n" + line.strip()
                other = line.strip() or other
            elif form is PRINTED and printed[1] == stamp and float(stamp) >= BOOT_S and not text.startswith(OF_DRIVER):
                continue  # of the same record, as syslog(2) stamps each line: anybody can have a newline logged
            else:
                if stamp:
                    yield float(stamp), text, UNKNOWN
                stamp, text = printed[1], printed[2]
    except Broke:
        if stamp:
            yield float(stamp), text, UNKNOWN
        raise
    if not stamp:
        raise Denied(f"{tool.line}: {other[:200].decode('utf-8', 'replace') or 'no output'}")
    yield float(stamp), text, UNKNOWN


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines from chunks that may end anywhere."""
    begun = b""
    for chunk in chunks:
        *lines, begun = (begun + chunk).split(b"\n")
        yield from lines
    if begun:
        yield begun


SOURCES: dict[str, Callable[[Node, Kept], Iterator[Line]]] = {
    KMSG: _kmsg,
    "journalctl -k -b": lambda node, kept: _after(_journal(node), kept),
    "dmesg": lambda node, kept: _after(_printed(node, PRINTED, "dmesg"), kept),
}
