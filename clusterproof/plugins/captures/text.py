"""Decodes a file's bytes to plain text, whatever packed, encoded, quoted or indented it."""

from __future__ import annotations

import codecs
import re
import zlib

from clusterproof.plugins.evidence.kernel_log.parse import DRIVERS

MAX_BYTES = 64 * 1024 * 1024  # of one file, unpacked; the rest is not read
MAX_RATIO = 100  # unpacked by packed size; logs have 10 to 30
ANY_RATIO_BYTES = 1024 * 1024  # below this, the ratio does not matter

_GZIP = b"\x1f\x8b"
_TAR, _TAR_AT, _ZIP = b"ustar", 257, b"PK\x03\x04"
_MARKS = (  # byte-order marks, longest first, and their encodings
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]"  # colours, cursor movements
    r"|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)"  # a window's title
    r"|[()][0-9A-Za-z]|[=>78cDEHMNOZ])"
)
_QUOTED = re.compile(r"> ?")
# For pasted text. dmesg and journalctl indent continuation lines of a record, which may contain users' words, by more
# than this.
_INDENT = re.compile(r"\t| {0,12}(?! )")
_NODE = re.compile(r"[A-Za-z0-9][\w.-]{0,63}: ")  # the prefix of pdsh, clush and talosctl


def most_bytes(content: bytes) -> int:
    """How many bytes of a file are read, unpacked."""
    is_packed = content.startswith(_GZIP)
    return min(MAX_BYTES, max(MAX_RATIO * len(content), ANY_RATIO_BYTES)) if is_packed else MAX_BYTES


def unpacked(content: bytes) -> bytes:
    """The contents of a gzip file, as far as they go if it is truncated; other files unchanged."""
    if not content.startswith(_GZIP):
        return content[:MAX_BYTES]
    parts: list[bytes] = []
    left_bytes, rest = most_bytes(content), content
    while rest.startswith(_GZIP) and left_bytes > 0:  # a gzip file may consist of several streams
        stream = zlib.decompressobj(wbits=31)
        part, rest = _inflated(stream, rest, left_bytes)
        parts.append(part)
        left_bytes -= len(part)
    return b"".join(parts)


def is_archive(data: bytes) -> bool:
    """Whether this is an archive of files, which may be of several nodes: their text must not be read as one."""
    return data.startswith(_TAR, _TAR_AT) or data.startswith(_ZIP)


def plain(text: str) -> str:
    """The text with \\n line ends, and without ANSI escapes, NUL characters and quotation marks of e-mail.

    Non-breaking blanks become plain ones; trailing blanks are removed.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").replace("\N{NO-BREAK SPACE}", " ")
    text = _ESCAPE.sub("", text) if "\x1b" in text else text
    return "\n".join(_unquoted([line.rstrip(" \t") for line in text.split("\n")]))


def _unquoted(lines: list[str]) -> list[str]:
    """The lines without the `>` of a quotation, if most of them are quoted."""
    quoted = sum(line.startswith(">") for line in lines)
    return [_QUOTED.sub("", line, 1) for line in lines] if 2 * quoted > sum(map(bool, lines)) else lines


def undecorated(text: str) -> list[str]:
    """The text without a prefix common to all lines, without only their indentation, and unchanged.

    The first of these that a parser recognizes is what was printed: `NVRM: ` before each line is no node's name. Nor
    is a prefix of the driver's messages without a time: anyone may be quoting them.
    """
    lines, at_margin = text.split("\n"), flush(text)
    named = _without(at_margin, _NODE)
    ways = (at_margin, lines) if any(map(DRIVERS.match, named)) else (named, at_margin, lines)
    return list(dict.fromkeys(map("\n".join, ways)))


def flush(text: str) -> list[str]:
    """The lines of a text without their common indentation."""
    return _without(text.split("\n"), _INDENT)


def _without(lines: list[str], form: re.Pattern[str]) -> list[str]:
    """The lines without their common prefix, or common indentation."""
    before = next((match[0] for match in map(form.match, filter(None, lines)) if match), "")
    blank = before.rstrip()
    shown = [line for line in lines if line not in ("", blank)]
    while not all(line.startswith(before) for line in shown):
        before = before[:-1] if before.isspace() else ""
    return ["" if line == blank else line.removeprefix(before) for line in lines] if before else lines


def _inflated(stream: zlib._Decompress, packed: bytes, most: int) -> tuple[bytes, bytes]:
    """The content of one gzip stream, at most `most` bytes, and what follows it."""
    parts: list[bytes] = []
    step = 1024 * 1024
    for start in range(0, len(packed), step):  # in steps, so that data before a corrupt byte is not lost
        try:
            parts.append(stream.decompress(packed[start : start + step], most))
        except zlib.error:
            return b"".join(parts), b""
        most -= len(parts[-1])
        if stream.eof:
            return b"".join(parts), stream.unused_data + packed[start + step :]
        if most <= 0:
            break
    return b"".join(parts), b""


def decoded(content: bytes) -> str:
    """Decode by the byte-order mark, else as UTF-8."""
    mark, encoding = encoding_of(content)
    return content[len(mark) :].decode(encoding, "replace")


def encoding_of(content: bytes) -> tuple[bytes, str]:
    """The byte-order mark that a file begins with, and its encoding."""
    return next((known for known in _MARKS if content.startswith(known[0])), (b"", "utf-8"))
