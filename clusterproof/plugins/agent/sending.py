"""Sends a node's answer: shortened to fit its connection, in short lines with the nonce that noise cannot damage."""

from __future__ import annotations

import json
import os
import select
import zlib
from binascii import b2a_base64

from clusterproof.plugins.agent.pattern import Pattern

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

MIN_LINES = 16  # minimum number of lines kept of a class
PROCESSES, WORST = "processes", "worst"
CLASSES = (  # classes of lines, by prefix; all others form one more class
    (  # what processes can write without limit: dropped first, and fails no node
        PROCESSES,
        Pattern(
            r"(?s)(?:traps: )?.{0,15}?\[\d+\]:? (?:segf|general|trap|bad fr|unhandled|vsys)|INFO: task |cgroup: fork"
            r"|Memory cgroup out of memory|oom_reaper: |oom-kill:constraint=CONSTRAINT_MEMCG"
            r"|.{0,15} invoked oom-killer: |.{0,15}: page allocation failure[.:,] {0,2}order:(?:[4-9]|\d\d)"
        ),
    ),
    (WORST, Pattern(r"NVRM: Xid|nvidia-nvswitch\d+: SXid|mce: |\{\d+\}\[Hardware Error")),
    ("file_servers", Pattern(r"Lustre|LNet|nfs: ")),
)

CHUNK_BYTES = 42  # of compressed answer in a line: 56 characters, 76 with what surrounds them
WIDE_BYTES = 1500  # … where every character counts: 2000, plus 60 around them
MAX_WRITE_BYTES = 4096  # whole lines of at most PIPE_BUF: other writers' text does not come between


def fitted(answer: dict[str, Any], max_bytes: int) -> bytes:
    """The answer, shortened until it compresses to no more than that; what was dropped is reported in its place."""
    collectors = answer["collectors"]
    log = collectors.get("kernel_log", {}).get("value")
    while _size(answer) > max_bytes:
        if log and _shorten(log):
            continue
        sizes = {name: _size(collector) for name, collector in collectors.items() if "value" in collector}
        if not sizes:
            break
        longest = collectors[max(sizes, key=lambda name: sizes[name])]
        del longest["value"]
        if longest["status"] == "read":  # else how it ended is said still
            longest.update({"status": "cut", "too_long": True})
    return json.dumps(answer).encode()


def _shorten(log: dict[str, Any]) -> bool:
    """Drop the older half of the largest class of lines and count them. False: all are short.

    Lines of processes are dropped first, the most severe last.
    """
    classes: dict[str, list[Any]] = {}
    for line in log["lines"]:
        classes.setdefault(class_of(line[1]), []).append(line)
    long = [name for name, lines in classes.items() if len(lines) > MIN_LINES]
    if not long:
        return False
    name = max(long, key=lambda name: (name == PROCESSES, name != WORST, len(classes[name])))
    gone = classes[name][: len(classes[name]) // 2]
    cut = log.setdefault("cut", {})
    before = cut.get(name, [0])[0]
    cut[name] = [before + sum(1 + sum(line[2:3]) for line in gone), gone[-1][0]]  # how many; the time of the last
    left_out = set(map(id, gone))
    log["lines"] = [line for line in log["lines"] if id(line) not in left_out]
    return True


def class_of(text: str) -> str:
    """The class of a kernel log line."""
    return next((name for name, begins in CLASSES if begins.match(text)), "others")


def _size(value: object) -> int:
    return len(zlib.compress(json.dumps(value).encode(), 6))


def lines(packed: bytes, nonce: str, chunk_bytes: int = CHUNK_BYTES) -> list[str]:
    """The frame after its begin: the packed answer in numbered chunks, then their number and checksum.

    In between, checksums cover all chunks so far: in a cut frame, everything before the last checksum is valid.
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


def bytes_within(characters: int) -> int:
    """The maximum size of a packed answer whose frame of wide lines has so many characters."""
    return (characters - 100) * WIDE_BYTES // 2060


def send(answer: bytes, nonce: str, output: int = 1, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Write the frame, in pieces that a pipe writes atomically. Raises OSError when the reader is gone."""
    block = b"\n"  # earlier output may not have ended its line
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
