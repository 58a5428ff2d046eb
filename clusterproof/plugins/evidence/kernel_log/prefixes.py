"""Removes prefixes of a log's lines: grep's file names and numbers, a console's prompt, busybox's and OpenWrt's."""

from __future__ import annotations

import re

from clusterproof.plugins.evidence.kernel_log.line import ISO_DAY, SYSLOG_TIME, WORD
from clusterproof.plugins.evidence.parsing import CaptureError, typed_above

LOOKED_AT = 400  # lines in which a prefix is looked for
SHARE = 0.5  # share of these that must have one
SHOWN = 3  # names of files
BETWEEN = "--"  # grep's line between lines that do not follow each other

_STAMP = (
    r"(?:<\d{1,3}>)?(?:\[[^\[\]]{0,20}\d[.:]\d[^\[\]]{0,40}\]"
    r"|\d{1,3},\d{1,12},\d{1,18},[^;\s]{1,80};"
    rf"|(?:{WORD} )?(?:{SYSLOG_TIME}|{ISO_DAY}[T ]\d\d:\d\d:\d\d)|\d{{9,11}}\.\d{{6}} |kern\s{{0,4}}:)"
)
# `/var/log/syslog.1:`, `1023:`, `syslog:12:`, and cat -n; next to a match, grep writes `-` in place of the colons.
_PLACE = re.compile(
    r"(?:(?P<file>(?!\d{1,9}[:-])(?:\(standard input\)|[^\s:\[<][^\s:]{0,254}?))(?P<end>[:-])(?:\d{1,9}(?P=end))?"
    rf"| {{0,8}}\d{{1,9}}[:\t-])(?={_STAMP})"
)
_LOG = re.compile(
    r"(?P<folder>(?:.{0,200}/)?)(?P<stem>syslog|messages|(?:kern|user|daemon)(?:\.log)?|kernel|dmesg|debug)"
    r"(?:[.-](?P<age>\d{1,10}))?(?:\.(?:gz|xz|bz2))?"
)
_FILE_OF_ALL = re.compile(r"/var/log/(?:syslog|messages|user|daemon|debug)\b")
_ONLY_OF_KERNEL = re.compile(  # options of journalctl
    r"(?<!\S)-[aeflmqrx]{0,8}k|(?<!\S)--dmesg|_TRANSPORT=kernel|(?:-o|--output)[= ]?(?:json|export)"
)
_NEXT_COMMAND = re.compile(r"[|;&]+")
_OF_ALL = ("syslog", "messages", "user", "daemon", "debug")  # names of files into which programs write
_FACILITY = r"(?:kern|user|mail|daemon|auth|authpriv|syslog|lpr|news|uucp|cron|ftp|local[0-7])\.[a-z]{3,7}"
_LOGREAD = re.compile(rf"^{WORD} ({SYSLOG_TIME}) \d{{4}} {_FACILITY} ", re.MULTILINE)
_BUSYBOX = re.compile(rf"^({SYSLOG_TIME} \S{{1,255}} ){_FACILITY} ", re.MULTILINE)
_PROMPT = re.compile(r"^\S{1,255} login: (?=\[ {0,12}\d{1,12}\.\d{3,9}\] )", re.MULTILINE)
_NO_BLANK = re.compile(
    rf"^((?:{SYSLOG_TIME}|{ISO_DAY}[T ]\d\d:\d\d:\d\d\S{{0,20}}) \S{{1,255}} kernel:)(?=\[)", re.MULTILINE
)


def shown(text: str) -> str:
    """The lines as in their log, in the order in which its files were written."""
    if _names_facilities(text):
        text = _BUSYBOX.sub(r"\1", _LOGREAD.sub(r"\1 logread ", text))
    if " login: [" in text:
        text = _PROMPT.sub("", text)
    if "kernel:[" in text:
        text = _NO_BLANK.sub(r"\1 ", text)
    if not _is_found(text):
        return text
    by_file: dict[str, list[str]] = {}
    for name, rest in map(_parted, filter(BETWEEN.__ne__, text.split("\n"))):
        by_file.setdefault(name, []).append(rest)
    files = sorted(by_file, key=_age)
    seen: dict[str, str] = {}  # rsyslog writes them into both kern.log and syslog: they count once
    return "\n".join(
        line
        for name in files
        for line in by_file[name]
        if not line or seen.setdefault(line, _stem(name)) == _stem(name)
    )


def shows_all_programs(command: str) -> bool:
    """Whether a command shows a log into which programs write too."""
    commands = (f"{part} ".partition("journalctl ") for part in _NEXT_COMMAND.split(command))
    of_all = any(journalctl and not _ONLY_OF_KERNEL.search(options) for _, journalctl, options in commands)
    return bool(of_all or _FILE_OF_ALL.search(command))


def is_of_all(text: str) -> bool:
    """Whether the prefixes, or the command above, show that the lines are from a log of all programs."""
    if is_typed_of_all(text) or _names_facilities(text):
        return True
    return _is_found(text) and any(_stem(name).startswith(_OF_ALL) for name in _files(text))


def is_typed_of_all(text: str) -> bool:
    """Whether the command above shows a log of all programs, perhaps without what stands there before a message."""
    return shows_all_programs(typed_above(text))


def hold_to_one_node(text: str) -> None:
    """Raises CaptureError if the lines are from files that may belong to several nodes."""
    files = sorted(_files(text)) if _is_found(text) else []
    logs = [_LOG.fullmatch(name) for name in files]
    folders = {log["folder"] if log else None for log in logs}
    if len(files) > 1 and (None in folders or len(folders) > 1):
        names = ", ".join(files[:SHOWN])
        raise CaptureError(f"it was found in several files ({names:.200}); expected those of one node")


def _names_facilities(text: str) -> bool:
    head = text[:200_000]
    return bool(_LOGREAD.search(head) or _BUSYBOX.search(head))


def _is_found(text: str) -> bool:
    lines = [line for line in text[:200_000].split("\n")[:LOOKED_AT] if line and line != BETWEEN]
    prefixed = sum(1 for line in lines if _parted(line)[1] != line)
    return prefixed > 0 and prefixed >= len(lines) * SHARE


def _files(text: str) -> set[str]:
    return {name for name, _ in map(_parted, text.split("\n")) if name}


def _parted(line: str) -> tuple[str, str]:
    """The file name before a line, empty if there is none, and the line."""
    match = _PLACE.match(line)
    return (match["file"] or "", line[match.end() :]) if match else ("", line)


def _stem(name: str) -> str:
    log = _LOG.fullmatch(name)
    return log["stem"] if log else ""


def _age(name: str) -> tuple[bool, int]:
    """The order of the files: `syslog.2`, `syslog.1`, `syslog`; `messages-20240303`, `messages`."""
    log = _LOG.fullmatch(name)
    age = int(log["age"] or 0) if log else 0
    return age == 0, age if len(str(age)) > len("1000") else -age
