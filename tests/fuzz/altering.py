"""Alters bytes: cuts, repeats, replaces and inserts what readers stumble over."""

from __future__ import annotations

import re
from typing import TypeAlias

from hypothesis import strategies as st

MAX_BYTES = 1_000_000
PARTS = 10_000  # number of possible positions in a text
WORDS = (
    *(b"", b"\0", b"\n", b" ", b",", b":", b'"', b"\\", b"[", b"]", b"{", b"}", b"(", b"#", b"=", b"\t", b"\r\n"),
    *(b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"-Infinity", b"null", b"true", b"[]", b"{}", b'""', b"N/A"),
    *(b"9" * 19, b"9" * 400, b"9" * 5_000, b"0x" + b"f" * 17, b"1e308", b"0.0000001", "²".encode(), "٣".encode()),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\x1b[31m",
        "é\u2028\u202e".encode(),
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
    ),
    *(b"../../etc/passwd", b"/dev/zero", b"<script>", b"a" * 300, b"x = 1", b"[x]", b"rank", b"2026-02-30"),
)
OBJECT = re.compile(rb"\{[^{}]*\},?")  # JSON objects without nested ones
LINE = re.compile(rb"[^\n]+\n?")
NUMBER = re.compile(rb"\d{1,9}")
Edit: TypeAlias = tuple[str, int, int, bytes, int]

edits = st.lists(
    st.tuples(
        st.sampled_from(("replace", "insert", "delete", "repeat", "exchange", "multiply")),
        st.integers(0, PARTS),
        st.integers(0, 120),
        st.sampled_from(WORDS) | st.binary(max_size=8),
        st.sampled_from((1, 1, 1, 2, 10, 1_000, 100_000)),
    ),
    max_size=6,
)


def altered(data: bytes, changes: list[Edit]) -> bytes:
    """The bytes with these changes, at most MAX_BYTES of them."""
    for kind, part, length, word, times in changes:
        place = len(data) * part // PARTS
        before, taken, behind = data[:place], data[place : place + length], data[place + length :]
        if kind == "insert":
            data = before + word * times + taken + behind
        elif kind == "replace":
            data = before + word * times + behind
        elif kind == "delete":
            data = before + behind
        elif kind == "repeat":
            data = before + taken * times + behind
        elif kind == "multiply":
            data = multiplied(data, place, times)
        else:
            data = behind + taken + before
        data = data[:MAX_BYTES]
    return data


def multiplied(data: bytes, place: int, times: int) -> bytes:
    """The bytes with many similar items inserted, each with other numbers: devices, rows, lines."""
    thing = OBJECT.search(data, place) or LINE.search(data, place)
    if not thing:
        return data
    times = min(times, MAX_BYTES // len(thing[0]))
    others = [NUMBER.sub(lambda digits, more=more: b"%d" % (int(digits[0]) + more), thing[0]) for more in range(times)]  # type: ignore[misc]
    between = b"," if thing[0].endswith(b"}") else b""
    return data[: thing.start()] + between.join(others) + data[thing.end() :]
