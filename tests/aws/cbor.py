"""The CBOR in which boto3 talks to CloudWatch, to JSON and back, as far as that service uses it."""

from __future__ import annotations

import json
import struct
from typing import Any

from botocore.parsers import BaseCBORParser

TYPE = "application/cbor"
_TIMES = ("Timestamps",)  # keys of lists of times, encoded as seconds since 1970


def as_json(body: bytes) -> bytes:
    """A request as JSON; times are seconds since 1970."""
    parser = BaseCBORParser(timestamp_parser=float)
    return json.dumps(parser.parse_data_item(parser.get_peekable_stream_from_bytes(body))).encode()


def of_json(data: bytes) -> bytes:
    """A JSON answer as CBOR."""
    return _item(json.loads(data))


def _item(data: Any, key: str = "") -> bytes:
    if data is None or isinstance(data, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[data]
    if isinstance(data, str):
        return _head(3, len(data.encode())) + data.encode()
    if isinstance(data, list):
        return _head(4, len(data)) + b"".join(_time(entry) if key in _TIMES else _item(entry) for entry in data)
    if isinstance(data, dict):
        return _head(5, len(data)) + b"".join(_item(name) + _item(entry, name) for name, entry in data.items())
    return b"\xfb" + struct.pack(">d", data)


def _time(seconds: float) -> bytes:
    return b"\xc1" + _item(seconds)


def _head(major: int, length: int) -> bytes:
    return bytes([major << 5 | 26]) + length.to_bytes(4, "big")
