"""The journal with its fields: `journalctl -o json`, `-o json-pretty` and `-o export`.

Only journald writes fields that begin with `_`: `_TRANSPORT=kernel` marks records from /dev/kmsg that no user wrote.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN
from clusterproof.plugins.evidence.kernel_log.parse import NO_TIME, of_all_programs, since_last_boot
from clusterproof.plugins.evidence.parsing import CaptureError, Form

EXPORTED = "__CURSOR="  # beginning of each entry of -o export
LOOKED_AT = 20_000  # characters in which the form is recognised
MAX_FIELDS = 400  # lines of one entry
KERNEL = "kernel"
_OF_JOURNALD = ('"__REALTIME_TIMESTAMP"', '"_TRANSPORT"')
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)
_LEVEL = re.compile(r"[0-7]", re.ASCII)

Entry = Mapping[str, object]
Line = tuple[float, str, int]


def is_json(text: str) -> bool:
    """Whether this is the output of `journalctl -o json` or `-o json-pretty`."""
    head = "\n" + text[:LOOKED_AT]
    return "\n{" in head and '"MESSAGE"' in head and any(field in head for field in _OF_JOURNALD)


def is_exported(text: str) -> bool:
    """Whether this is the output of `journalctl -o export`."""
    return text.lstrip("\n").startswith(EXPORTED)


def read_json(text: str) -> Mapping[str, object]:
    """The collector `kernel_log`. Raises CaptureError."""
    entries = list(_objects(text))
    return _read([entry for entry in entries if entry], is_cut=not all(entries))


def read_exported(text: str) -> Mapping[str, object]:
    """The same. Messages of several lines stand there unquoted, so users may write text that looks like another entry.

    Raises CaptureError.
    """
    lines = text.split("\n")
    if any(line and "=" not in line for line in lines):
        raise CaptureError("an entry has a field of several lines, or is cut; expected journalctl -k -o json")
    entries = [dict(line.split("=", 1) for line in some) for is_one, some in itertools.groupby(lines, bool) if is_one]
    return _read(entries, is_cut=False)


def _read(entries: Sequence[Entry], *, is_cut: bool) -> Mapping[str, object]:
    """The kernel's entries; if journald's fields are missing, those that name the kernel. Raises CaptureError."""
    kernels = [entry for entry in entries if _is_kernels(entry)]
    if kernels:
        if len({entry.get("_MACHINE_ID") for entry in kernels}) > 1:
            raise CaptureError("it has entries of several machines; expected one")
        newest = max(kernels, key=lambda entry: _number(entry, "__REALTIME_TIMESTAMP")).get("_BOOT_ID")
        return since_last_boot(_lines([entry for entry in kernels if entry.get("_BOOT_ID") == newest]), is_cut=is_cut)
    others = [entry for entry in entries if "_TRANSPORT" not in entry and entry.get("SYSLOG_IDENTIFIER") == KERNEL]
    if not others:
        raise CaptureError("it has no entry of the kernel; expected journalctl -k -o json")
    return of_all_programs(_lines(others))


def _is_kernels(entry: Entry) -> bool:
    """Whether the kernel itself wrote the entry, and not a program into the kernel's log."""
    return (entry.get("_TRANSPORT"), entry.get("SYSLOG_IDENTIFIER", KERNEL)) == (KERNEL, KERNEL) and (
        entry.get("SYSLOG_FACILITY", "0") == "0"
    )


def _lines(entries: list[Entry]) -> list[Line]:
    """Each entry's time, text and level, in the order of their times: seconds since boot if all have them."""
    since_boot = "_SOURCE_MONOTONIC_TIMESTAMP"
    clock = since_boot if all(since_boot in entry for entry in entries) else "__REALTIME_TIMESTAMP"
    lines = [
        (_number(entry, clock) / 1e6 if clock in entry else NO_TIME, _message(entry), _level(entry))
        for entry in entries
    ]
    return sorted(lines, key=lambda line: line[0]) if all(clock in entry for entry in entries) else lines


def _message(entry: Entry) -> str:
    """An entry's message; one that is not UTF-8 is printed as a list of byte values."""
    message = entry.get("MESSAGE")
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in message):
        return bytes(message).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""


def _number(entry: Entry, name: str) -> int:
    value = entry.get(name)
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else 0


def _level(entry: Entry) -> int:
    priority = entry.get("PRIORITY")
    return int(priority) if isinstance(priority, str) and _LEVEL.fullmatch(priority) else UNKNOWN


def _objects(text: str) -> Iterator[Entry]:
    """Each entry; an empty one in place of a cut or damaged one."""
    begun: list[str] = []
    for line in text.split("\n"):
        if line == "{" or begun:
            begun.append(line)
        elif line.strip():
            yield _object(line)
        if begun and (line == "}" or len(begun) > MAX_FIELDS):
            yield _object("\n".join(begun))
            begun = []
    if begun:
        yield {}


def _object(text: str) -> Entry:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


FORMS = (Form("journalctl -o json", is_json, read_json), Form("journalctl -o export", is_exported, read_exported))
