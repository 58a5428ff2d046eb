"""A file's bytes as plain text: packed or not, in any encoding, without a terminal's escape sequences."""

from __future__ import annotations

import codecs
import re
import zlib

MAX_BYTES = 64 * 1024 * 1024  # of one file, unpacked; what lies behind is not read
MAX_RATIO = 100  # unpacked bytes by packed ones; logs have 10 to 30
ANY_RATIO_BYTES = 1024 * 1024  # up to which it does not matter

_GZIP = b"\x1f\x8b"
_MARKS = (  # the byte-order marks, longest first, and what they announce
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]"  # colours, cursor movements
    r"|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)"  # a window's title
    r"|[()][0-9A-Za-z]|[=>78cDEHMNOZ])"
)


def text_of(content: bytes) -> str:
    """The text of a file, at most MAX_BYTES of it; bytes that are no text become replacement characters."""
    return plain(decoded(unpacked(content)))


def most_bytes(content: bytes) -> int:
    """How many bytes of a file are read, unpacked."""
    is_packed = content.startswith(_GZIP)
    return min(MAX_BYTES, max(MAX_RATIO * len(content), ANY_RATIO_BYTES)) if is_packed else MAX_BYTES


def unpacked(content: bytes) -> bytes:
    """What a gzip file holds, as far as it goes where it is cut short; other files as they are."""
    if not content.startswith(_GZIP):
        return content[:MAX_BYTES]
    parts: list[bytes] = []
    room, rest = most_bytes(content), content
    while rest.startswith(_GZIP) and room > 0:  # a gzip file may be several, one behind the other
        stream = zlib.decompressobj(wbits=31)
        part, rest = _inflated(stream, rest, room)
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def plain(text: str) -> str:
    """The text with \\n at the end of lines, and without ANSI escapes and NUL characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def _inflated(stream: zlib._Decompress, packed: bytes, room: int) -> tuple[bytes, bytes]:
    """What one gzip stream holds, at most `room` bytes, and what lies behind it."""
    parts: list[bytes] = []
    step = 1024 * 1024
    for start in range(0, len(packed), step):  # in steps: what comes before a broken byte is not lost
        try:
            parts.append(stream.decompress(packed[start : start + step], room))
        except zlib.error:
            return b"".join(parts), b""
        room -= len(parts[-1])
        if stream.eof:
            return b"".join(parts), stream.unused_data + packed[start + step :]
        if room <= 0:
            break
    return b"".join(parts), b""


def decoded(content: bytes) -> str:
    """The text of bytes, by their byte-order mark, else as UTF-8."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    return content.decode("utf-8", "replace")
