"""Decodes a node's evidence from raw output: finds the frame among the noise, and decodes it strictly."""

from __future__ import annotations

import binascii
import json
import math
import re
import zlib

from clusterproof.plugins.agent.program import Answer
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.evidence import EvidenceError, NodeEvidence, Unreached, collectors_from_json
from clusterproof.plugins.core.typed import Any

MAX_DECODED_BYTES = 32 * 1024 * 1024
MAX_VALUES = 500_000
MAX_DEPTH = 32
MAX_DIGITS = 24
MAX_DETAIL = 200
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}]', re.DOTALL)
END = rb":end:(\d{1,6}):(\d{1,8}):([0-9a-f]{8})\."
NO_PYTHON = rb":no-python:([^\r\n]{0,4000})"  # each Python on the node, and why it is unusable
UNTIL = rb":until:(\d{1,6}):([0-9a-f]{8})\."
COLLECTORS_DEPTH = 2  # nesting depth of the object of collectors


class FrameError(ClusterproofError, ValueError):
    """An answer without a whole frame; `unreached` says why."""

    def __init__(self, unreached: Unreached, detail: str) -> None:
        super().__init__(detail)
        self.unreached = unreached


def decode(node: str, answer: Answer, nonce: str) -> NodeEvidence:
    """Decode the evidence of one node. Never raises: a node whose answer cannot be decoded counts as not reached.

    If the answer was cut, keeps the collectors that arrived whole; its `detail` says that it was cut.
    """
    if answer.unreached:
        return NodeEvidence(node, unreached=answer.unreached, detail=answer.detail, seconds=answer.seconds)
    cut = ""
    try:
        try:
            fields = unpacked(answer.output, nonce)
        except FrameError as problem:
            if problem.unreached is not Unreached.CUT:
                raise
            cut, fields = str(problem), _leading_collectors(answer.output, nonce, problem)
        collectors = collectors_from_json(fields.get("collectors"))
        probe = fields.get("probe")
        if not isinstance(probe, dict):
            raise EvidenceError("probe is not an object")
    except FrameError as problem:
        return NodeEvidence(node, unreached=problem.unreached, detail=str(problem), seconds=answer.seconds)
    except (ValueError, RecursionError) as problem:
        detail = printable(f"the probe's answer does not have its form: {problem}")
        return NodeEvidence(node, unreached=Unreached.GARBLED, detail=detail, seconds=answer.seconds)
    return NodeEvidence(node, collectors, detail=cut, probe=probe, seconds=answer.seconds)


