"""A line of mount, /proc/mounts or /proc/self/mountinfo."""

from __future__ import annotations

import re
from typing import Any

LONGEST_LINE = 2_000
FSTAB_TITLE = re.compile(r"^#.{0,80}/etc/fstab|^# <file system>", re.MULTILINE)

_ESCAPED = re.compile(r"\\([0-7]{3})")
_OF_MOUNT = re.compile(r"(\S.{0,400}?) on (/.{0,1000}?) type (\S{1,60}) \(([^()]{0,1000})\)(?: \[.{0,200}\])?\s*\Z")
_PROC = re.compile(
    r"(\S{1,400}) (/\S{0,1000}) (\S{1,60}) (r[wo](?:,\S{1,1200})?) 0 0\s*\Z"
)  # fstab seldom begins with rw
_INFO = re.compile(
    r"\d{1,9} \d{1,9} \d{1,6}:\d{1,6} \S{1,400} (/\S{0,1000}) (\S{1,400}) "
    r"[^-]{0,200}?- (\S{1,60}) (\S{1,400}) (\S{1,1200})"
)


def mount_of(line: str) -> dict[str, Any]:
    """The mount that a line describes, nothing where it has another form."""
    if found := _OF_MOUNT.match(line):
        return mount(found[2], found[3], found[1], found[4])
    if found := _PROC.match(line):
        return mount(unescaped(found[2]), found[3], unescaped(found[1]), found[4])
    if found := _INFO.match(line):
        options = dict.fromkeys([*found[2].split(","), *found[5].split(",")])
        return mount(unescaped(found[1]), found[3], unescaped(found[4]), ",".join(options))
    return {}


def mount(path: str, kind: str, source: str, options: str) -> dict[str, Any]:
    """A mount without its sizes."""
    return {"path": path[:1000], "type": kind, "source": source[:400], "options": options[:1200]}


def unescaped(text: str) -> str:
    """A path as it is called: blanks are octal in these files."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), text)
