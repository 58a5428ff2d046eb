"""The beginning and the end of a file as text, however it is packed or encoded; what lies between is not read."""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from typing import BinaryIO

from clusterproof.plugins.captures.text import encoding_of, plain
from clusterproof.plugins.case.output import LEFT_OUT
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import GZIP, HEAD, ZSTD, RunFile, Unpacked

HEAD_BYTES = 2 << 20  # of each file: how the job began
TAIL_BYTES = 6 << 20  # and how it ended
UTF_8 = "utf-8"


@record
class Ends:
    """What was read of a file: `is_cut`, its middle is left out; `broken`, why the end is not its own."""

    text: str | None  # None: it is no text
    count: int = 0  # bytes
    is_cut: bool = False
    broken: str = ""


def ends_of(file: BinaryIO) -> Ends:
    """Of a file that is not packed. Raises OSError."""
    size, head = os.fstat(file.fileno()).st_size, file.read(HEAD_BYTES)
    if not _is_text(head):
        return Ends(None, len(head))
    tail_at = max(len(head), size - TAIL_BYTES)
    file.seek(tail_at)
    return _joined(head, file.read(TAIL_BYTES), tail_at)


def ends_of_packed(file: BinaryIO, of: RunFile) -> Ends:
    """Of a packed file, as far as it can be unpacked."""
    unpacked, head, tail, count, broken = Unpacked(of), b"", bytearray(), 0, ""
    try:
        for piece in unpacked.pieces(file):
            count += len(piece)
            own = piece[: HEAD_BYTES - len(head)]
            head += own
            tail += piece[len(own) :]
            if len(tail) > 2 * TAIL_BYTES:
                del tail[:-TAIL_BYTES]
    except RunError as wrong:
        broken = str(wrong).removeprefix(f"{of}: ")
    if unpacked.is_cut and not broken:
        broken = "it breaks off; expected a whole file"
    if not _is_text(head):
        return Ends(None, broken=broken)
    last = bytes(tail[-TAIL_BYTES:])
    return replace(_joined(head, last, count - len(last)), broken=broken)


def _joined(head: bytes, tail: bytes, tail_at: int) -> Ends:
    mark, encoding = encoding_of(head)
    if tail_at == len(head):
        text = (head + tail)[len(mark) :].decode(encoding, "replace")
    else:
        unit = len("x".encode(encoding))
        last = tail[-tail_at % unit :].decode(encoding, "replace")
        text = f"{head[len(mark) :].decode(encoding, 'replace')}\n{LEFT_OUT}\n{last}"
    return Ends(plain(text), len(head) + len(tail), is_cut=tail_at > len(head))


def _is_text(head: bytes) -> bool:
    """Whether a file that begins with these bytes is text.

    Logs contain NUL bytes too: PyTorch's handler of a crashed loader writes one, and a crash or a second writer leaves
    blocks of them. Everything else is then UTF-8; a pickle never is.
    """
    if encoding_of(head)[1] != UTF_8:
        return True
    head = head[:HEAD]
    if b"\0" not in head:
        return not head.startswith((b"\x80", GZIP, ZSTD))
    try:
        getincrementaldecoder(UTF_8)().decode(head.replace(b"\0", b""))
    except UnicodeDecodeError:
        return False
    return True