def unpacked(output: bytes, nonce: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises FrameError, or ValueError if it is malformed."""
    return _object(_inflate(_packed(output, nonce)))


def begin(nonce: str) -> bytes:
    """The begin marker, which the command prints; without an end marker, the answer was cut."""
    return nonce.encode() + b":begin."


def has_end(output: bytes, nonce: str) -> bool:
    """Whether the answer is finished: its end marker arrived, or the message that there is no Python."""
    mark = re.escape(nonce.encode())
    return bool(re.search(mark + END, output) or re.search(mark + NO_PYTHON + rb"[\r\n]", output))


def last_whole(output: bytes, nonce: str) -> bytes:
    """The last complete answer of several that were printed one after another; empty if there is none."""
    for part in reversed(output.split(begin(nonce))[1:]):
        if has_end(part, nonce):
            return begin(nonce) + part
    return b""


def _leading_collectors(output: bytes, nonce: str, cut: FrameError) -> dict[str, Any]:
    """The leading collectors that arrived whole in a cut answer. Raises `cut` if there are none."""
    mark = re.escape(nonce.encode())
    chunks = _chunks(output, mark)
    numbered = dict(chunks)
    if output.count(begin(nonce)) > 1 or len(numbered) != len(chunks):
        raise cut
    try:
        packed = _vouched(numbered, {int(n): int(checksum, 16) for n, checksum in re.findall(mark + UNTIL, output)})
        begun = zlib.decompressobj().decompress(packed, MAX_DECODED_BYTES)
    except (binascii.Error, zlib.error):
        raise cut from None
    if begun.count(b'"') > 2 * MAX_VALUES:
        raise cut
    depth = complete = 0
    for token in TOKEN.finditer(begun):
        if token[0].startswith(b'"') and token.end() == len(begun):
            break  # an unterminated text, or one with nothing behind it
        depth += {b"{": 1, b"}": -1}.get(token[0], 0)
        if token[0] == b"}" and depth == COLLECTORS_DEPTH:
            complete = token.end()
    if not complete:
        raise cut
    return _object(begun[:complete] + b"}" * COLLECTORS_DEPTH)


def _vouched(chunks: dict[int, bytes], sums: dict[int, int]) -> bytes:
    """The leading chunks, unpacked, as far as a checksum covers them; `sums` are keyed by number of chunks."""
    packed = bytearray()
    good = so_far = checksum = 0
    for number in range(len(chunks)):
        packed += binascii.a2b_base64(chunks.get(number, b""))
        checksum = zlib.crc32(packed[so_far:], checksum)
        so_far = len(packed)
        if sums.get(number + 1) == checksum:
            good = so_far
    return bytes(packed[:good])


def _chunks(output: bytes, mark: bytes) -> list[tuple[int, bytes]]:
    """The numbered chunks of an answer, still encoded."""
    numbered = re.findall(mark + rb":(\d{1,6}):([A-Za-z0-9+/=]{1,2000})\.", output)
    return [(int(number), chunk) for number, chunk in numbered]


def printable(text: str) -> str:
    """At most MAX_DETAIL characters of a text on one line, without control characters."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 8 * MAX_DETAIL])
    return " ".join(shown.split())[:MAX_DETAIL]


def _packed(output: bytes, nonce: str) -> bytes:
    """The compressed answer, whole and checked. Raises FrameError."""
    mark = re.escape(nonce.encode())
    begins = output.count(begin(nonce))
    end_lines = re.findall(mark + END, output)
    if not begins:
        raise FrameError(*_no_frame(output, mark))
    if not end_lines:
        raise FrameError(Unreached.CUT, _cut(output, mark))
    chunks = _chunks(output, mark)
    numbers = [number for number, _ in chunks]
    count, length, checksum = int(end_lines[0][0]), int(end_lines[0][1]), int(end_lines[0][2], 16)
    if begins > 1 or len(end_lines) > 1 or len(set(numbers)) != len(numbers):
        raise FrameError(Unreached.GARBLED, "the answer holds more than one frame")
    if sorted(numbers) != list(range(count)):
        raise FrameError(Unreached.GARBLED, f"{len(numbers)} of the frame's {count} lines came")
    in_order = (chunk for _, chunk in sorted(chunks, key=lambda numbered: numbered[0]))
    try:
        packed = b"".join(map(binascii.a2b_base64, in_order))
    except binascii.Error:
        raise FrameError(Unreached.GARBLED, "a line of the frame is not base64") from None
    if len(packed) != length or zlib.crc32(packed) != checksum:
        raise FrameError(Unreached.GARBLED, "the frame's checksum does not fit its lines")
    return packed


def _no_frame(output: bytes, mark: bytes) -> tuple[Unreached, str]:
    without = re.search(mark + NO_PYTHON, output)
    if without:
        pythons = printable(without[1].decode("utf-8", "replace"))
        pythons = pythons or "none at all"
        return Unreached.NO_PYTHON, f"no Python 3.8 or newer that starts and has bz2; found {pythons}"
    text = printable(output[: 64 * MAX_DETAIL].decode("utf-8", "replace"))
    return Unreached.GARBLED, f"no answer of the probe in: {text}" if text else "the answer is empty"


def _cut(output: bytes, mark: bytes) -> str:
    """How much of a cut frame arrived, and the last other output after its begin."""
    after = output[output.rindex(b":begin.") + len(b":begin.") :][-64 * MAX_DETAIL :]
    noise = re.sub(mark + rb"\S*", b"", after).decode("utf-8", "replace").split("\n")
    last = next((line for line in map(printable, reversed(noise)) if line), "")
    shown = f"; its last words: {last}" if last else ""
    return f"the answer ends in the middle, after {len(output)} bytes{shown}"


def _inflate(packed: bytes) -> bytes:
    inflator = zlib.decompressobj()
    try:
        answer = inflator.decompress(packed, MAX_DECODED_BYTES)
    except zlib.error as problem:
        raise EvidenceError(f"it does not decompress ({problem})") from None
    if not inflator.eof or inflator.unused_data:
        raise EvidenceError(f"it is cut, followed by something, or larger than {MAX_DECODED_BYTES} bytes")
    return answer


def _object(answer: bytes) -> dict[str, Any]:
    """The one JSON object of an answer: bounded, standard JSON only. Raises ValueError."""
    if sum(map(answer.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise EvidenceError(f"it holds more than {MAX_VALUES} values")
    read = json.loads(
        answer.decode("utf-8"),
        object_pairs_hook=_unique,
        parse_int=_integer,
        parse_float=_finite,
        parse_constant=_constant,
    )
    if not isinstance(read, dict):
        raise EvidenceError(f"it is a {type(read).__name__}; expected an object")
    _bound_depth(read)
    if b"\\ud" in answer.lower():  # an unpaired surrogate could not be written anywhere
        return dict(json.loads(json.dumps(read, ensure_ascii=False).encode("utf-8", "replace")))
    return read


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise EvidenceError("a key appears twice in one object")
    return fields


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise EvidenceError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise EvidenceError(f"a number out of range: {digits[:MAX_DIGITS]}")
    return number


def _constant(word: str) -> None:
    raise EvidenceError(f"{word} is not JSON")


def _bound_depth(answer: dict[str, Any]) -> None:
    level: list[Any] = [answer]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise EvidenceError(f"it is nested more than {MAX_DEPTH} deep")
