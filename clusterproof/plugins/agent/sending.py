"""The answer as a node sends it: short lines with the nonce, so that noise between them does no harm."""

from __future__ import annotations

import os
import select
import zlib
from binascii import b2a_base64

CHUNK_BYTES = 42  # of compressed answer in a line: 56 characters, 76 with what surrounds them
WIDE_BYTES = 1500  # … where every character counts: 2000, and 60 around them
MAX_WRITE_BYTES = 4096  # whole lines of at most PIPE_BUF: no other writer's text comes between


def begin(nonce: str) -> str:
    """The marker that says that the probe runs; without its end, the answer is cut."""
    return f"{nonce}:begin."


def lines(packed: bytes, nonce: str, chunk_bytes: int = CHUNK_BYTES) -> list[str]:
    """The frame after its begin: the packed answer in numbered chunks, then how many there were and their checksum.

    Between them the checksum of all until then: of a frame that is cut, what comes before the last one is good.
    """
    chunks = [packed[start : start + chunk_bytes] for start in range(0, len(packed), chunk_bytes)]
    data: list[str] = []
    checksum = 0
    for n, chunk in enumerate(chunks, 1):
        data.append(f"{nonce}:{n - 1}:{b2a_base64(chunk, newline=False).decode()}.")
        checksum = zlib.crc32(chunk, checksum)
        if n % (WIDE_BYTES // chunk_bytes) == 0:
            data.append(f"{nonce}:until:{n}:{checksum:08x}.")
    return [*data, f"{nonce}:end:{len(chunks)}:{len(packed)}:{zlib.crc32(packed):08x}."]


def room_bytes(characters: int) -> int:
    """How long a packed answer may be whose frame of wide lines has so many characters."""
    return (characters - 100) * WIDE_BYTES // 2060


def send(answer: bytes, nonce: str, output: int = 1, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Write the frame, in pieces that a pipe takes as one. Raises OSError where nobody reads any more."""
    block = b"\n"  # what was printed before need not have ended its line
    for line in lines(zlib.compress(answer, 6), nonce, chunk_bytes):
        text = line.encode() + b"\n"
        if len(block) + len(text) > MAX_WRITE_BYTES:
            _write(block, output)
            block = b""
        block += text
    _write(block, output)


def _write(block: bytes, output: int) -> None:
    while block:
        try:
            block = block[os.write(output, block) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(output, select.POLLOUT)
            poll.poll()
